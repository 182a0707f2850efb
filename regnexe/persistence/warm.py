"""A checkpointer that remembers what it has read, so that loading a long session costs what is new in it.

LangGraph rebuilds the messages of a thread at the beginning of each run, from a snapshot and all that was written
since. This saver wraps the user's and keeps the rebuilt values with the id of their checkpoint. The newest checkpoint
is always read from the wrapped saver; from there it goes back to a checkpoint it remembers, and folds what lies
between. It believes only what it reads: of two writers that race for a step the wrapped saver keeps one, and neither
knows which.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from regnexe.persistence.channels import AgedSnapshot, LatestChannel, SnapshotAge
from regnexe.persistence.folds import Fold, FoldCache, ThreadFolds, Value, fold_of
from regnexe.persistence.wrapped import WrappedCheckpointer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        PendingWrite,
    )

    from regnexe.persistence.copies import Log

__all__ = ["WarmCheckpointer"]

# How far back a remembered checkpoint may lie: further, and reading the nearest snapshot is no slower.
_LONGEST_WALK = 256
# A turn with one tool call makes five checkpoints.
_PAGE = 16


class WarmCheckpointer(WrappedCheckpointer):
    """A saver on the same data as the wrapped one, that remembers the values of delta channels.

    It reads and writes what the wrapped one does. Who changes a message in place that was read through it changes
    neither what a later read gives nor what is stored. A change to an equal value (from 1 to True) goes unnoticed, and
    another run of the thread that is in flight was handed the same messages.

    A writer elsewhere that adds to a checkpoint in the past, and ends before it makes a checkpoint, goes unnoticed
    until the thread is read anew: leases keep out second writers.
    """

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        channels: Mapping[str, Any],
        *,
        cache: FoldCache | None = None,
    ) -> None:
        """Wrap a saver.

        Args:
            saver: the saver to wrap.
            channels: the channels of the graph that it serves, by name, as in `graph.channels`. Those that are no
                delta channels, and the namespaces of sub-agents, are passed through.
            cache: where to remember; shared between savers on the same data.
        """
        super().__init__(saver)
        self._channels = {name: channel for name, channel in channels.items() if isinstance(channel, DeltaChannel)}
        self._plain = [name for name, channel in channels.items() if isinstance(channel, LatestChannel)]
        self._cache = FoldCache() if cache is None else cache

    def changed(self, thread_id: str | None) -> None:
        """Forget a thread, or all."""
        self._cache.forget(thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, as stored; a snapshot in it is remembered."""
        found = await self._saver.aget_tuple(config)
        if found is None or not any(
            isinstance(found.checkpoint["channel_values"].get(n), _DeltaSnapshot) for n in self._channels
        ):
            return found
        return await self._with_copies_of_snapshots(found)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. What a plain field of deepagents' holds is stored so that one reads it."""
        values = checkpoint["channel_values"]
        if plain := {n: values[n].value for n in self._plain if isinstance(values.get(n), _DeltaSnapshot)}:
            checkpoint = {**checkpoint, "channel_values": {**values, **plain}}
        return await self._saver.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote. Of a writer that is behind what is known, what is known goes out of date."""
        await self._saver.aput_writes(config, writes, task_id, task_path)
        thread_id, checkpoint_id = _named(config)
        known = self._cache.get(thread_id) if checkpoint_id else None
        if known is not None and checkpoint_id and checkpoint_id < known.checkpoint_id:
            self._cache.forget(thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the wrapped saver does, with the values of known channels already folded."""
        thread_id, checkpoint_id = _named(config)
        ours = [name for name in channels if name in self._channels] if checkpoint_id else []
        others = [name for name in channels if name not in ours]
        found: dict[str, DeltaChannelHistory] = {}
        if others:
            found.update(await self._saver.aget_delta_channel_history(config=config, channels=others))
        if ours and checkpoint_id:
            known = self._cache.get(thread_id)
            folds = await self._folds_at(config, thread_id, checkpoint_id, ours)
            for name in ours:
                seed = _snapshot(folds.folds[name], folds.ages[name], looked_at=folds is not known)
                found[name] = {"seed": seed, "writes": []}
        return found

    async def _folds_at(
        self, config: RunnableConfig, thread_id: str, checkpoint_id: str, channels: Sequence[str]
    ) -> ThreadFolds:
        """Return the values of these channels at a checkpoint, and remember them."""
        known = self._cache.get(thread_id)
        if known is not None and known.checkpoint_id == checkpoint_id and set(channels) <= set(known.folds):
            return known
        trail = None if known is None else await self._trail(config, checkpoint_id, known.checkpoint_id)
        folds: dict[str, Fold] = {}
        head: CheckpointTuple | None
        if known is not None and trail is not None:
            head = trail[0]
            for name in channels:
                if (fold := self._folded(name, known, trail)) is not None:
                    folds[name] = fold
        else:
            head = await self._saver.aget_tuple(config)
        if missing := [name for name in channels if name not in folds]:
            stored = await self._saver.aget_delta_channel_history(config=config, channels=missing)
            folds.update({name: self._fold(name, stored[name], None) for name in missing})
        ages = _ages(head, channels)
        if known is not None and known.checkpoint_id == checkpoint_id:
            folds, ages = {**known.folds, **folds}, {**known.ages, **ages}
        made = ThreadFolds(checkpoint_id=checkpoint_id, folds=folds, ages=ages)
        self._cache.put(thread_id, made)
        return made

    async def _trail(self, config: RunnableConfig, newest: str, oldest: str) -> list[CheckpointTuple] | None:
        """Return the checkpoints from one back to another, or None when the newest ones do not lead there in one line.

        A checkpoint beside the line is the trace of a second writer, who may have added to what lies on it. Then,
        as for a checkpoint in the past, all is read anew.
        """
        if newest <= oldest:
            return None
        trail: list[CheckpointTuple] = []
        expected: str | None = newest
        before: RunnableConfig | None = None
        # A saver may ask for keys of its own.
        thread: RunnableConfig = {
            "configurable": {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}
        }
        while expected is not None and len(trail) < _LONGEST_WALK:
            page = self._saver.alist(thread, before=before, limit=_PAGE)
            length = len(trail)
            async with aclosing(cast("Any", page)) as checkpoints:
                async for found in checkpoints:
                    if found.checkpoint["id"] != expected:
                        return None
                    trail.append(found)
                    if expected == oldest:
                        return trail
                    expected = _parent(found)
            if len(trail) == length:
                return None
            before = trail[-1].config
        return None

    def _folded(self, name: str, known: ThreadFolds, trail: Sequence[CheckpointTuple]) -> Fold | None:
        """Fold what the trail wrote to a channel onto what is known at its end; None when that is not known."""
        seed: Any = None
        writes: list[PendingWrite] = []
        for found in trail[1:]:
            writes += [write for write in reversed(found.pending_writes or []) if write[1] == name]
            if name in found.checkpoint["channel_values"]:
                seed = found.checkpoint["channel_values"][name]
                break
        writes.reverse()
        if seed is not None:
            return self._fold(name, {"seed": seed, "writes": writes}, None)
        if name in known.folds:
            seed = _snapshot(known.folds[name], SnapshotAge())
            return self._fold(name, {"seed": seed, "writes": writes}, seed.log)
        if name in trail[-1].checkpoint["channel_versions"]:
            return None
        return self._fold(name, {"writes": writes}, None)

    def _fold(self, name: str, history: DeltaChannelHistory, after: Log | None) -> Fold:
        channel = self._channels[name].from_checkpoint(history.get("seed"))
        channel.replay_writes(history["writes"])
        return fold_of(channel.get(), after=after)

    async def _with_copies_of_snapshots(self, found: CheckpointTuple) -> CheckpointTuple:
        """Remember the snapshots of a checkpoint, and return it with copies of them."""
        thread_id, checkpoint_id = _named(found.config)
        if not checkpoint_id:
            return found
        values, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
        folds = {n: fold_of(values[n].value) for n in self._channels if isinstance(values.get(n), _DeltaSnapshot)}
        ages = _ages(found, list(folds))
        copies = {name: _snapshot(fold, ages[name]) for name, fold in folds.items()}
        known = self._cache.get(thread_id)
        if known is not None and known.checkpoint_id <= checkpoint_id:
            # What is known of the others is carried on to this checkpoint, and not dropped with the old one.
            others = [name for name in known.folds if name in versions and name not in values]
            if others:
                carried = await self._folds_at(found.config, thread_id, checkpoint_id, others)
                folds, ages = {**carried.folds, **folds}, {**carried.ages, **ages}
        self._cache.put(thread_id, ThreadFolds(checkpoint_id=checkpoint_id, folds=folds, ages=ages))
        return found._replace(checkpoint={**found.checkpoint, "channel_values": {**values, **copies}})


def _named(config: RunnableConfig) -> tuple[str, str | None]:
    """Return the thread and the checkpoint that a config names; no checkpoint inside a sub-agent's namespace."""
    configurable = config["configurable"]
    inside = configurable.get("checkpoint_ns", "")
    return str(configurable["thread_id"]), None if inside else configurable.get("checkpoint_id")


def _parent(found: CheckpointTuple) -> str | None:
    return found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None


def _ages(head: CheckpointTuple | None, channels: Sequence[str]) -> dict[str, SnapshotAge]:
    """Return what came since each channel's last snapshot, as the newest checkpoint has counted."""
    counters: Mapping[str, Any] = (head.metadata if head else {}).get("counters_since_delta_snapshot") or {}
    return {name: SnapshotAge(*counters.get(name, ())) for name in channels}


def _snapshot(fold: Fold, age: SnapshotAge, *, looked_at: bool = False) -> AgedSnapshot:
    if isinstance(fold, Value):
        return AgedSnapshot.of(fold.value(), age)
    lent = fold.lend(looked_at=looked_at)
    return AgedSnapshot.of(list(lent.messages), age, lent)
