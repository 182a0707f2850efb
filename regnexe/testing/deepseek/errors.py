"""The answers that say no."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ErrorAnswer", "Refused", "encoded_error", "error_answer", "invalid"]

INVALID = "invalid_request_error"


@dataclass(frozen=True)
class ErrorAnswer:
    """An HTTP answer that is no completion.

    Attributes:
        status: the HTTP status.
        body: the bytes of the body.
        headers: headers beyond the server's usual ones.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


class Refused(Exception):
    """The request gets this answer instead of a completion."""

    def __init__(self, answer: ErrorAnswer) -> None:
        super().__init__(answer.body.decode())
        self.answer = answer


def error_answer(
    status: int,
    message: str,
    kind: str = INVALID,
    *,
    code: str | None = INVALID,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> ErrorAnswer:
    """Return an error in DeepSeek's envelope; `code` is nearly always `invalid_request_error`, whatever the status."""
    body = encoded_error({"message": message, "type": kind, "param": param, "code": code})
    return ErrorAnswer(status, body, {"content-type": "application/json", **(headers or {})})


def encoded_error(error: Mapping[str, Any]) -> bytes:
    """Return the body that holds this error."""
    return json.dumps({"error": error}, ensure_ascii=False).encode()


def invalid(message: str) -> Refused:
    """Return the refusal of a request that does not hold to the API's rules: status 400."""
    return Refused(error_answer(400, message))
