"""Keeps keys out of exceptions: endpoints send them back, and clients put what was sent into their errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

__all__ = ["cleaned", "without"]

HIDDEN = "***"


def cleaned(error: Exception, secrets: Iterable[str]) -> Exception:
    """Return the error with no secret in its texts, nor in those of what caused it.

    It is the same object, changed, unless it cannot be changed: then a `RuntimeError` with its text. A cause
    that cannot be changed is left out.
    """
    hidden = [secret for secret in secrets if secret]
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
    return RuntimeError(without(f"{type(error).__name__}: {_text(error)}", hidden))


def _linked(error: BaseException) -> list[BaseException]:
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [linked for linked in (error.__cause__, error.__context__, *inside) if linked is not None]


def _tells(error: BaseException, secrets: Sequence[str]) -> bool:
    try:
        told = f"{error!s} {error!r}"
        if isinstance(error, ValidationError):
            told += repr(error.errors())
    except Exception:  # an error that cannot say what it is, and so tells nothing
        return False
    return any(secret in told for secret in secrets)


def _text(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    # Its own text quotes what it was given, shortened in the middle: a secret in part.
    found = error.errors(include_input=False, include_url=False, include_context=False)
    faults = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
    return f"{len(found)} validation error{'s' if len(found) > 1 else ''} for {error.title}: {faults}"


def _clean(error: BaseException, secrets: Sequence[str]) -> None:
    error.args = without(error.args, secrets)
    # Not `vars`: what comes from C (the bytes of a UnicodeDecodeError, say) is not among them.
    for name in [name for name in dir(error) if not name.startswith("_") or name == "__notes__"]:
        with suppress(Exception):  # a property that fails, or that cannot be set
            value = getattr(error, name)
            if (clean := without(value, secrets)) is not value:
                setattr(error, name, clean)
            _clean_exchange(value, secrets)


def _clean_exchange(value: Any, secrets: Sequence[str]) -> None:
    """Take the secrets out of the HTTP request or response that an error holds; it was sent, and is over."""
    headers = getattr(value, "headers", None)
    if headers is None or isinstance(value, str):
        return
    for name, text in list(headers.items()):
        if (clean := without(text, secrets)) is not text:
            headers[name] = clean
    extensions = getattr(value, "extensions", None)  # the reason phrase, with others
    if (clean := without(extensions, secrets)) is not extensions:
        value.extensions = clean
    _clean_body(value, secrets)
    _clean_address(value, secrets)
    for before in getattr(value, "history", ()):
        _clean_exchange(before, secrets)
    for other in ("request", "next_request"):
        with suppress(Exception):  # a response that came without a request says so by raising
            _clean_exchange(getattr(value, other), secrets)


def _clean_body(value: Any, secrets: Sequence[str]) -> None:
    body = getattr(value, "_content", None)
    if isinstance(body, bytes) and (clean := without(body, secrets)) is not body:
        value._content = clean
        with suppress(AttributeError):
            del value._text  # made of the body when it was first asked for


def _clean_address(value: Any, secrets: Sequence[str]) -> None:
    with suppress(Exception):  # a response has the address of its request, or none
        address = value.url
        if without(str(address), secrets) != str(address):
            bare = address.copy_with(userinfo=b"")
            value.url = type(address)(without(str(bare), secrets))


def without(value: Any, secrets: Sequence[str]) -> Any:
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
            parts = [without(part, secrets) for part in value]
            same = all(part is before for part, before in zip(parts, value, strict=True))
            return value if same else parts if isinstance(value, list) else tuple(parts)
        case dict():
            pairs = [(without(name, secrets), without(part, secrets)) for name, part in value.items()]
            same = all(a is b and c is d for (a, c), (b, d) in zip(pairs, value.items(), strict=True))
            return value if same else dict(pairs)
        case _:
            return value
