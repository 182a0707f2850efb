"""A listener that keeps what it hears."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from regnexe.listeners import AbstractEventListener

if TYPE_CHECKING:
    from regnexe.events import Event, EventType

__all__ = ["RecordingListener"]

E = TypeVar("E")


class RecordingListener(AbstractEventListener):
    """Keeps every event in `events`, in the order they came."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        """Keep one event."""
        self.events.append(data)

    @property
    def types(self) -> list[EventType]:
        """The kinds of the events, in order."""
        return [event.type for event in self.events]

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one class, in order."""
        return [event for event in self.events if isinstance(event, kind)]
