"""How many turns a second 50 sessions at once get: deepagents alone and Regnexe.

    python -m benchmarks.concurrency [--saver sqlite postgres] [--sessions 50] [--turns 8] [--rounds 7] [--quick]
                                     [--json FILE] [--plot FILE.png]

A round starts so many new sessions together, each of which takes its turns one after the other, first through one side
and then through the other, in one process and on savers of the same kind; the order changes from round to round. A turn
is as in `benchmarks.long_session`. The ratio is the median over rounds of Regnexe's turns a second over
bare's: above 1, Regnexe does more.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.long_session import GOAL, SIDES, Side, open_side

WARM_UP = 2


@dataclass(kw_only=True)
class Row:
    """One kind of saver: turns a second on both sides, and the ratios of the rounds."""

    saver: str
    sessions: int
    bare: float
    regnexe: float
    ratio: float
    lowest: float
    highest: float


async def measure(saver: str, *, sessions: int, turns: int, rounds: int) -> Row:
    """Run all rounds on one kind of saver."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [await open_side(name, saver, folder, stack) for name in SIDES[:2]]
        for side in sides:
            await _round(side, WARM_UP, WARM_UP)
        rates: list[tuple[float, float]] = []
        for number in range(rounds):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            found = [0.0, 0.0]
            for index in order:
                gc.collect()
                found[index] = await _round(sides[index], sessions, turns)
            rates.append((found[0], found[1]))
    ratios = [regnexe / bare for bare, regnexe in rates]
    return Row(
        saver=saver,
        sessions=sessions,
        bare=statistics.median(bare for bare, _ in rates),
        regnexe=statistics.median(regnexe for _, regnexe in rates),
        ratio=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
    )


async def _round(side: Side, sessions: int, turns: int) -> float:
    """Return how many turns a second one side did."""

    async def session() -> None:
        name = uuid.uuid4().hex
        for number in range(turns):
            await side.turn(name, f"Turn {number}. {GOAL}")

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(session())
    return sessions * turns / (time.perf_counter() - begun)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    lines = [f"{'saver':10} {'sessions':>8} {'bare/s':>8} {'regnexe/s':>10} {'ratio':>6} {'lowest':>7} {'highest':>8}"]
    lines += [
        f"{row.saver:10} {row.sessions:8} {row.bare:8.1f} {row.regnexe:10.1f} {row.ratio:6.2f} {row.lowest:7.2f}"
        f" {row.highest:8.2f}"
        for row in rows
    ]
    return "\n".join(lines)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw turns a second."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    places: Any = range(len(rows))
    axes.bar([place - 0.2 for place in places], [row.bare for row in rows], width=0.4, label="bare deepagents")
    axes.bar([place + 0.2 for place in places], [row.regnexe for row in rows], width=0.4, label="regnexe")
    axes.set_xticks(list(places), [row.saver for row in rows])
    axes.set(title=f"{rows[0].sessions} sessions at once", ylabel="turns a second")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.concurrency", description="Time many sessions at once.")
    parser.add_argument("--saver", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    parser.add_argument("--sessions", type=int, default=50, help="sessions at once (default: 50)")
    parser.add_argument("--turns", type=int, default=8, help="turns of each session in a round (default: 8)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of both sides (default: 7)")
    parser.add_argument("--quick", action="store_true", help="5 sessions, 2 turns, 2 rounds: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw it (needs matplotlib)")
    options = parser.parse_args(arguments)
    sessions, turns, rounds = (5, 2, 2) if options.quick else (options.sessions, options.turns, options.rounds)
    rows = [asyncio.run(measure(saver, sessions=sessions, turns=turns, rounds=rounds)) for saver in options.saver]
    print(f"Python {platform.python_version()} on {platform.platform()}\n{table(rows)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2), encoding="utf-8")
    if options.plot:
        plot(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
