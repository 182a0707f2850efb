"""A pytest plugin: a test that is skipped fails, since here every part that tests need is installed.

Excepted are tests that this platform cannot run: skips whose reason begins with "platform: ".
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

ALLOWED = "platform: "


def _fail_if_skipped(report: pytest.CollectReport | pytest.TestReport) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED):
        report.outcome = "failed"
        report.longrepr = f"skipped ({reason}), and here nothing may be skipped"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the report of a skipped test into that of a failed one."""
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for a module that skips itself."""
    report = yield
    _fail_if_skipped(report)
    return report
