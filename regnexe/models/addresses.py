"""Addresses of APIs: which are none, and how they are shown."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

__all__ = ["credentials_in", "fault_of", "shown"]

_NONE = "must be an address such as https://host:8080/v1"
_HOST = re.compile(rb"[A-Za-z0-9._-]+")
_LONGEST = 65_000  # the client takes 65,536, with what it adds for each request
_SHOWN = 200


def fault_of(address: str) -> str | None:
    """Return what is wrong with the address of an API, None when requests can be sent there."""
    if not address.lower().startswith(("http://", "https://")):
        return "must begin with https:// or http://"
    if not address.isprintable() or " " in address:
        return "must have no spaces or control characters in it"
    if len(address) > _LONGEST:
        return f"must have at most {_LONGEST} characters"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        if host:
            host.encode("idna")
    except ValueError:  # UnicodeError, of a host's parts that are empty or too long, is one too
        return _NONE
    if not host:
        return "must name a host"
    return "must have a port from 1 to 65535, or none" if port == 0 else _fault_for_the_client(address)


def _fault_for_the_client(address: str) -> str | None:
    from httpx2 import URL, InvalidURL  # what `openai` sends requests with; slow to load

    try:
        url = URL(address)
        url = url.copy_with(raw_path=url.raw_path.rstrip(b"/") + b"/chat/completions")
    except InvalidURL:
        return _NONE
    # It takes any character in a host, and fails when it connects.
    return None if ":" in url.host or _HOST.fullmatch(url.raw_host) else _NONE


def credentials_in(address: str) -> str:
    """Return the `user:password@` of an address, also of one that is malformed; "" when there is none."""
    before, at, _ = address.rpartition("@")
    return _without_scheme(before) + at


def shown(address: str) -> str:
    """Return the address for people: without user, password, query and fragment, which may be secret."""
    before, at, after = address.rpartition("@")
    scheme = before.removesuffix(_without_scheme(before)) if at else ""
    path, mark = after, ""
    if found := re.search(r"[?#]", after):
        path, mark = after[: found.start()], f"{found[0]}***"
    text = f"{scheme}{'***@' if at else ''}{path}"
    return (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…") + mark


def _without_scheme(address: str) -> str:
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*://", "", address)
