"""State channels whose stored size and cost of loading do not grow with the square of a session.

A delta channel stores what each step adds, and now and then a snapshot of the whole value; a reader folds the
additions onto the nearest snapshot. These differ from LangGraph's `DeltaChannel` in when a snapshot is due, and in that
nobody who changes what he was handed changes what a snapshot holds. What they store reads the same, so that threads
open both ways. `DeltaChannel` is in beta: this file and `warm.py` are where Regnexe leans on it, and a test says in a
sentence when it moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph._internal._typing import MISSING
from langgraph.channels.binop import _get_overwrite
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from regnexe.persistence.copies import Log, copied, rough_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from langgraph.checkpoint.base import PendingWrite

__all__ = ["AgedSnapshot", "AgingChannel", "LatestChannel", "LogChannel", "SnapshotAge", "latest"]

_UPDATES = 50  # at least so many between two snapshots, as deepagents has it
_NEVER = 1 << 62


class SnapshotAge(NamedTuple):
    """What came since a channel's last snapshot: its updates, and checkpoints."""

    updates: int = 0
    checkpoints: int = 0


class AgedSnapshot(_DeltaSnapshot):
    """A value as of a checkpoint, with what is known of it. Handed to channels; stored, it is a plain snapshot."""

    age: SnapshotAge
    log: Log | None

    @classmethod
    def of(cls, value: Any, age: SnapshotAge, log: Log | None = None) -> AgedSnapshot:
        """Return the value with its age, and the log that these messages are lent from."""
        made = cls(value)
        made.age, made.log = age, log
        return made


class LogChannel(DeltaChannel[Any]):
    """The messages: a snapshot is due when a quarter as many updates as there are messages came since the last, and 50.

    Where each update adds a message, the log grows by a third from one snapshot to the next, and all of them take four
    times the bytes of the last, whatever its length; one at every 50 updates takes n/100 times as many. Larger gaps
    would save bytes, but a cold reader goes through every checkpoint since the last snapshot. And what only
    appends, as nearly every update does, costs what it appends: the ids of the log are indexed once for each time it
    is loaded.

    Each reader gets a list of his own, of messages that all readers share. A snapshot that may be due is taken of the
    messages as they were written, where these were lent by a `WarmCheckpointer` or written in this run.
    """

    __slots__ = ("_ids", "_log", "_updates")
    _ids: set[str] | None
    _log: Log | None
    _updates: int

    def __init__(
        self, reducer: Callable[[Any, Sequence[Any]], Any], typ: type[Any] | None = None, *, snapshot_frequency: int = 1
    ) -> None:
        super().__init__(reducer, typ, snapshot_frequency=snapshot_frequency)
        self._ids = None
        self._log = None
        self._updates = 0

    @property
    def snapshot_frequency(self) -> int:
        """How many updates after a snapshot the next one is due."""
        value = getattr(self, "value", None)
        return max(_UPDATES, len(value) // 4 if isinstance(value, list) else 0)

    @snapshot_frequency.setter
    def snapshot_frequency(self, given: int) -> None:
        """Take no notice: the length of the log decides."""

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return a channel with what was stored."""
        made: Self = super().from_checkpoint(checkpoint)
        if isinstance(checkpoint, AgedSnapshot):
            made._log = checkpoint.log
            made._updates = _NEVER if checkpoint.age.checkpoints > _LONG_AGO else checkpoint.age.updates
        elif made.value == []:
            made._log = Log([])
        return made

    def copy(self) -> Self:
        """Return a channel with the same value."""
        made: Self = super().copy()
        made._log, made._updates = self._log, self._updates
        return made

    def get(self) -> Any:
        """Return the messages, in a list of the caller's own."""
        value = super().get()
        if self._log is not None and self._updates >= self.snapshot_frequency:
            self._log = self._log.lend()
            self.value = value = self._log.messages
        return list(value) if isinstance(value, list) else value

    def update(self, values: Sequence[Any]) -> bool:
        """Add what the tasks of a step wrote."""
        if not values:
            return False
        if self._append(values):
            self._log = self._log and Log(self.value, after=self._log)
        else:
            self._ids = None
            super().update(values)
            self._log = self._log and _rewritten(self._log, self.value, values)
        # LangGraph takes a snapshot of what was overwritten, in `durability="exit"` some steps later.
        self._updates = _NEVER if any(_get_overwrite(value)[0] for value in values) else self._updates + 1
        return True

    def replay_writes(self, writes: Sequence[PendingWrite]) -> None:
        """Add what was stored since the value that the channel began with."""
        if not writes:
            return
        if not self._append([value for _, _, value in writes]):
            self._ids = None
            super().replay_writes(writes)
        self._log = None

    def _append(self, values: Sequence[Any]) -> bool:
        """Append messages that are all new; False when they are not, and nothing was done."""
        log = [] if self.value is MISSING or self.value is None else self.value
        added = [message for value in values for message in (value if isinstance(value, list) else [value])]
        if not added or not all(map(_is_plain, added)) or not _are_messages(log):
            return False
        ids = {message.id for message in added}
        if self._log is None and self._ids is None:
            self._ids = {message.id for message in log}
        known: AbstractSet[str] = self._ids or set() if self._log is None else self._log.ids
        if len(ids) < len(added) or not known.isdisjoint(ids):
            return False
        if self._ids is not None:
            self._ids |= ids
        self.value = [*log, *added]
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogChannel) and other.reducer is self.reducer

    __hash__ = None  # type: ignore[assignment]


