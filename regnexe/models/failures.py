"""What a failed model call says: what happened, and what to do about it.

The exceptions stay the clients' own, so that code which expects `openai.RateLimitError` or LangChain's
`ModelRateLimitError` works; only their text grows. A context that overflows becomes LangChain's
`ContextOverflowError`, whatever the vendor calls it, since that is what asks for a compaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

import openai
from langchain_core.exceptions import ContextOverflowError

# Not in the package's `__all__`, but the class that it raises itself; the tests say so if that changes.
from langchain_openai.chat_models.base import OpenAIContextOverflowError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ModelSource", "explained"]


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Where a model call goes.

    Attributes:
        vendor: the vendor's name for people.
        model: the model's name.
        base_url: the address.
        key_variables: the environment variables that may hold the key, the standard one first.
        base_url_variable: the environment variable that moves the address.
        models: names that exist, to be named in place of one that does not.
        key: the key itself, to keep it out of texts.
    """

    vendor: str
    model: str
    base_url: str
    key_variables: Sequence[str] = ()
    base_url_variable: str = ""
    models: Sequence[str] = ()
    key: str = ""


@contextmanager
def explained(source: ModelSource) -> Iterator[None]:
    """Let the failures of a model call inside the block say what to do.

    Raises:
        ContextOverflowError: the request is larger than the model's context.
    """
    try:
        yield
    except openai.APIError as error:
        _hide_key(error, source.key)
        if isinstance(error, openai.BadRequestError) and _OVERFLOW.search(error.message):
            if not isinstance(error, ContextOverflowError):
                raise OpenAIContextOverflowError(
                    message=error.message, response=error.response, body=error.body
                ) from error
        elif hint := _hint(error, source):
            _add(error, hint)
        raise
    except JSONDecodeError as error:
        message = f"{source.vendor} gave an answer that is not valid JSON; send the message again"
        raise JSONDecodeError(message, error.doc, error.pos) from error


# The texts of the vendors' errors in 2026; several send no code that tells this 400 from another.
_OVERFLOW = re.compile(
    r"maximum context length is"  # DeepSeek, OpenAI
    r"|exceeds the context window|Input tokens exceed the configured limit"  # OpenAI
    r"|Range of input length should be"  # Aliyun
    r"|Input length \d+ exceeds the maximum length"  # Doubao
    r"|context window exceeds limit"  # MiniMax
    r"|exceeded model token limit"  # Moonshot
    r"|prompt tokens too long|tokens_too_long"  # Qianfan
    r"|Prompt exceeds max length"  # Zhipu
    r"|longer than the context length"  # Ollama
)

_UNKNOWN_MODEL = re.compile(r"supported API model names are|Model Not Exist|model .{0,80}does not exist", re.IGNORECASE)


def _hint(error: openai.APIError, source: ModelSource) -> str | None:
    if isinstance(error, openai.APIConnectionError):
        moved = f" and {source.base_url_variable}" if source.base_url_variable else ""
        return f"no answer from {source.base_url}: check the network{moved}, then send the message again"
    status = getattr(error, "status_code", None)
    if status == 404 or (status == 400 and _UNKNOWN_MODEL.search(error.message)):
        known = f"; use {' or '.join(source.models)}" if source.models else "; check the name in with_default_model"
        return f"{source.vendor} does not serve the model {source.model!r}{known}"
    if status in (401, 403):
        named = f": check the environment variable {' or '.join(source.key_variables)}" if source.key_variables else ""
        return f"{source.vendor} does not accept the key{named}"
    return _trouble(status, source)


def _trouble(status: int | None, source: ModelSource) -> str | None:
    match status:
        case 402:
            return f"the account with {source.vendor} has no balance: top it up, then send the message again"
        case 413:
            return f"the request is larger than {source.vendor} takes: send less text or fewer images at once"
        case 429:
            return f"{source.vendor} takes no more requests now, retries included: send fewer at once, or wait"
        case int() if status >= 500:
            return f"{source.vendor} has trouble, and retries did not help: send the message again later"
        case _:
            return None


def _add(error: openai.APIError, hint: str) -> None:
    if hint not in error.message:
        error.message = f"{error.message} — {hint}"
        error.args = (error.message, *error.args[1:])


def _hide_key(error: BaseException | None, key: str) -> None:
    """Take the key out of the texts of an error and of what caused it: some gateways send it back."""
    while key and error is not None:
        error.args = _without(error.args, key)
        if isinstance(error, openai.APIError):
            error.message = _without(error.message, key)
            error.body = _without(error.body, key)
        error = error.__cause__ or error.__context__


def _without(value: Any, key: str) -> Any:
    match value:
        case str():
            return value.replace(key, "***")
        case list() | tuple():
            return type(value)(_without(part, key) for part in value)
        case dict():
            return {name: _without(part, key) for name, part in value.items()}
        case _:
            return value
