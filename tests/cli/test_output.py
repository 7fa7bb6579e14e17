"""What every verb prints: `--json`, `--quiet`, `--verbose`, and progress where nobody sees a bar."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from test_verbs import commands
from typer.testing import CliRunner

from readers import save_tiny_run
from tacit.cli.main import app
from tacit.cli.output import set_verbosity, watching
from tacit.common.formatting import about
from tacit.common.progress import LOG, Progress, TimeLeft, logged
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record, Span

ALWAYS_JSON_OR_YAML = {"detector show", "config"}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    text = "My PIN is 4417."
    write_jsonl((Record(f"r{n}", text, spans=(Span(10, 14, "PIN"),)) for n in range(20)), tmp_path / "c.jsonl")
    return tmp_path / "c.jsonl"


def run(*words: object) -> str:
    """What is printed on standard output; the command must end well."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", sorted(commands().keys() - ALWAYS_JSON_OR_YAML))
def test_every_verb_that_prints_a_result_prints_it_as_json(name: str) -> None:
    assert "--json" in {option for parameter in commands()[name].params for option in parameter.opts}


def test_the_command_line_starts_without_numbers() -> None:
    """Verbs load scipy, torch and the like when they need them: `tacit --help` should not wait for it."""
    heavy = ("torch", "scipy", "numpy", "dp_accounting", "transformers")
    program = f"import sys, tacit.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_json_is_all_that_is_printed(corpus: Path, tmp_path: Path) -> None:
    simulated = json.loads(run("simulate", "customersim", "--dialogs", 5, "--out", tmp_path / "s.jsonl", "--json"))
    assert simulated["dialogs"] == 5
    assert simulated["secrets"]["NAME"] > 0
    drawn = run(
        "label", "draw", corpus, "--policy", "digits", "--out", tmp_path / "l.jsonl", "--records", 9, "--gold", "--json"
    )
    assert json.loads(drawn)["sampled"] == 9
    assert "4417" not in drawn, "no record of the sample"
    counted = json.loads(run("label", "read", tmp_path / "l.jsonl", "--policy", "digits", "--json"))
    assert len(counted["outcomes"]) == 9
    model = save_tiny_run(tmp_path / "run")
    assert json.loads(run("generate", model, "--prompt", "Hi", "--tokens", 2, "--json"))["text"].startswith("Hi")
    told = json.loads(run("context", "my code is 417", "--target", "417", "--model", model, "--alpha", 0.5, "--json"))
    assert told["start"] == 11


def test_the_log_is_for_whoever_asks(corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = ("scan", corpus, "--policy", "digits", "--processes", 1, "--out", tmp_path / "out")
    assert "reading" not in CliRunner().invoke(app, list(map(str, words))).stderr
    assert "tacit reading" in CliRunner().invoke(app, ["--verbose", *map(str, words)]).stderr
    assert CliRunner().invoke(app, ["--quiet", *map(str, words)]).stderr == ""
    assert all(isinstance(handler, logging.NullHandler) for handler in LOG.handlers if handler is not caplog.handler)
    caplog.clear()
    observe = logged(lambda _: None)
    with caplog.at_level(logging.INFO, logger="tacit"):
        for done in (1, 2):
            observe(Progress("training", done, 2))
    assert caplog.messages == ["training", "training: 2 of 2"]


def test_progress_is_lines_elsewhere_and_nothing_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in ([], ["--quiet"]):
        run(*quiet, "--version")
        with watching("plain") as observe:
            observe(Progress("measuring", 1, 3))
            observe(Progress("measuring", 3, 3))
        printed = capsys.readouterr()
        assert printed.err == ("" if quiet else "plain measuring 3 of 3\n")
        assert printed.out == ""
    run("--version")


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_a_run_says_within_a_minute_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the second step, since the first is slower, and again with every line: 100 steps of 9 seconds."""
    clock = Clock()
    monkeypatch.setattr("tacit.cli.output.time", clock)
    with watching() as report:
        report(Progress("preparing", 30, 30))
        for seconds, step in ((40, 1), (9, 2), (9, 3), (9, 4)):
            clock.now += seconds
            report(Progress("training", step, 100, tokens=900))
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("training")]
    assert printed == [
        "training 1 of 100 begun",
        "training 2 of 100 100 tokens/s, about 15 minutes left",
        "training 4 of 100 100 tokens/s, about 14 minutes left",
    ]


def test_a_run_whose_first_step_is_slow_or_whose_corpus_is_long_says_so_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reading says that more comes on top; the estimate of training contains what has passed."""
    clock = Clock()
    monkeypatch.setattr("tacit.cli.output.time", clock)
    with watching() as report:
        for share in (0.1, 0.2, 0.3):
            clock.now += 20
            report(Progress("preparing", int(10_000 * share), None, share=share))
        clock.now += 60
        report(Progress("estimating", 4, None, seconds=38 * 60))
        clock.now += 300
        report(Progress("training", 1, 8, tokens=1000))
    assert capsys.readouterr().err.splitlines() == [
        "preparing 1,000",
        "preparing 2,000 records, about 3 minutes left to read the corpus; tokenizing and training come on top",
        "preparing 3,000 records, about 2 minutes left to read the corpus; tokenizing and training come on top",
        "about 40 minutes in total, estimated from 4 made-up rows; measuring comes on top",
        "training 1 of 8 begun",
    ]


def test_speed_and_time_are_those_of_the_stage() -> None:
    """Catches a reading of ten minutes that makes training look slow, and a resumed run that counts old steps."""
    left = TimeLeft()
    assert left.seconds(Progress("reading", 5, None, share=0.1), 0.0) is None
    assert left.seconds(Progress("reading", 50, None, share=0.6), 600.0) == pytest.approx(480.0)
    assert left.seconds(Progress("training", 700, 1000), 700.0) is None, "resumed: nobody knows how long a step took"
    assert left.seconds(Progress("training", 710, 1000), 705.0) == pytest.approx(145.0)
    assert left.seconds(Progress("training", 1000, 1000), 900.0) == 0


def test_short_stages_print_no_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    with watching() as report:
        report(Progress("preparing", 30, 30))
        for step in range(1, 4):
            report(Progress("training", step, 3))
    assert "left" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 second"),
        (40, "40 seconds"),
        (59, "1 minute"),
        (700, "12 minutes"),
        (5400, "90 minutes"),
        (12_600, "3.5 hours"),
        (36_000, "10 hours"),
        (200_000, "2.3 days"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert about(seconds) == f"about {words}"


def test_warnings_are_printed_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """A method that takes longer is worth a line; which of the fast ones it is, is not."""
    for quiet, printed in ((False, ["takes longer"]), (True, [])):
        set_verbosity(quiet, verbose=False)
        LOG.info("as always")
        LOG.warning("takes longer")
        assert [line.split("tacit ")[1] for line in capsys.readouterr().err.splitlines()] == printed
    set_verbosity(quiet=False, verbose=False)
