"""A local HTTP server that speaks DeepSeek's chat-completions format."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from regnexe.testing.deepseek.exchange import Exchange
from regnexe.testing.deepseek.faults import Fault
from regnexe.testing.deepseek.http import Responder, read_request
from regnexe.testing.deepseek.reply import DeepSeekRequest, Script
from regnexe.testing.deepseek.rules import Rules, Wire

__all__ = ["DeepSeekServer"]


class DeepSeekServer:
    """DeepSeek's chat-completions API on 127.0.0.1, for tests of code that talks to it over HTTP.

    The replies come from a script: a sequence, or a function of the request that returns one; it runs
    on the server's own event loop, so it must not block, and it may be asynchronous. Without a script
    every answer is `ok`. A request that DeepSeek refuses gets DeepSeek's error, and uses up no reply. A
    script with no reply left, or one that raises, gives status 418, which no client tries again, and
    the error is added to `errors`.

    The server runs in a thread, from `start` or the beginning of a `with` or `async with` block to
    `close` or the end of the block:

        with DeepSeekServer(["Hello!"]) as server:
            model = ChatDeepSeek(model="deepseek-flash", api_key="sk-test", api_base=server.base_url)

    Attributes:
        rules: what is demanded of a request.
        wire: how the answers are put on the wire.
        errors: what the script raised.
    """

    def __init__(
        self,
        replies: Script | None = None,
        *,
        keys: Collection[str] | None = None,
        rules: Rules | None = None,
        wire: Wire | None = None,
    ) -> None:
        """Take the script, the valid API keys (any, if not given), and how the server behaves."""
        self._exchange = Exchange(replies, keys, rules or Rules(), wire or Wire())
        self._port = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    @property
    def rules(self) -> Rules:
        """What is demanded of a request; set it to change it for the requests that follow."""
        return self._exchange.rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        self._exchange.rules = rules

    @property
    def wire(self) -> Wire:
        """How the answers are put on the wire; set it to change it for the requests that follow."""
        return self._exchange.wire

    @wire.setter
    def wire(self, wire: Wire) -> None:
        self._exchange.wire = wire

    @property
    def root_url(self) -> str:
        """The address without a version, such as `http://127.0.0.1:40001`."""
        if not self._port:
            raise RuntimeError("the server is not running; use it in a with block, or call start()")
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """The address that a client is given, with `/v1` at its end."""
        return f"{self.root_url}/v1"

    @property
    def requests(self) -> list[DeepSeekRequest]:
        """Every chat request so far, the refused ones too, oldest first."""
        return self._exchange.state.requests

    @property
    def errors(self) -> list[Exception]:
        """What the script raised, oldest first."""
        return self._exchange.state.errors

    @property
    def held(self) -> int:
        """How many requests a `Fault.hold` holds now."""
        return self._exchange.state.held

    @property
    def disconnects(self) -> int:
        """How many clients left before they had their answer."""
        return self._exchange.state.disconnects

    def fail_next(self, fault: Fault, times: int = 1, *, when: Callable[[DeepSeekRequest], bool] | None = None) -> None:
        """Let the next requests fail so; with `when`, the next ones for which it returns true.

        Faults are used up in the order in which they were added.
        """
        self._exchange.faults.add(fault, times, when)

    def release(self) -> None:
        """Let every request that is held now go on; one that comes to its hold later waits again."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._exchange.release)

    def wait_until(self, condition: Callable[[DeepSeekServer], bool], timeout: float = 10) -> None:
        """Block until the condition holds, such as `lambda server: server.held == 2`.

        On an event loop, call it with `asyncio.to_thread`.

        Raises:
            TimeoutError: it does not hold after so many seconds.
        """
        if not self._exchange.state.wait_for(lambda: condition(self), timeout):
            raise TimeoutError(f"the condition does not hold after {timeout} seconds")

    def start(self) -> Self:
        """Start the server, and return it."""
        if self._thread is not None:
            raise RuntimeError("the server is running already, or has been closed")
        started: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), daemon=True)
        self._thread.start()
        self._port = started.result()
        return self

    def close(self) -> None:
        """Stop the server, and break what it still answers; harmless when it is not running."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._loop = None
        self._port = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    async def _run(self, started: Future[int]) -> None:
        open_now: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(reader, writer))
            open_now.add(task)
            task.add_done_callback(open_now.discard)

        try:
            server = await asyncio.start_server(connected, "127.0.0.1", 0)
        except Exception as error:
            started.set_exception(error)
            return
        self._loop = asyncio.get_running_loop()
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        responder = Responder(reader, writer)
        try:
            while not responder.done and (request := await read_request(reader)):
                await self._exchange.answer(request, responder)
        except asyncio.CancelledError:
            writer.transport.abort()  # a close would wait for a client that does not read
            raise
        finally:
            writer.close()
