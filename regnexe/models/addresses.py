"""Addresses of APIs: which are none, and how they are shown."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

__all__ = ["credentials_in", "fault_of", "shown"]


def fault_of(address: str) -> str | None:
    """Return what is wrong with the address of an API, None when requests can be sent there."""
    if not address.lower().startswith(("http://", "https://")):
        return "must begin with https:// or http://"
    if not address.isprintable() or " " in address:
        return "must have no spaces or control characters in it"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        if host:
            host.encode("idna")
    except ValueError:  # UnicodeError, of a host's parts that are empty or too long, is one too
        return "must be an address such as https://host:8080/v1"
    if not host:
        return "must name a host"
    return "must have a port from 1 to 65535, or none" if port == 0 else None


def credentials_in(address: str) -> str:
    """Return the `user:password@` of an address, also of one that is malformed; "" when there is none."""
    before, at, _ = address.rpartition("@")
    return _without_scheme(before) + at


def shown(address: str) -> str:
    """Return the address for people: without user, password and query, which may be secret."""
    before, at, after = address.rpartition("@")
    scheme = before.removesuffix(_without_scheme(before)) if at else ""
    path, mark, _ = after.partition("?")
    return f"{scheme}{'***@' if at else ''}{path}{'?***' if mark else ''}"


def _without_scheme(address: str) -> str:
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*://", "", address)
