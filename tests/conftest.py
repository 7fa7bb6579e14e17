"""One thread a process, as test workers share two cores with their children; no deadline: a busy machine is no bug.

Hypothesis tries the same examples every time; `make test-all` explores others, from a seed that it prints.
"""

import os
import signal

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it runs in the background without
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("fixed")

LISTED_SKIPS = (
    "is not in TACIT_DATA",
    "no gpt2_tokenizer in TACIT_DATA",
    "the data sets of TACIT_DATA are not here",
    "stories15m was not made",
    "gliner is not installed beside this transformers",
    "no network namespaces here",
    "TACIT_ENCODER names no folder of a pretrained encoder",
)
"""Reasons for which a test may be skipped where changes are checked: data and models that cannot be installed there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--listed-skips-only", action="store_true", help="fail where a test is skipped for another reason")


class ListedSkipsOnly:
    """Fails a session in which a test was skipped for a reason that is not on the list."""

    def __init__(self) -> None:
        self._others: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._others and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason in sorted(self._others):
            terminalreporter.write_line(f"skipped for a reason that is not listed in conftest.py: {reason}", red=True)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if not any(listed in reason for listed in LISTED_SKIPS):
                self._others.add(reason)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--listed-skips-only") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ListedSkipsOnly())


@pytest.fixture
def unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages must bear any content, also one that `verify` refuses today."""
    monkeypatch.setattr("tacit.reports.finished_run.check_verified", lambda *_: None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests noted with `record_property("counts", ...)`, also in other processes."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "counts":
                terminalreporter.write_line(str(value))
