"""Reads what LangChain's callbacks bring, and copies what the events give away.

A callback that raises is logged by LangChain and its event is lost, so nothing here raises, whatever a provider,
a tool or a message holds.
"""

from __future__ import annotations

import asyncio
import copy
import math
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langgraph.types import Command

from regnexe.json_values import safe_str
from regnexe.messages import text_of
from regnexe.results import PendingApproval, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from langchain_core.outputs import LLMResult

__all__ = [
    "MessageCopies",
    "answer_of",
    "content_of",
    "copied",
    "error_text",
    "model_name",
    "namespace",
    "nothing",
    "pending_copied",
    "readable",
    "reasoning_of",
    "results_in",
    "system_prompt_of",
    "tokens_of",
    "unended",
]

_REMEMBERED = 1_000
"""How many messages of a run are kept with their copies; a memory of no message only costs time."""

_set = object.__setattr__
_UNCHANGING = frozenset({str, int, float, bool, type(None), bytes})


class MessageCopies:
    """Copies of the messages of one run, each made once for as long as it stays what it was.

    The view grows at its end, so that a model call shows mostly messages that the one before it showed:
    comparing forty of them with their copies takes about a tenth of copying them.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[BaseMessage, BaseMessage]] = {}

    def of(self, messages: Iterable[BaseMessage]) -> tuple[BaseMessage, ...]:
        """Return copies that share nothing that can be changed with the messages."""
        if len(self._copies) > _REMEMBERED:
            self._copies.clear()
        return tuple(self._copy(message) for message in messages)

    def _copy(self, message: BaseMessage) -> BaseMessage:
        # The message is kept too: while it lives, no other object has its id.
        _, known = self._copies.get(id(message), (None, None))
        if known is not None and _is_same(known, message):
            return known
        made: BaseMessage = _or_itself(_message_copied, message)
        self._copies[id(message)] = message, made
        return made


def copied(value: Any) -> Any:
    """Return a deep copy; objects inside that cannot be copied are shared."""
    try:
        return _copied(value)
    except Exception:  # an object of somebody else's, or one that contains itself
        return _or_itself(copy.deepcopy, value)


def _copied(value: Any) -> Any:
    # Much faster than deepcopy for what messages and arguments are made of.
    kind = type(value)
    if kind in _UNCHANGING:
        return value
    if kind is dict:
        return {key: part if type(part) in _UNCHANGING else _copied(part) for key, part in value.items()}
    if kind is list or kind is tuple:
        return kind([part if type(part) in _UNCHANGING else _copied(part) for part in value])
    return _or_itself(_message_copied if isinstance(value, BaseMessage) else copy.deepcopy, value)


def _or_itself(copy_of: Callable[[Any], Any], value: Any) -> Any:
    try:
        return copy_of(value)
    except Exception:  # an object of somebody else's
        return value


def _message_copied(message: BaseMessage) -> BaseMessage:
    # As pydantic's own `__copy__`, but in one pass and at half the cost; a long view has many messages.
    kind = type(message)
    made = kind.__new__(kind)
    _set(made, "__dict__", copied(message.__dict__))
    _set(made, "__pydantic_fields_set__", set(message.__pydantic_fields_set__))
    _set(made, "__pydantic_extra__", copied(message.__pydantic_extra__))
    _set(made, "__pydantic_private__", copied(message.__pydantic_private__))
    return made


def _is_same(known: BaseMessage, message: BaseMessage) -> bool:
    held, holds = known.__dict__, message.__dict__
    try:
        if holds.get("artifact") is not None:
            # No model sees it, and it may be of any size, and of any mind about what is equal to it.
            held, holds = {**held, "artifact": None}, {**holds, "artifact": None}
        return bool(held == holds and known.__pydantic_extra__ == message.__pydantic_extra__)
    except Exception:  # an object of somebody else's that is not to be compared
        return False


def readable(message: BaseMessage) -> str:
    """Return the text of a message, "" when its content is none that has a text."""
    try:
        return text_of(message)
    except Exception:  # content that no constructor would have let in
        return ""


def system_prompt_of(messages: Iterable[BaseMessage]) -> str:
    """Return the text of the system messages."""
    return "\n\n".join(readable(message) for message in messages if isinstance(message, SystemMessage))


def namespace(metadata: Mapping[str, Any] | None) -> str:
    """Return where in the graph something happened, "" for the agent itself."""
    return str((metadata or {}).get("langgraph_checkpoint_ns", ""))


def model_name(
    serialized: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None, kwargs: Mapping[str, Any]
) -> str:
    """Return the name of the model that is called, or else of its class."""
    parameters = _mapping(kwargs.get("invocation_params"))
    name = _mapping(metadata).get("ls_model_name") or parameters.get("model") or parameters.get("model_name")
    return safe_str(name or kwargs.get("name") or _mapping(serialized).get("name") or "model")


def answer_of(response: LLMResult) -> AIMessage | None:
    """Return the message that a model call gave, None when it gave none."""
    generation = next((found for batch in response.generations for found in batch), None)
    message = getattr(generation, "message", None)
    return message if isinstance(message, AIMessage) else None


def tokens_of(message: AIMessage | None) -> Usage:
    """Return the tokens that the provider reported; a figure that is missing or no number counts as 0."""
    counted = _mapping(message.usage_metadata if message is not None else None)
    return Usage(
        input_tokens=_figure(counted.get("input_tokens")),
        output_tokens=_figure(counted.get("output_tokens")),
        cached_tokens=_figure(_mapping(counted.get("input_token_details")).get("cache_read")),
    )


def reasoning_of(message: BaseMessage) -> str:
    """Return the reasoning in a piece of a streamed answer."""
    reasoning = _mapping(message.additional_kwargs).get("reasoning_content")
    return reasoning if isinstance(reasoning, str) else ""


def content_of(output: Any) -> str:
    """Return what a tool gave, as text."""
    if isinstance(output, ToolMessage):
        return readable(output)
    if isinstance(output, Command):
        return "\n".join(readable(message) for message in _told_by(output))
    if isinstance(output, list | tuple) and any(isinstance(part, ToolMessage | Command) for part in output):
        return "\n".join(content for part in output if (content := content_of(part)))
    return safe_str(output)


def error_text(error: BaseException) -> str:
    """Return the text of an exception, with its kind."""
    return f"{type(error).__name__}: {safe_str(error)}"


def results_in(output: Any) -> list[ToolMessage]:
    """Return the messages for the model in what a tool gave, without ids: a tool's own might be one of the log's."""
    found: list[ToolMessage] = []
    for part in output if isinstance(output, list | tuple) else [output]:
        found += _told_by(part) if isinstance(part, Command) else [part] if isinstance(part, ToolMessage) else []
    return [message.model_copy(update={"id": None}) for message in found]


def _told_by(command: Command[Any]) -> list[ToolMessage]:
    messages = _mapping(command.update).get("messages")
    found = messages if isinstance(messages, list | tuple) else [messages]
    return [message for message in found if isinstance(message, ToolMessage)]


def unended() -> asyncio.CancelledError:
    """Return the error of a call that the end of its run has cut off."""
    return asyncio.CancelledError("the run ended before this call did")


async def nothing() -> None:
    """Wait for nobody."""


def pending_copied(pending: PendingApproval) -> PendingApproval:
    """Return the same approval with a value of its own."""
    return PendingApproval(id=pending.id, value=copied(pending.value))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _figure(value: Any) -> int:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    return int(value) if usable else 0
