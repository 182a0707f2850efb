"""What can go wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from regnexe.testing.deepseek.errors import ErrorAnswer, error_answer
from regnexe.testing.deepseek.reply import Reply

__all__ = ["Fault"]

TOO_LARGE_PAGE = (
    b"<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body>\r\n"
    b"<center><h1>413 Request Entity Too Large</h1></center>\r\n<hr>"
    b"<center>openresty</center>\r\n</body>\r\n</html>\r\n"
)
BUSY = "Service is too busy. We advise users to temporarily switch to alternative LLM API service providers."

Break = Literal["hold", "cut", "garble", "reset", "close"]


@dataclass(frozen=True)
class Fault:
    """One way in which a request fails, for `server.fail_next(Fault.busy())`. Make one with the class methods.

    A fault with an error answer, a reset and a close come before the request is checked, and use up no
    reply. The others happen to a valid request, and change what becomes of its reply.

    Attributes:
        error: the answer instead of a completion.
        reshape: what becomes of the reply.
        breaks: what becomes of the connection or the body.
        after: after how many events of a stream it breaks.
        clean: whether a body that is cut short ends as HTTP says it should.
    """

    error: ErrorAnswer | None = None
    reshape: Callable[[Reply], Reply] | None = None
    breaks: Break | None = None
    after: int = 0
    clean: bool = True

    @classmethod
    def unauthorized(cls, key: str = "sk-fcc2") -> Fault:
        """Status 401: the key is not valid (continue#11820)."""
        return cls(unauthorized(key))

    @classmethod
    def insufficient_balance(cls) -> Fault:
        """Status 402: the account is empty (aider#4851)."""
        return cls(error_answer(402, "Insufficient Balance", "unknown_error"))

    @classmethod
    def rate_limited(
        cls,
        *,
        concurrency: int = 26,
        limit: int = 25,
        retry_after: float | None = None,
        retry_after_ms: int | None = None,
    ) -> Fault:
        """Status 429: too many requests at once (jobfetcher#42).

        No Retry-After has been seen from DeepSeek, so there is none unless asked for: `retry_after` in
        seconds, `retry_after_ms` in milliseconds, each as the header of that name.
        """
        return cls(rate_limited(concurrency, limit, retry_after, retry_after_ms))

    @classmethod
    def server_error(cls) -> Fault:
        """Status 500. The docs list the status; no body of it is published, so this one is the server's own."""
        return cls(error_answer(500, "Internal Server Error", "internal_error", code="internal_error"))

    @classmethod
    def busy(cls) -> Fault:
        """Status 503: the service is too busy (DeepSeek API docs, error codes)."""
        return cls(error_answer(503, BUSY, "service_unavailable_error"))

    @classmethod
    def too_large(cls) -> Fault:
        """Status 413: openresty's HTML page, not JSON (deepseek-engineer#18)."""
        return cls(too_large())

    @classmethod
    def unprocessable(cls) -> Fault:
        """Status 422 with bare text, for a body of the wrong shape: how it was until early 2025 (cline#230)."""
        text = "Failed to deserialize the JSON body into the target type: messages[1]: invalid type: sequence, "
        body = (text + "expected a string at line 1 column 64").encode()
        return cls(ErrorAnswer(422, body, {"content-type": "text/plain; charset=utf-8"}))

    @classmethod
    def hold(cls, *, after: int = 0) -> Fault:
        """The answer waits, after so many events of the stream, until `server.release()` or the client leaves.

        With 0 there is no byte of an answer before the release, not even the status.
        """
        return cls(breaks="hold", after=after)

    @classmethod
    def cut(cls, *, after: int = 1, clean: bool = True) -> Fault:
        """The stream ends after so many events, without `data: [DONE]`, which means truncation (deepseek-harness).

        A clean end is a whole HTTP body; the other is a connection closed in the middle of one. An answer
        in one piece loses its second half.
        """
        return cls(breaks="cut", after=after, clean=clean)

    @classmethod
    def reset(cls) -> Fault:
        """The connection is reset before any byte of an answer."""
        return cls(breaks="reset")

    @classmethod
    def close(cls) -> Fault:
        """The connection is closed before any byte of an answer.

        DeepSeek does it when inference has not begun in 10 minutes (DeepSeek API docs, rate limit).
        """
        return cls(breaks="close")

    @classmethod
    def invalid_json(cls, *, after: int = 1) -> Fault:
        """The body is no JSON; in a stream, the event after so many good ones is none, and the stream goes on."""
        return cls(breaks="garble", after=after)

    @classmethod
    def length(cls) -> Fault:
        """The answer stops half way, with `finish_reason: length`: in the last call's arguments, or in the text."""
        return cls(reshape=_halved)

    @classmethod
    def empty(cls) -> Fault:
        """A completed answer without any content (deepseek-harness, EMPTY_RESPONSE)."""
        return cls(reshape=lambda reply: Reply(usage=reply.usage))

    @classmethod
    def content_filter(cls) -> Fault:
        """The answer stops half way, with `finish_reason: content_filter` (deepseek-harness)."""
        return cls(reshape=lambda reply: replace(_halved(reply), finish_reason="content_filter"))

    @classmethod
    def insufficient_system_resource(cls) -> Fault:
        """The answer stops half way, with `finish_reason: insufficient_system_resource` (deepseek-harness)."""
        return cls(reshape=lambda reply: replace(_halved(reply), finish_reason="insufficient_system_resource"))


def unauthorized(key: str) -> ErrorAnswer:
    """Return the 401 for a key that is not valid."""
    return error_answer(401, f"Authentication Fails, Your api key: ****{key[-4:]} is invalid", "authentication_error")


def bad_header() -> ErrorAnswer:
    """Return the 401 for an Authorization header that is missing or of another form (prompt-optimizer#170)."""
    message = "Authentication Fails (auth header format should be Bearer sk-...)"
    return error_answer(401, message, "authentication_error")


def too_large() -> ErrorAnswer:
    """Return the 413 for a body above the proxy's limit."""
    return ErrorAnswer(413, TOO_LARGE_PAGE, {"content-type": "text/html"})


def rate_limited(
    concurrency: int, limit: int, retry_after: float | None = None, retry_after_ms: int | None = None
) -> ErrorAnswer:
    """Return the 429 for more requests at once than the account may have."""
    message = (
        f"Too many requests. Your current concurrency is {concurrency}, which exceeds your concurrency limit of "
        f"{limit} based on your remaining balance. Please top up your balance to restore your concurrency."
    )
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    headers |= {} if retry_after_ms is None else {"retry-after-ms": str(retry_after_ms)}
    return error_answer(429, message, "rate_limit_error", headers=headers)


def _halved(reply: Reply) -> Reply:
    if reply.tool_calls:
        *whole, last = reply.tool_calls
        half = replace(last, arguments=last.arguments[: len(last.arguments) // 2])
        return replace(reply, tool_calls=(*whole, half), finish_reason="length")
    if reply.text:
        return replace(reply, text=reply.text[: len(reply.text) // 2], finish_reason="length")
    return replace(reply, reasoning=reply.reasoning[: len(reply.reasoning) // 2], finish_reason="length")