class AgingChannel(DeltaChannel[Any]):
    """A value that is seldom written: a snapshot is due, too, when the checkpoints since the last outweigh it.

    LangGraph's own channel takes one after so many updates only. A reader of a value that was written once
    then goes back through every checkpoint there is. How old the last one is a `WarmCheckpointer` says when it loads
    the channel. Each reader gets a copy.
    """

    __slots__ = ("_age", "_asked")
    _age: int
    _asked: bool

    def __init__(
        self, reducer: Callable[[Any, Sequence[Any]], Any], typ: type[Any] | None = None, *, snapshot_frequency: int = 1
    ) -> None:
        self._age = 0
        self._asked = False
        super().__init__(reducer, typ, snapshot_frequency=snapshot_frequency)

    @property
    def snapshot_frequency(self) -> int:
        """How many updates after a snapshot the next one is due."""
        if self._age >= _AGED_CHECKPOINTS and self._age >= rough_size(self.value) // _BYTES_A_CHECKPOINT:
            # LangGraph asks for each checkpoint that it stores (twice at an exit), and then takes the snapshot.
            self._asked = True
            return 0
        return self._updates_due()

    @snapshot_frequency.setter
    def snapshot_frequency(self, given: int) -> None:
        """Take no notice: size and age decide."""

    def _updates_due(self) -> int:
        value = getattr(self, "value", None)
        return max(_UPDATES, len(value)) if isinstance(value, dict) else _UPDATES

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return a channel with what was stored."""
        made: Self = super().from_checkpoint(checkpoint)
        made._age = checkpoint.age.checkpoints if isinstance(checkpoint, AgedSnapshot) else 0
        return made

    def copy(self) -> Self:
        """Return a channel with the same value, that no checkpoint will be made of."""
        made = type(self)(self.reducer, self.typ)  # `super().copy()` would ask how often
        made.key = self.key
        made.value = copied(self.value) if self.value is not MISSING else MISSING
        return made

    def get(self) -> Any:
        """Return a copy of the value."""
        return copied(super().get())

    def update(self, values: Sequence[Any]) -> bool:
        """Add what the tasks of a step wrote. LangGraph calls this in each step, with nothing too."""
        if self._asked:
            self._age, self._asked = 0, False
        return super().update([copied(value) for value in values])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgingChannel) and type(other) is type(self) and other.reducer is self.reducer

    __hash__ = None  # type: ignore[assignment]


class LatestChannel(AgingChannel):
    """One value that each write replaces; None before the first.

    LangGraph's plain field is stored with every checkpoint again (on SQLite); here the value is stored when it is
    written and when its last copy has become old.
    """

    def __init__(
        self, reducer: Callable[[Any, Sequence[Any]], Any], typ: type[Any] | None = None, *, snapshot_frequency: int = 1
    ) -> None:
        super().__init__(reducer, type(None), snapshot_frequency=snapshot_frequency)

    def _updates_due(self) -> int:
        return _NEVER  # each write holds the whole value already


# About 50 turns without tools. A checkpoint of deepagents' takes 1.3 KB on SQLite.
_AGED_CHECKPOINTS = 200
_BYTES_A_CHECKPOINT = 1_300
# LangGraph takes a snapshot of any channel after 5,000 checkpoints.
_LONG_AGO = 2_500


def latest(state: Any, writes: Sequence[Any]) -> Any:
    """The reducer of a `LatestChannel`: the last write counts."""
    return writes[-1] if writes else state


def _rewritten(log: Log, value: Any, values: Sequence[Any]) -> Log | None:
    if not isinstance(value, list) or not all(isinstance(message, BaseMessage) for message in value):
        return None
    lists = [
        overwritten if is_overwrite else one for one in values for is_overwrite, overwritten in [_get_overwrite(one)]
    ]
    written = [message for one in lists for message in (one if isinstance(one, list) else [one])]
    return Log(value, after=log, written=frozenset(map(id, written)))


def _is_plain(message: Any) -> bool:
    return isinstance(message, BaseMessage) and not isinstance(message, RemoveMessage) and bool(message.id)


def _are_messages(state: Any) -> bool:
    # What is not, a thread that a raw dict was written to, is converted from its first message on.
    return isinstance(state, list) and (not state or isinstance(state[0], BaseMessage))
