"""As much of HTTP/1.1 as a chat client needs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

__all__ = ["HttpRequest", "Responder", "read_request"]


@dataclass(frozen=True)
class HttpRequest:
    """A request line, its headers (names in lower case), and its body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Return the next request of a connection; `None` when the client has closed it, or speaks no HTTP."""
    try:
        return await _read(reader)
    except (ConnectionError, EOFError, ValueError, asyncio.LimitOverrunError):
        return None


async def _read(reader: asyncio.StreamReader) -> HttpRequest:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunked(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return HttpRequest(method, target.partition("?")[0], headers, body)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while (await reader.readline()).strip():
        pass
    return body


class Responder:
    """Writes answers to one connection.

    Attributes:
        reader: the other direction, which tells when the client leaves.
        keep_open: the connection is to serve another request after the present one.
        begun: there is something of an answer to the present request.
        done: the connection takes no further request.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.keep_open = True
        self.begun = False
        self.done = False
        self._writer = writer

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send an answer in one piece."""
        self._head(status, {**headers, "content-length": str(len(body))})
        self._writer.write(body)
        await self._writer.drain()

    def begin(self, content_type: str) -> None:
        """Send the head of an answer that comes in chunks."""
        self._head(200, {"content-type": content_type, "transfer-encoding": "chunked"})

    async def chunks(self, pieces: Iterable[bytes]) -> None:
        """Send some of the body; empty pieces are left out, for an empty chunk is the end."""
        for piece in pieces:
            if piece:
                self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await self._writer.drain()

    async def end(self) -> None:
        """Send the end of an answer that came in chunks."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def left(self) -> None:
        """Wait until the client closes the connection; it sends nothing before it has its answer."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read(1)

    def reset(self) -> None:
        """Reset the connection, so that the client reads no end but an error."""
        self.done = True
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        """Close the connection."""
        self.done = True
        self._writer.close()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.begun = True
        usual = {"server": "CW", "x-ds-trace-id": uuid.uuid4().hex}
        if not self.keep_open:
            self.done = True
            usual["connection"] = "close"
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in {**usual, **headers}.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
