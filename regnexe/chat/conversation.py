"""One conversation in the chat: which session it is in, one message and its answer, and what is stored."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regnexe.chat.printer import RunPrinter, error_text, waiting
from regnexe.errors import PendingApprovalError
from regnexe.identity import SessionKey
from regnexe.results import RunStatus
from regnexe.terminal import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import FrameType

    from langchain_core.messages import BaseMessage

    from regnexe.agent import RegnexeAgent
    from regnexe.chat.screen import Screen
    from regnexe.events import LlmStart
    from regnexe.runtime.stream import RunStream

__all__ = ["Conversation"]

# How long after the second Ctrl-C a third one counts, so that a quick burst does not end the program.
_SECONDS_TO_THINK = 0.5


@dataclass(kw_only=True)
class Conversation:
    """What the chat knows while it goes on.

    Attributes:
        agent: who answers.
        screen: where to print.
        key: the session that the next message goes to.
        db: the file, None when sessions are in memory.
        sent: for each of them the agent's last model call, as it was sent.
        ended: whether the user has asked to leave.
        stopped: whether Ctrl-C has stopped the run.
        failed: whether something that a line asked for was not done.
    """

    agent: RegnexeAgent
    screen: Screen
    key: SessionKey
    db: Path | None = None
    sent: dict[SessionKey, LlmStart] = field(default_factory=dict)
    ended: bool = False
    stopped: bool = False
    failed: bool = False

    async def answer(self, text: str) -> None:
        """Send the text, show what happens, and end with the run; an error is printed."""
        printer = RunPrinter(self.screen)
        key = self.key
        stream = self.agent.astream(text, app_id=key.app_id, user_id=key.user_id, session_id=key.session_id)
        try:
            with self._stopped_by_ctrl_c(stream):
                async with stream:
                    async for event in stream:
                        printer.show(event)
            printer.finish(stream.result)
            if stream.result.status is not RunStatus.COMPLETED:
                self.failed = True
            if stream.result.status is RunStatus.INTERRUPTED:
                self.say_waiting(waiting(pending.value for pending in stream.result.pending))
        except PendingApprovalError:
            _, pending = await self.stored_log()
            self.say_waiting(pending)
            self.failed = True
        except asyncio.CancelledError:
            if not self.stopped:
                raise
            self.screen.line("stopped before it began; nothing was stored", style="yellow")
        except Exception as error:
            self.fail("the run failed:", error_text(error))
        finally:
            self.screen.settle()
            if printer.sent is not None:
                self.sent[key] = printer.sent

    def fail(self, what: str, why: str = "") -> None:
        """Say in one line that something was not done."""
        self.failed = True
        self.screen.line(f"{self.screen.marks.failed} {what}", why, "red")

    async def stored_log(self) -> tuple[Sequence[BaseMessage], list[str]]:
        """Return the session's log, and what waits for a decision in it."""
        state = await self.agent.graph.aget_state({"configurable": {"thread_id": self.key.thread_id}})
        messages: Sequence[BaseMessage] = state.values.get("messages", ())
        return messages, waiting(interrupt.value for interrupt in state.interrupts)

    def say_waiting(self, pending: Sequence[str]) -> None:
        """Say what waits for a decision, and that it can't be given here."""
        for one in pending:
            self.screen.line("? waits for a decision:", one, "yellow")
        self.screen.say(
            f"Deciding is not possible here yet, and until then this session takes no messages ({self.key}). "
            "/new starts another.",
            "yellow",
        )

    async def say_where(self) -> None:
        """Say which session this is, and what it holds."""
        messages, pending = await self.stored_log()
        holds = f"which holds {count(len(messages), 'message')}" if messages else "a new one"
        self.screen.say(f"Session {self.key.session_id}, {holds} (app {self.key.app_id}, user {self.key.user_id}).")
        if pending:
            self.say_waiting(pending)

    @contextlib.contextmanager
    def _stopped_by_ctrl_c(self, stream: RunStream) -> Iterator[None]:
        """Let Ctrl-C stop the run; a run that does not let go can be left together with the program."""
        loop = asyncio.get_running_loop()
        closing: list[asyncio.Task[None]] = []
        warned = 0.0

        def stop() -> None:
            closing.append(loop.create_task(stream.aclose()))

        def pressed(number: int, frame: FrameType | None) -> None:
            nonlocal warned
            if not self.stopped:
                self.stopped = True
                loop.call_soon_threadsafe(stop)
            elif not warned:
                warned = time.monotonic()
                # Nothing that buffers: this may have interrupted a write.
                os.write(2, b"\nThe run is being stopped. Ctrl-C once more leaves the program at once.\n")
            elif time.monotonic() - warned > _SECONDS_TO_THINK:
                os._exit(128 + number)

        before = signal.signal(signal.SIGINT, pressed)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
