"""A checkpointer that passes every call on to another one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Self, cast

from langgraph.checkpoint.base import BaseCheckpointSaver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )

__all__ = ["WrappedCheckpointer"]

# LangGraph finds out what a saver can do by looking for these on its class.
_OPTIONAL = ("copy_thread", "acopy_thread", "delete_for_runs", "adelete_for_runs", "prune", "aprune")


class WrappedCheckpointer(BaseCheckpointSaver[Any]):
    """Does what the saver in it does, and can do no more than that; subclasses change what they need to."""

    def __new__(cls, saver: BaseCheckpointSaver[Any], *args: Any, **kwargs: Any) -> Self:
        """Return an object whose class has the optional methods that the saver's class has."""
        base = BaseCheckpointSaver
        can = tuple(name for name in _OPTIONAL if getattr(type(saver), name, None) is not getattr(base, name))
        kind: Any = cls  # mypy takes a class for unhashable
        return cast("Self", object.__new__(_that_can(kind, can)))

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        # Not `super().__init__`, which would make a serializer of its own.
        self._saver = saver

    @property
    def saver(self) -> BaseCheckpointSaver[Any]:
        """The saver that does the work."""
        return self._saver

    @property
    def serde(self) -> Any:  # type: ignore[override]  # an attribute there
        """The serializer of the wrapped saver."""
        return self._saver.serde

    def changed(self, thread_id: str | None) -> None:
        """Take note that a thread, or any of them, is deleted or made anew; for subclasses that remember."""

    @property
    def config_specs(self) -> list[Any]:
        """The configuration of the wrapped saver."""
        return self._saver.config_specs

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[Any]:
        """Return a saver that takes these types too, and remembers the same."""
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone._saver = self._saver.with_allowlist(extra_allowlist)
        return clone

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version that follows."""
        return self._saver.get_next_version(current, channel)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint."""
        return await self._saver.aget_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest first, as stored."""
        async for found in self._saver.alist(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        return await self._saver.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote."""
        await self._saver.aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        try:
            await self._saver.adelete_thread(thread_id)
        finally:
            self.changed(thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what was stored of delta channels up to a checkpoint."""
        return await self._saver.aget_delta_channel_history(config=config, channels=channels)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint."""
        return self._saver.get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first."""
        return self._saver.list(config, filter=filter, before=before, limit=limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        return self._saver.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote."""
        self._saver.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        try:
            self._saver.delete_thread(thread_id)
        finally:
            self.changed(thread_id)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the wrapped saver does."""
        return self._saver.get_delta_channel_history(config=config, channels=channels)


@functools.cache
def _that_can(kind: Any, optional: tuple[str, ...]) -> type[Any]:
    methods = {name: (_passing_async if name.startswith("a") else _passing)(name) for name in optional}
    return type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__, "__qualname__": kind.__qualname__})


def _passing(name: str) -> Any:
    @functools.wraps(getattr(BaseCheckpointSaver, name))
    def call(self: WrappedCheckpointer, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(self._saver, name)(*args, **kwargs)
        finally:
            self.changed(None)

    return call


def _passing_async(name: str) -> Any:
    @functools.wraps(getattr(BaseCheckpointSaver, name))
    async def call(self: WrappedCheckpointer, *args: Any, **kwargs: Any) -> Any:
        try:
            return await getattr(self._saver, name)(*args, **kwargs)
        finally:
            self.changed(None)

    return call
