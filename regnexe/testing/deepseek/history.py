"""What the messages of a request must be to each other, and which of them must carry reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regnexe.testing.deepseek.errors import invalid

if TYPE_CHECKING:
    from regnexe.testing.deepseek.reply import DeepSeekRequest
    from regnexe.testing.deepseek.rules import Rules

__all__ = ["check_history", "check_reasoning"]

Message = Mapping[str, Any]


def check_history(messages: Sequence[Message]) -> None:
    """Refuse tool calls and results that do not belong together.

    Raises:
        Refused: with status 400, and DeepSeek's text.
    """
    answered: set[str] = set()
    waiting: set[str] = set()
    callable_now = False
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            answer = str(message.get("tool_call_id"))
            if answer in answered:  # craft-agents-oss#630, which shows no id in the text either
                raise invalid(f"Duplicate value for 'tool_call_id' of in message[{index}]")
            if not callable_now or answer not in waiting:  # Newelle#425
                raise invalid("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'")
            waiting.discard(answer)
            answered.add(answer)
            continue
        _check_waiting(waiting)
        callable_now = message["role"] == "assistant" and "tool_calls" in message
        waiting = _called(message, index) if message["role"] == "assistant" else set()
    _check_waiting(waiting)


def _check_waiting(waiting: set[str]) -> None:
    """Refuse calls without a result right behind them (deer-flow#2706, gptme#3421)."""
    if waiting:
        raise invalid(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. (insufficient tool messages following tool_calls message)"
        )


def _called(message: Message, index: int) -> set[str]:
    """Return the call ids of an assistant message; refuse one that says and calls nothing."""
    calls = message.get("tool_calls")
    if calls == []:  # hermes-agent#84365, which shows the beginning
        raise invalid(
            f"Invalid 'messages[{index}].tool_calls': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead."
        )
    if not calls and not message.get("content"):  # ProxyAI#830; with reasoning alone: opencode-go-copilot#24
        raise invalid("Invalid assistant message: content or tool_calls must be set")
    ids = [str(call.get("id")) for call in calls or ()]
    if len(set(ids)) < len(ids):
        raise invalid(f"Duplicate value for 'tool_call_id' of in message[{index}]")
    return set(ids)


def check_reasoning(request: DeepSeekRequest, rules: Rules) -> None:
    """Refuse assistant messages without the reasoning that thinking mode wants back; see `Rules.reasoning`.

    Raises:
        Refused: with status 400, and DeepSeek's text of the era that `Rules.reasoning_text` names.
    """
    if not request.thinking:
        return
    for index, message in enumerate(request.messages):
        if message["role"] != "assistant":
            continue
        if not rules.null_content and message.get("tool_calls") and message.get("content") is None:
            raise invalid(f"Invalid 'messages[{index}].content': content must not be null in thinking mode.")
        if message.get("reasoning_content") is None and _wanted(request, index, rules):
            raise invalid(_missing(index, rules))


def _wanted(request: DeepSeekRequest, index: int, rules: Rules) -> bool:
    if rules.reasoning == "strict_calls":
        return bool(request.messages[index].get("tool_calls"))
    if rules.reasoning == "strict_tools":
        return bool(request.tools) and any(message["role"] == "user" for message in request.messages[:index])
    return False


def _missing(index: int, rules: Rules) -> str:
    if rules.reasoning_text == "v3.2":  # Everywhere#287
        return (
            f"Missing `reasoning_content` field in the assistant message at message index {index}. For more "
            "information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
        )
    return "The `reasoning_content` in the thinking mode must be passed back to the API."  # ai-agent-book#982
