"""Two things about the `openai` client, which serves every vendor with an OpenAI-compatible API.

It fills what it is not given from `OPENAI_API_KEY`, `OPENAI_ADMIN_KEY`, `OPENAI_ORG_ID`,
`OPENAI_PROJECT_ID`, `OPENAI_WEBHOOK_SECRET`, `OPENAI_BASE_URL` and `OPENAI_CUSTOM_HEADERS`. Key and address
are always given to it; the rest has no argument that says "none", so it is taken out again here. The header
fields have private names; a contract test says so if they move.

And its asynchronous form keeps connections, each of which works only on the event loop that opened it: a
model that serves a second `asyncio.run` fails with "Event loop is closed". Here each loop has its own.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import openai

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from httpx2 import AsyncClient, Request, Response

__all__ = ["forget_openai_settings", "on_every_loop"]


def forget_openai_settings(client: Any, headers: Mapping[str, str] | None) -> None:
    """Take out of an `openai` client what it read from OpenAI's variables; `headers` are those it was given."""
    client.organization = None
    client.project = None
    client.admin_api_key = None
    client.webhook_secret = None
    client._custom_headers = dict(headers or {})
    client._ambient_authorizations = frozenset()


def on_every_loop(client: openai.AsyncOpenAI, *, proxy: str | None = None) -> openai.AsyncOpenAI:
    """Return a client with the same settings that serves any number of event loops, through the proxy if given."""
    return client.copy(http_client=_ClientOfEachLoop(proxy))


class _ClientOfEachLoop(openai.DefaultAsyncHttpxClient):
    """Sends each request with a client of the running loop, whose connections are closed with the loop."""

    def __init__(self, proxy: str | None) -> None:
        # It never connects itself, and authorities are slow to load.
        super().__init__(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self._proxy_address = proxy
        self._clients: dict[asyncio.AbstractEventLoop, tuple[AsyncClient, AsyncGenerator[None]]] = {}

    async def send(self, request: Request, **options: Any) -> Response:
        """Send the request, and return what comes back."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for known in [known for known in list(self._clients) if known.is_closed()]:
                self._clients.pop(known, None)
            client = openai.DefaultAsyncHttpxClient(proxy=self._proxy_address)
            end = _closed_at_the_end(client)
            self._clients[loop] = (client, end)
            await anext(end)
        return await self._clients[loop][0].send(request, **options)

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        await super().aclose()
        if known := self._clients.pop(asyncio.get_running_loop(), None):
            await known[1].aclose()


async def _closed_at_the_end(client: AsyncClient) -> AsyncGenerator[None]:
    # A loop that shuts down first closes the asynchronous generators that began on it.
    try:
        yield
    finally:
        await client.aclose()
