"""One request and its answer."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from regnexe.testing.deepseek import faults
from regnexe.testing.deepseek.cache import PrefixCache
from regnexe.testing.deepseek.chunks import body_pieces, events, keep_alives
from regnexe.testing.deepseek.completions import Completion, complete, encoded, measure
from regnexe.testing.deepseek.errors import Refused, error_answer
from regnexe.testing.deepseek.fields import check_fields, check_json
from regnexe.testing.deepseek.history import check_history, check_reasoning
from regnexe.testing.deepseek.reply import DeepSeekRequest, ScriptedReplies

if TYPE_CHECKING:
    from regnexe.testing.deepseek.faults import Fault
    from regnexe.testing.deepseek.http import HttpRequest, Responder
    from regnexe.testing.deepseek.reply import Script
    from regnexe.testing.deepseek.rules import Rules, Wire

__all__ = ["Exchange"]

CHAT_PATHS = ("/chat/completions", "/v1/chat/completions", "/beta/chat/completions")
MODEL_PATHS = ("/models", "/v1/models", "/beta/models")
JSON = {"content-type": "application/json"}
GARBAGE = b'{"id": "0", "choices": [{"index": 0, '


class State:
    """What a test may look at from another thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[DeepSeekRequest] = []
        self._errors: list[Exception] = []
        self.held = 0
        self.disconnects = 0

    @property
    def requests(self) -> list[DeepSeekRequest]:
        with self._changed:
            return list(self._requests)

    @property
    def errors(self) -> list[Exception]:
        with self._changed:
            return list(self._errors)

    def record(self, request: HttpRequest) -> DeepSeekRequest:
        """Keep a chat request, and return it as the server reads it."""
        body = _parsed(request.body)
        with self._changed:
            recorded = DeepSeekRequest(request.path, request.headers, body, request.body, len(self._requests))
            self._requests.append(recorded)
            self._changed.notify_all()
        return recorded

    def fail(self, error: Exception) -> None:
        """Keep what a script raised."""
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    def hold(self, change: int) -> None:
        """Count a request that begins or ends to be held."""
        with self._changed:
            self.held += change
            self._changed.notify_all()

    def disconnected(self) -> None:
        """Count a client that left."""
        with self._changed:
            self.disconnects += 1
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Return whether the condition came to hold in time."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)


