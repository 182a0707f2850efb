"""What a page of the session list costs with many sessions, against the same page with few.

    python -m benchmarks.session_list [--many 100000] [--few 100] [--repeat 40] [--json]

One app has all the sessions, and one of its users every hundredth of them. A page of 20 is read at the start, in the
middle and at the end of the app's list and of the user's; with few sessions, where the user's list fits into one page,
the user has them all. The numbers are medians in milliseconds; a ratio is many over few, and near 1 where a page costs
the same however many sessions there are. PostgreSQL is started by the benchmark itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiosqlite

from benchmarks.databases import postgres_server
from regnexe import SessionIndex, SessionKey
from regnexe.persistence.index.base import to_micros
from regnexe.persistence.index.postgres import PostgresSessionIndex
from regnexe.persistence.index.sqlite import SqliteSessionIndex

PAGE = 20
START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "thread_id, app_id, user_id, session_id, title, created_at, updated_at, turns, messages, tokens, status, tags"
Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One page: the same place in the list with many and with few sessions, in milliseconds."""

    database: str
    of: str
    place: str
    few_ms: float
    many_ms: float
    ratio: float


def rows(count: int, users: int) -> list[tuple[Row, datetime]]:
    """Return the sessions, without their times, and when each was updated."""
    made = []
    for number in range(count):
        key = SessionKey("app", f"user{number % users}", f"session{number:07}")
        told = ("What is the weather like in Lisbon, and should I take the early ferry?", 5, 20, 12_345)
        row = (key.thread_id, key.app_id, key.user_id, key.session_id, *told, "completed", "[]")
        made.append((row, START + timedelta(seconds=number)))
    return made


@asynccontextmanager
async def filled(database: str, count: int, users: int) -> AsyncIterator[SessionIndex]:
    """Open an index with so many sessions."""
    made = rows(count, users)
    if database == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            async with aiosqlite.connect(Path(folder) / "sessions.db") as connection:
                index = SqliteSessionIndex(connection)
                await index.setup()
                values = [(*row[:5], to_micros(at), to_micros(at), *row[5:]) for row, at in made]
                marks = ", ".join("?" * 12)
                await connection.executemany(f"INSERT INTO regnexe_sessions ({COLUMNS}) VALUES ({marks})", values)
                await connection.commit()
                yield index
        return
    from psycopg_pool import AsyncConnectionPool

    with postgres_server() as url:
        async with AsyncConnectionPool(url, min_size=1, open=False) as pool:
            in_postgres = PostgresSessionIndex(pool)
            await in_postgres.setup()
            async with pool.connection() as opened:
                async with (
                    opened.cursor() as cursor,
                    cursor.copy(f"COPY regnexe_sessions ({COLUMNS}) FROM STDIN") as copy,
                ):
                    for row, at in made:
                        await copy.write_row((*row[:5], at, at, *row[5:]))
            async with pool.connection() as opened:
                await opened.execute("ANALYZE regnexe_sessions")
            yield in_postgres


async def pages(index: SessionIndex, user: str | None, repeat: int) -> dict[str, float]:
    """Return how long a page takes at the start, in the middle and at the end of a list."""
    cursors: list[str | None] = [None]
    while (cursor := (await index.list("app", user, limit=PAGE, cursor=cursors[-1])).cursor) is not None:
        cursors.append(cursor)
    places = {"start": cursors[0], "middle": cursors[len(cursors) // 2], "end": cursors[-1]}
    taken: dict[str, list[float]] = {place: [] for place in places}
    for _ in range(repeat):
        for place, cursor in places.items():
            begun = time.perf_counter_ns()
            await index.list("app", user, limit=PAGE, cursor=cursor)
            taken[place].append((time.perf_counter_ns() - begun) / 1e6)
    return {place: statistics.median(times) for place, times in taken.items()}


async def measure(database: str, few: int, many: int, repeat: int) -> list[Line]:
    """Return the lines of one kind of database."""
    found: list[dict[str, dict[str, float]]] = []
    for count, users in ((few, 1), (many, 100)):
        async with filled(database, count, users) as index:
            found.append({"app": await pages(index, None, repeat), "user": await pages(index, "user0", repeat)})
    return [
        Line(
            database=database,
            of=of,
            place=place,
            few_ms=found[0][of][place],
            many_ms=found[1][of][place],
            ratio=found[1][of][place] / found[0][of][place],
        )
        for of in ("app", "user")
        for place in ("start", "middle", "end")
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.session_list", description="Time pages of the session list.")
    parser.add_argument("--many", type=int, default=100_000, help="sessions in the large list (default: 100000)")
    parser.add_argument("--few", type=int, default=100, help="sessions in the small list (default: 100)")
    parser.add_argument("--repeat", type=int, default=40, help="readings of each page (default: 40)")
    parser.add_argument("--quick", action="store_true", help="2,000 sessions, read 5 times: shows that it runs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args(arguments)
    if options.quick:
        options.many, options.repeat = 2_000, 5
    lines = [
        line
        for database in ("sqlite", "postgres")
        for line in asyncio.run(measure(database, options.few, options.many, options.repeat))
    ]
    if options.json:
        about = {"few": options.few, "many": options.many, "page": PAGE}
        print(json.dumps({**about, "lines": [asdict(line) for line in lines]}, indent=2))
        return 0
    print(f"{'database':9} {'list':5} {'page':7} {options.few:>9,} ms {options.many:>9,} ms {'ratio':>6}")
    for line in lines:
        print(
            f"{line.database:9} {line.of:5} {line.place:7} {line.few_ms:12.2f} {line.many_ms:12.2f} {line.ratio:6.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
