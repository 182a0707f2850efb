"""Takes back what LangChain guessed of a streamed tool call.

From the pieces of a streamed answer LangChain reads arguments as far as it can: it closes what is still open
and drops what it cannot read, so that a call that was cut off at `{"amount": 12` comes out as a whole one, and
would be run. What the model wrote is in the pieces only. They are seen by LangChain's callbacks, whatever the
model's class is, and whether streaming was asked for by a listener or by the model's own `streaming=True`.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langchain_core.tracers.context import register_configure_hook

from regnexe.messages import call_arguments, finish_reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from langchain_core.messages import InvalidToolCall, ToolCall, ToolCallChunk
    from langchain_core.outputs import LLMResult

__all__ = ["no_guessed_calls"]


@contextmanager
def no_guessed_calls() -> Iterator[None]:
    """Let model calls inside the block give tool calls as an answer that is not streamed has them.

    A call whose arguments are no JSON object is among the message's `invalid_tool_calls`, with the text that
    the model wrote.
    """
    token = _watch.set(_Watch())
    try:
        yield
    finally:
        _watch.reset(token)


class _Watch(BaseCallbackHandler):
    """Keeps the pieces of streamed tool calls, and puts each message right before anybody is given it."""

    run_inline = True
    raise_error = True  # rather no answer than a guess

    def __init__(self) -> None:
        self._pieces: dict[UUID, list[ToolCallChunk]] = {}

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        message = getattr(chunk, "message", None)
        if isinstance(message, AIMessageChunk) and message.tool_call_chunks:
            self._pieces.setdefault(run_id, []).extend(message.tool_call_chunks)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        if pieces := self._pieces.pop(run_id, None):
            written = _whole(pieces)
            for generation in (found for batch in response.generations for found in batch):
                message = getattr(generation, "message", None)
                if isinstance(message, AIMessage):
                    _put_right(message, written, sure=any(piece["index"] is None for piece in pieces))


_watch: ContextVar[BaseCallbackHandler | None] = ContextVar("regnexe_raw_calls", default=None)
# The way of LangChain's own `get_usage_metadata_callback`: the handler of the variable is called by every model.
register_configure_hook(_watch, inheritable=False)


def _whole(pieces: Sequence[ToolCallChunk]) -> list[ToolCallChunk]:
    # Added up by LangChain, so that they belong together here where they do in its message.
    first, *others = [AIMessageChunk(content="", tool_call_chunks=[piece]) for piece in _numbered(pieces)]
    added = first + others
    return added.tool_call_chunks if isinstance(added, AIMessageChunk) else []


def _numbered(pieces: Sequence[ToolCallChunk]) -> list[ToolCallChunk]:
    """Return the pieces with an index each: one without belongs to the call before it, unless it begins one."""
    numbered: list[ToolCallChunk] = []
    for number, piece in enumerate(pieces, _FIRST_INDEX):
        index = piece["index"]
        if index is None:
            begins = piece["id"] or piece["name"] or not numbered
            index = number if begins else numbered[-1]["index"]
        numbered.append({**piece, "index": index})
    return numbered


_FIRST_INDEX = 1_000_000  # above those that providers give


def _put_right(message: AIMessage, written: Sequence[ToolCallChunk], *, sure: bool) -> None:
    """Give the message the calls that were written.

    Args:
        message: what LangChain made of the pieces.
        written: the calls in the pieces.
        sure: whether the pieces are to be believed where the message has other calls: LangChain does not put pieces
            without an index together.
    """
    ended = bool(finish_reason_of(message))
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for chunk in written:
        # Without arguments, and without an end of the answer, the arguments were still to come.
        arguments = call_arguments(chunk["args"]) if chunk["args"] or ended else None
        if arguments is None:
            invalid.append(invalid_tool_call(name=chunk["name"], args=chunk["args"], id=chunk["id"], error=None))
        else:
            calls.append(tool_call(name=chunk["name"] or "", args=arguments, id=chunk["id"]))
    read = [*message.tool_calls, *message.invalid_tool_calls]
    same = {call["id"] for call in read} == {chunk["id"] for chunk in written} and len(read) == len(written)
    if not same and not sure:
        # A model that makes its message in a way of its own: only what is surely a guess is taken out.
        guessed = {call["id"] for call in invalid} - {None, ""}
        calls = [call for call in message.tool_calls if call["id"] not in guessed]
        invalid = [call for call in message.invalid_tool_calls if call["id"] not in guessed] + [
            call for call in invalid if call["id"] in guessed and any(one["id"] == call["id"] for one in read)
        ]
    message.tool_calls, message.invalid_tool_calls = calls, invalid
