"""The forms in which an endpoint may send back what it was sent: as it is, escaped, encoded."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import quote, unquote

from regnexe.models.addresses import credentials_in

__all__ = ["secrets_of"]

_SHORTEST = 8
"""Shorter keys are none ("none", "EMPTY", "ollama"), but words of any text."""

_SHORTEST_PASSWORD = 4


def secrets_of(key: str, address: str) -> list[str]:
    """Return the texts that tell the key, or the user and password of the address; the longest first."""
    credentials = credentials_in(address)
    found = [key] if len(key) >= _SHORTEST else []
    found += [secret for secret in (credentials, *_of_user(credentials)) if len(secret) >= _SHORTEST]
    found += [password for password in _passwords(credentials) if len(password) >= _SHORTEST_PASSWORD]
    return sorted({form for secret in found for form in _forms(secret)}, key=lambda form: (-len(form), form))


def _pairs(credentials: str) -> list[tuple[str, str, str]]:
    """Return user, colon and password: as they are in the address, and decoded."""
    given = credentials.removesuffix("@")
    if not given or any(mark in given for mark in "/?#"):  # an @ that comes after the host
        return []
    user, colon, password = given.partition(":")
    return [(user, colon, password), (unquote(user), colon, unquote(password))]


def _of_user(credentials: str) -> Iterable[str]:
    for user, colon, password in _pairs(credentials):
        yield f"{user}{colon}{password}"
        basic = f"{user}:{password}".encode()  # RFC 7617
        for coded in (b64encode(basic), b64encode(basic, altchars=b"-_")):
            yield coded.decode()
            yield coded.decode().rstrip("=")


def _passwords(credentials: str) -> Iterable[str]:
    for user, colon, password in _pairs(credentials):
        # A user without a password is a token.
        if password:
            yield password
        elif not colon and len(user) >= _SHORTEST:
            yield user


def _forms(secret: str) -> Iterable[str]:
    yield secret
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield escaped.replace("/", "\\/")
    yield html.escape(secret)
    for safe in ("", "/", ":@", _IN_USER_INFO):
        coded = quote(secret, safe=safe, errors="replace")
        yield coded
        yield _lower_hex(coded)


_IN_USER_INFO = "!$&'()*+,;=:"  # RFC 3986


def _lower_hex(coded: str) -> str:
    first, *others = coded.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in others)])