class FaultQueue:
    """The faults to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Fault, Callable[[DeepSeekRequest], bool] | None]] = []

    def add(self, fault: Fault, times: int, when: Callable[[DeepSeekRequest], bool] | None) -> None:
        """Add a fault, so many times."""
        with self._lock:
            self._waiting += [(fault, when)] * times

    def next(self, request: DeepSeekRequest) -> Fault:
        """Take the first fault that is for this request; one that does nothing if there is none."""
        with self._lock:
            for index, (fault, when) in enumerate(self._waiting):
                if when is None or when(request):
                    del self._waiting[index]
                    return fault
        return faults.Fault()


class Exchange:
    """Answers requests, by the script, the rules and the faults."""

    def __init__(self, replies: Script | None, keys: Collection[str] | None, rules: Rules, wire: Wire) -> None:
        self.rules = rules
        self.wire = wire
        self.state = State()
        self.faults = FaultQueue()
        self._keys = keys
        self._replies = ScriptedReplies(replies)
        self._cache = PrefixCache()
        self._holds: set[asyncio.Event] = set()
        self._running = 0

    def release(self) -> None:
        """Let go on what is held; on the server's loop."""
        for event in self._holds:
            event.set()

    async def answer(self, request: HttpRequest, responder: Responder) -> None:
        """Answer one request."""
        responder.keep_open = self.wire.keep_open
        if request.method == "POST" and request.path in CHAT_PATHS:
            await self._chat(request, responder)
        elif request.method == "GET" and request.path in MODEL_PATHS:
            names = [{"id": name, "object": "model", "owned_by": "deepseek"} for name in self.rules.models]
            await responder.whole(200, JSON, encoded({"object": "list", "data": names}))
        else:
            answer = error_answer(404, f"Not Found: {request.method} {request.path}")
            await responder.whole(answer.status, answer.headers, answer.body)

    async def _chat(self, http_request: HttpRequest, responder: Responder) -> None:
        request = self.state.record(http_request)
        fault = self.faults.next(request)
        if fault.breaks in ("reset", "close"):
            return responder.reset() if fault.breaks == "reset" else responder.close()
        responder.begun = False
        self._running += 1
        try:
            await self._complete(request, fault, responder)
        except ConnectionError:
            self.state.disconnected()
            responder.close()
        except Exception as error:
            self.state.fail(error)
            await self._own_error(error, responder)
        finally:
            self._running -= 1

    async def _own_error(self, error: Exception, responder: Responder) -> None:
        """Say what went wrong in the script, or in a function of the rules; what has begun can only be broken off."""
        if responder.begun:
            responder.close()
        else:
            answer = error_answer(418, f"{type(error).__name__}: {error}", "script_error", code=None)
            await responder.whole(answer.status, answer.headers, answer.body)

    async def _complete(self, request: DeepSeekRequest, fault: Fault, responder: Responder) -> None:
        try:
            completion = await self._completion(request, fault, responder)
        except Refused as refused:
            answer = refused.answer
            await responder.whole(answer.status, answer.headers, answer.body)
        else:
            if completion is not None:
                await self._send(completion, request, fault, responder)

    async def _completion(self, request: DeepSeekRequest, fault: Fault, responder: Responder) -> Completion | None:
        """Return the answer; `None` when the client left while it was held."""
        if fault.error is not None:
            raise Refused(fault.error)
        self._check_access(request)
        check_json(request)
        if self.rules.vendor == "deepseek":
            check_fields(request, self.rules)
            check_history(request.messages)
            check_reasoning(request, self.rules)
        measured = measure(request, self.rules, self._cache)
        if fault.breaks == "hold" and not fault.after and not await self._hold(responder):
            return None
        reply = await self._replies.next(request)
        reply = fault.reshape(reply) if fault.reshape else reply
        return complete(request, reply, self.rules, self._cache, measured)

    def _check_access(self, request: DeepSeekRequest) -> None:
        limit = self.rules.concurrency
        if self.rules.body_limit is not None and len(request.raw) > self.rules.body_limit:
            raise Refused(faults.too_large())
        if not request.api_key:
            raise Refused(faults.bad_header())
        if self._keys is not None and request.api_key not in self._keys:
            raise Refused(faults.unauthorized(request.api_key))
        if limit is not None and self._running > limit:
            raise Refused(faults.rate_limited(self._running, limit))

    async def _send(self, completion: Completion, request: DeepSeekRequest, fault: Fault, responder: Responder) -> None:
        wire = self.wire
        rng = None if wire.seed is None else random.Random(f"{wire.seed}:{request.number}")
        if request.stream:
            usage = request.include_usage or wire.usage_unasked
            parts = events(completion, wire, usage=usage, rng=rng)
            content_type = "text/event-stream"
        else:
            body = completion.body()
            parts = [body[: len(body) // 2], body[len(body) // 2 :]]
            content_type = "application/json"
        before, after = parts[: fault.after], parts[fault.after :]
        responder.begin(content_type)
        await responder.chunks(body_pieces(keep_alives(wire, stream=request.stream), wire, rng))
        await responder.chunks(_cut(before, wire, rng))
        if fault.breaks == "hold" and fault.after and not await self._hold(responder):
            return
        if fault.breaks == "cut":
            return await responder.end() if fault.clean else responder.close()
        if fault.breaks == "garble":
            after = [b"data: " + GARBAGE + b"\n\n", *after[1:]] if request.stream else [GARBAGE]
        await responder.chunks(_cut(after, wire, rng))
        await responder.end()

    async def _hold(self, responder: Responder) -> bool:
        """Wait for the release; return whether the client is still there."""
        released = asyncio.Event()
        self._holds.add(released)
        self.state.hold(1)
        tasks = [asyncio.ensure_future(released.wait()), asyncio.ensure_future(responder.left())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # else it still reads when the next request is read
            self._holds.discard(released)
            self.state.hold(-1)
        if released.is_set():
            return True
        self.state.disconnected()
        responder.close()
        return False


def _cut(parts: list[bytes], wire: Wire, rng: random.Random | None) -> list[bytes]:
    if rng:
        return body_pieces(b"".join(parts), wire, rng)
    return [piece for part in parts for piece in body_pieces(part, wire, rng)]


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
