"""Keeps keys out of exceptions: endpoints send them back, and clients put what was sent into their errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

__all__ = ["cleaned"]

HIDDEN = "***"

_SHORTEST = 8
"""Shorter keys are none ("none", "EMPTY", "ollama"), but words of any text."""


def cleaned(error: Exception, secrets: Iterable[str]) -> Exception:
    """Return the error with no secret in its texts, nor in those of what caused it.

    It is the same object, changed, unless it cannot be changed: then a `RuntimeError` with its text. A cause
    that cannot be changed is left out.
    """
    hidden = [secret for secret in secrets if len(secret) >= _SHORTEST]
    if not hidden:
        return error
    seen: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting:
        current = waiting.pop()
        if any(current is known for known in seen):
            continue
        seen.append(current)
        _clean(current, hidden)
        waiting += _linked(current)
    for known in seen:
        for link in ("__cause__", "__context__"):
            if (linked := getattr(known, link)) is not None and _tells(linked, hidden):
                setattr(known, link, None)
    if not _tells(error, hidden):
        return error
    return RuntimeError(_without(f"{type(error).__name__}: {error}", hidden))


def _linked(error: BaseException) -> list[BaseException]:
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [linked for linked in (error.__cause__, error.__context__, *inside) if linked is not None]


def _tells(error: BaseException, secrets: Sequence[str]) -> bool:
    try:
        told = f"{error!s} {error!r}"
    except Exception:  # an error that cannot say what it is, and so tells nothing
        return False
    return any(secret in told for secret in secrets)


def _clean(error: BaseException, secrets: Sequence[str]) -> None:
    error.args = _without(error.args, secrets)
    # Not `vars`: what comes from C (the bytes of a UnicodeDecodeError, say) is not among them.
    for name in [name for name in dir(error) if not name.startswith("_") or name == "__notes__"]:
        with suppress(Exception):  # a property that fails, or that cannot be set
            value = getattr(error, name)
            if (clean := _without(value, secrets)) is not value:
                setattr(error, name, clean)
            _clean_exchange(value, secrets)


def _clean_exchange(value: Any, secrets: Sequence[str]) -> None:
    """Take the secrets out of the HTTP request or response that an error holds; it was sent, and is over."""
    headers = getattr(value, "headers", None)
    if headers is None or isinstance(value, str):
        return
    for name, text in list(headers.items()):
        if (clean := _without(text, secrets)) is not text:
            headers[name] = clean
    body = getattr(value, "_content", None)
    if isinstance(body, bytes) and (clean := _without(body, secrets)) is not body:
        value._content = clean
        with suppress(AttributeError):
            del value._text  # made of the body when it was first asked for
    with suppress(Exception):  # a response that came without a request says so by raising
        _clean_exchange(value.request, secrets)


def _without(value: Any, secrets: Sequence[str]) -> Any:
    """Return the value without the secrets; the same object when none was in it."""
    match value:
        case str():
            for secret in secrets:
                value = value.replace(secret, HIDDEN) if secret in value else value
            return value
        case bytes():
            for secret in secrets:
                coded = secret.encode()
                value = value.replace(coded, HIDDEN.encode()) if coded in value else value
            return value
        case list() | tuple():
            parts = [_without(part, secrets) for part in value]
            same = all(part is before for part, before in zip(parts, value, strict=True))
            return value if same else parts if isinstance(value, list) else tuple(parts)
        case dict():
            pairs = [(_without(name, secrets), _without(part, secrets)) for name, part in value.items()]
            same = all(a is b and c is d for (a, c), (b, d) in zip(pairs, value.items(), strict=True))
            return value if same else dict(pairs)
        case _:
            return value
