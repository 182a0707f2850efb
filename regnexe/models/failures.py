"""What a failed model call says: what happened, and what to do about it.

The exceptions stay the clients' own, so that code which expects `openai.RateLimitError` or LangChain's
`ModelRateLimitError` works; only their text grows. A context that overflows becomes LangChain's
`ContextOverflowError`, whatever the vendor calls it, since that is what asks for a compaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError

import openai
from langchain_core.exceptions import ContextOverflowError

# Not in the package's `__all__`, but the class that it raises itself; the tests say so if that changes.
from langchain_openai.chat_models.base import OpenAIContextOverflowError

from regnexe.models.addresses import shown
from regnexe.models.secret_forms import secrets_of
from regnexe.models.secrets import cleaned

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
    base_url: str = field(repr=False)
    key_variables: Sequence[str] = ()
    base_url_variable: str = ""
    models: Sequence[str] = ()
    key: str = field(default="", repr=False)

    def secrets(self) -> list[str]:
        """Return what is to be kept out of texts: the key, and user and password of the address, in every form."""
        return secrets_of(self.key, self.base_url)


def explained(error: Exception, source: ModelSource) -> Exception:
    """Return the exception to raise for one that ended a model call: it says what to do, and holds no key.

    Mostly it is the same object, with more text. A request that is larger than the model's context gives a
    `ContextOverflowError`. Raise it outside of the `except` block, which would tie it to the first one.
    """
    clean = cleaned(error, source.secrets())
    told = _told(clean, source)
    if told is not clean:
        told.__cause__ = clean
    return told


def _told(error: Exception, source: ModelSource) -> Exception:
    """Return the error with what to do about it, or the one to raise in its place."""
    if isinstance(error, JSONDecodeError):
        message = f"{source.vendor} gave an answer that is not valid JSON; send the message again"
        return JSONDecodeError(message, error.doc, error.pos)
    if not isinstance(error, openai.APIError):
        return error
    if isinstance(error, openai.BadRequestError) and _OVERFLOW.search(error.message):
        if isinstance(error, ContextOverflowError):
            return error
        return OpenAIContextOverflowError(message=error.message, response=error.response, body=error.body)
    if hint := _hint(error, source):
        _add(error, hint)
    return error


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
        return f"no answer from {shown(source.base_url)}: check the network{moved}, then send the message again"
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
