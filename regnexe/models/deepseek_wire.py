"""What DeepSeek takes in a request, done to LangChain's messages and to the request's body. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from regnexe.errors import ModelCallRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import BaseMessage

__all__ = ["fit_messages", "fit_payload", "thinks"]

_IMAGES = frozenset({"image", "image_url"})
_TEXTS = frozenset({"text", "text-plain"})


def fit_messages(messages: Sequence[BaseMessage], *, model: str, takes_images: bool) -> list[BaseMessage]:
    """Return the messages with nothing in them that DeepSeek refuses; the same objects where nothing is.

    Text in blocks becomes one string. Images stay only where the model takes them, in what the user says.
    Media elsewhere become a notice, so that a conversation goes on which has some from an earlier turn or
    from a tool. An answer that was empty is left out: DeepSeek refuses it ("content or tool_calls must be
    set").

    Raises:
        ModelCallRefused: the newest human message has media that the model does not take.
    """
    newest = next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], HumanMessage)), None)
    fitted: list[BaseMessage] = []
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage):
            fitted += [] if _is_empty(message) else [message]
        elif isinstance(message.content, str):
            fitted.append(message)
        else:
            human = isinstance(message, HumanMessage)
            kept = _TEXTS | _IMAGES if human and takes_images else _TEXTS
            if index == newest:
                _refuse_others(message, kept, model, takes_images)
            fitted.append(message.model_copy(update={"content": _content(message, kept)}))
    return fitted


def _is_empty(message: AIMessage) -> bool:
    called = message.tool_calls or message.invalid_tool_calls or message.additional_kwargs.get("tool_calls")
    return not called and not str(message.text)


def _refuse_others(message: BaseMessage, kept: frozenset[str], model: str, takes_images: bool) -> None:
    for block in message.content:
        kind = _kind(block)
        if kind not in kept:
            takes = "text and images" if takes_images else "text only"
            raise ModelCallRefused(
                f"the message was not sent: it has content of the type {kind!r}, and the model {model!r} takes "
                f"{takes}. Send it without, or to another model"
                + ("" if takes_images else "; deepseek-flash takes images"),
                model=model,
                kind=kind,
            )


def _kind(block: Any) -> str:
    if isinstance(block, str):
        return "text"
    kind = str(block.get("type"))
    return kind if kind not in _TEXTS or isinstance(block.get("text"), str) else f"{kind} without text"


def _content(message: BaseMessage, kept: frozenset[str]) -> str | list[str | dict[Any, Any]]:
    blocks = [block if _kind(block) in kept else _notice(block, message) for block in message.content]
    if all(_kind(block) in _TEXTS for block in blocks):
        return _joined([block if isinstance(block, str) else block["text"] for block in blocks])
    return [{"type": "text", "text": _text(block)} if _kind(block) in _TEXTS else block for block in blocks]


def _text(block: Any) -> str:
    return block if isinstance(block, str) else str(block["text"])


def _notice(block: Any, message: BaseMessage) -> str:
    where = "tool result" if isinstance(message, ToolMessage) else "message"
    return f"[The {_kind(block)} of this {where} is not shown: this model does not take it.]"


def _joined(texts: Sequence[str]) -> str:
    """Return the blocks' texts as one, each on a line of its own unless it brings its own space."""
    joined = ""
    for text in filter(None, texts):
        joined += text if not joined or joined[-1].isspace() or text[0].isspace() else f"\n{text}"
    return joined


def thinks(payload: Mapping[str, Any], model: str) -> bool:
    """Return whether the model thinks in this request: it does unless told not to, `deepseek-chat` never did."""
    told = (payload.get("extra_body") or {}).get("thinking") or payload.get("thinking")
    if isinstance(told, dict) and told.get("type"):
        return bool(told["type"] != "disabled")
    return model.rpartition("/")[2] != "deepseek-chat"


def fit_payload(payload: dict[str, Any], messages: Sequence[BaseMessage], *, model: str) -> None:
    """Change the body of a request in place to what DeepSeek takes; `messages` are those of the body.

    Raises:
        ModelCallRefused: the answer's form is asked for in a way that DeepSeek does not offer.
    """
    for sent in payload["messages"]:
        if sent["role"] == "developer":
            sent["role"] = "system"
        if sent["role"] == "assistant" and sent.get("content") is None:
            sent["content"] = ""  # as DeepSeek's own client does; one of its pages says null is refused
    if not payload.get("tools"):
        for field in ("tools", "tool_choice", "parallel_tool_calls"):
            payload.pop(field, None)
    _check_response_format(payload, model)
    if thinks(payload, model):
        _return_reasoning(payload, messages)
        _soften_tool_choice(payload)


def _return_reasoning(payload: dict[str, Any], messages: Sequence[BaseMessage]) -> None:
    """Give assistant messages back what the model thought.

    Thinking mode refuses a request with tools where an assistant message comes without
    `reasoning_content` (DeepSeek API docs, thinking mode guide); at times only messages with tool calls
    were checked. An empty string counts as present.
    """
    pairs = list(zip(payload["messages"], messages, strict=True))
    if payload.get("tools") or any(sent.get("tool_calls") for sent, _ in pairs):
        for sent, message in pairs:
            if sent["role"] == "assistant":
                sent["reasoning_content"] = _reasoning_of(message)


def _reasoning_of(message: BaseMessage) -> str:
    reasoning = message.additional_kwargs.get("reasoning_content")
    if isinstance(reasoning, str):
        return reasoning
    blocks = message.content if isinstance(message.content, list) else []
    thoughts = [b.get("reasoning") for b in blocks if isinstance(b, dict) and b.get("type") == "reasoning"]
    return "".join(thought for thought in thoughts if isinstance(thought, str))


def _soften_tool_choice(payload: dict[str, Any]) -> None:
    """Ask in words for the tool call that thinking mode cannot be made to give.

    It refuses `required` and a named function ("Thinking mode does not support this tool_choice"), which
    is what LangChain sends for structured answers.
    """
    choice = payload.get("tool_choice")
    if choice in (None, "auto", "none"):
        return
    payload["tool_choice"] = "auto"
    name = (choice.get("function") or {}).get("name") if isinstance(choice, dict) else None
    which = f"the tool {name}" if name else "one of the tools"
    asked = f"Answer only by calling {which}; do not answer in plain text."
    first = payload["messages"][0] if payload["messages"] else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        first["content"] = f"{first['content']}\n\n{asked}"
    else:
        payload["messages"].insert(0, {"role": "system", "content": asked})


def _check_response_format(payload: Mapping[str, Any], model: str) -> None:
    wanted = payload.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "json_schema" or (wanted is not None and not isinstance(wanted, dict)):
        raise ModelCallRefused(
            f"the request was not sent: {model!r} takes no JSON schema as response_format. Give the schema itself, "
            "or a ToolStrategy around it, in place of a ProviderStrategy; the answer then comes by a tool call",
            model=model,
            kind="response_format",
        )
