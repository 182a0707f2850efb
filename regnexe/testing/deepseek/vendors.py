"""How OpenAI-compatible vendors say that the context overflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regnexe.testing.deepseek.errors import ErrorAnswer, encoded_error, error_answer

if TYPE_CHECKING:
    from regnexe.testing.deepseek.rules import Vendor

__all__ = ["overflow"]


def overflow(vendor: Vendor, tokens: int, asked: int, limit: int) -> ErrorAnswer:
    """Return the answer for `tokens` of input and `asked` tokens of output, above the limit of both together."""
    total = tokens + asked
    match vendor:
        case "deepseek":  # ai-disk-cleaner#3, deer-flow#66
            return error_answer(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {total} tokens "
                f"({tokens} in the messages, {asked} in the completion). Please reduce the length of the messages "
                "or completion.",
            )
        case "openai" | "openai_limit" | "openai_window":
            return error_answer(400, _openai(vendor, total, limit), code="context_length_exceeded", param="messages")
        case "zhipu":  # zeroclaw#4124
            return ErrorAnswer(400, encoded_error({"code": "1261", "message": "Prompt exceeds max length"}))
        case _:
            message, kind, code = _others(vendor, total, limit)
            return error_answer(400, message, kind, code=code)


def _openai(vendor: str, total: int, limit: int) -> str:
    if vendor == "openai_window":
        return "Your input exceeds the context window of this model. Please adjust your input and try again."
    if vendor == "openai_limit":
        return (
            f"Input tokens exceed the configured limit of {limit} tokens. Your messages resulted in {total} tokens. "
            "Please reduce the length of the messages."
        )
    return (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {total} tokens. "
        "Please reduce the length of the messages."
    )


def _others(vendor: str, total: int, limit: int) -> tuple[str, str, str | None]:
    match vendor:
        case "aliyun":  # qwen-code#98, opencode#45834
            message = f"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {limit}]"
            return message, "invalid_request_error", "invalid_parameter_error"
        case "ark":  # dify#32221
            return f"Input length {total} exceeds the maximum length {limit}", "BadRequest", "InvalidParameter"
        case "minimax":  # rowboat#514
            return "invalid params, context window exceeds limit (2013)", "bad_request_error", None
        case "moonshot":  # kimi-cli#2011
            message = f"Invalid request: Your request exceeded model token limit: {limit} (requested: {total})"
            return message, "invalid_request_error", None
        case "qianfan":  # ERNIE-SDK#336
            return "prompt tokens too long", "invalid_request_error", "tokens_too_long"
        case _:  # ollama, its source in 2026
            message = "the prompt is longer than the context length currently available to the model"
            return message, "invalid_request_error", None
