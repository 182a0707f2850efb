"""LangGraph's own suite for savers says the same of a warm saver as of the saver in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from delta_suite import CHANNELS, KINDS, opened
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from regnexe.persistence.warm import WarmCheckpointer
from regnexe.persistence.wrapped import WrappedCheckpointer


async def report(kind: str, how: Any, folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the suite finds of each thing that a saver may be able to do."""

    async def savers() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        async with opened(kind, folder, request) as saver:
            yield how(saver)

    found = await validate(checkpointer_test(name=f"{kind} {how}")(savers))
    return {
        name: (result.detected, result.passed, result.tests_passed, result.tests_failed)
        for name, result in found.results.items()
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [WrappedCheckpointer, lambda saver: WarmCheckpointer(saver, CHANNELS)])
async def test_a_wrapped_saver_passes_and_is_able_to_do_what_the_bare_one_is(
    kind: str, how: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    bare = await report(kind, lambda saver: saver, tmp_path, request)
    assert await report(kind, how, tmp_path, request) == bare
    assert bare["put"][1] and bare["get_tuple"][1] and bare["list"][1] and bare["delete_thread"][1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_warm_saver_has_the_optional_methods_that_its_saver_has_and_no_others(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened(kind, tmp_path, request) as saver:
        warm = type(WarmCheckpointer(saver, CHANNELS))
        for name in ("copy_thread", "acopy_thread", "delete_for_runs", "adelete_for_runs", "prune", "aprune"):
            bare_has = getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name)
            assert (getattr(warm, name) is not getattr(BaseCheckpointSaver, name)) == bare_has
