from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_overhead_benchmark_reports_every_mode_on_every_saver() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.overhead", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert set(report) == {"python", "platform", "versions", "turns_per_session", "gc", "rows", "slower"}
    assert {(row["mode"], row["saver"], row["sessions"], row["bare_durability"]) for row in report["rows"]} == {
        (mode, saver, sessions, durability)
        for mode, durabilities in (("ainvoke", ("async", "sync")), ("astream", ("async",)))
        for saver in ("memory", "sqlite")
        for sessions in ("fresh", "growing")
        for durability in durabilities
    }
    numbers = ("bare_ms", "regnexe_ms", "ratio", "ratio_p10", "ratio_p90", "pairs")
    assert all(row[name] > 0 for row in report["rows"] for name in numbers)
    assert all(row["ratio_p10"] <= row["ratio"] <= row["ratio_p90"] for row in report["rows"])
