"""What one call asks for, checked at the door."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import HumanMessage
from langchain_core.runnables.config import merge_configs

from regnexe.errors import InvalidInput
from regnexe.identity import SessionKey, new_session_id
from regnexe.messages import clean_content, text_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

__all__ = ["TURN", "RunRequest", "make_request"]

TURN = "regnexe_turn"
"""The metadata of a checkpoint that holds the number of its turn."""

_LONGEST_TIMEOUT = 10 * 366 * 86_400


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _are_callbacks(value: Any) -> bool:
    if isinstance(value, BaseCallbackManager):
        return True
    return isinstance(value, list) and all(isinstance(handler, BaseCallbackHandler) for handler in value)


# What LangChain and LangGraph read from a config; with other types they fail in the middle of the run.
_CONFIG_PARTS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "configurable": (lambda value: isinstance(value, Mapping), "a dict"),
    "metadata": (lambda value: isinstance(value, Mapping) and all(isinstance(k, str) for k in value), "a dict"),
    "tags": (lambda value: isinstance(value, list) and all(isinstance(tag, str) for tag in value), "a list of str"),
    "callbacks": (_are_callbacks, "a list of callback handlers or a callback manager"),
    "recursion_limit": (_is_count, "a positive int"),
    "max_concurrency": (_is_count, "a positive int"),
}

_OURS = ("thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One message for one session, and how to run it."""

    key: SessionKey
    message: HumanMessage
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None
    timeout: float | None = None
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    turn: int | None = None
    """The message is the n-th human one that Regnexe stores in the session, once the session was looked at."""

    def run_config(self, handler: BaseCallbackHandler | None = None) -> RunnableConfig:
        """Return the config for LangGraph: the caller's, on this session's thread, heard by `handler`."""
        metadata = {
            **_callers(self.config.get("metadata") or {}),
            "regnexe_app_id": self.key.app_id,
            "regnexe_user_id": self.key.user_id,
            "regnexe_session_id": self.key.session_id,
            "regnexe_run_id": self.run_id,
        }
        if self.turn is not None:
            metadata[TURN] = self.turn
        configurable = {**_callers(self.config.get("configurable") or {}), "thread_id": self.key.thread_id}
        # `run_id` at the top names LangChain's trace, which is the caller's to name.
        ours: RunnableConfig = {"callbacks": [handler] if handler else []}
        merged = merge_configs(cast("RunnableConfig", {**self.config, "metadata": {}, "configurable": {}}), ours)
        return {**merged, "metadata": metadata, "configurable": configurable}


def make_request(
    goal: object,
    *,
    app_id: str,
    user_id: str,
    session_id: str | None,
    config: object,
    context: Any,
    timeout: object,
) -> RunRequest:
    """Return the checked request.

    Raises:
        InvalidInput: something in it cannot work; nothing was stored.
    """
    return RunRequest(
        key=SessionKey(app_id, user_id, new_session_id() if session_id is None else session_id),
        message=_message(goal),
        config=_config(config),
        context=context,
        timeout=_timeout(timeout),
    )


def _message(goal: object) -> HumanMessage:
    """Return the goal as a message with an id of ours: a client's id could name an old turn."""
    match goal:
        case HumanMessage():
            content: Any = goal.content
        case str() | list():
            content = goal
        case _:
            raise InvalidInput(
                f"goal must be text, a list of content blocks or a HumanMessage, got {type(goal).__name__}"
            )
    _check_blocks(content)
    fields = _fields(goal) if isinstance(goal, HumanMessage) else {}
    message = HumanMessage(**{**clean_content(fields), "content": clean_content(content), "id": uuid.uuid4().hex})
    only_text = isinstance(content, str) or all(isinstance(b, str) or b.get("type") == "text" for b in content)
    if only_text and not text_of(message).strip():
        raise InvalidInput("goal is empty; give the message that the agent should answer")
    return message


def _check_blocks(content: Any) -> None:
    if isinstance(content, str):
        return
    for index, block in enumerate(content):
        if not isinstance(block, str | dict):
            raise InvalidInput(f"goal[{index}] must be a content block (a dict) or text, got {type(block).__name__}")
        _check_json(block, f"goal[{index}]")


def _fields(message: HumanMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": message.name,
        "additional_kwargs": message.additional_kwargs,
        "response_metadata": message.response_metadata,
    }
    for name, value in fields.items():
        _check_json(value, f"goal.{name}")
    return fields


def _check_json(value: Any, what: str) -> None:
    # A message goes to the model as JSON, again with every later turn: what JSON cannot express would make the
    # session unusable, and so would an integer that the checkpointer cannot store.
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} cannot be sent to a model as JSON: {error}") from error
    if _has_huge_integer(value):
        raise InvalidInput(f"{what} holds an integer of more than 64 bits, which cannot be stored")


def _has_huge_integer(value: Any) -> bool:
    match value:
        case bool():
            return False
        case int():
            return not -(2**63) <= value < 2**64
        case list() | tuple():
            return any(map(_has_huge_integer, value))
        case dict():
            return any(map(_has_huge_integer, value.values()))
        case _:
            return False


def _config(config: object) -> Mapping[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise InvalidInput(f"config must be a LangChain RunnableConfig (a dict), got {type(config).__name__}")
    for part, (is_right, wanted) in _CONFIG_PARTS.items():
        if config.get(part) is not None and not is_right(config[part]):
            raise InvalidInput(f"config[{part!r}] must be {wanted}, got {config[part]!r}")
    for name in _OURS:
        if name in (config.get("configurable") or {}):
            raise InvalidInput(
                f"config['configurable'] must not hold {name!r}: the thread comes from app_id, user_id and session_id"
            )
    return config


def _callers(part: Mapping[str, Any]) -> dict[str, Any]:
    # LangGraph takes a `run_id` that it has seen on the thread for a resume, and drops the message. Turns are counted
    # from what is stored.
    return {"client_run_id" if key == "run_id" else key: value for key, value in part.items() if key != TURN}


def _timeout(timeout: object) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= _LONGEST_TIMEOUT:
        raise InvalidInput(f"timeout must be a positive number of seconds and at most 10 years, got {timeout!r}")
    return float(timeout)
