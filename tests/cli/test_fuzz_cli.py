"""Hostile corpora, settings, policies, model folders and run folders through the command line: see fuzz_cli.py."""

import random
import time
from pathlib import Path

import pytest

import tacit.cli.main
from fuzz_cases import Case
from fuzz_cli import fuzz, make_base, outcome
from tacit.cli.main import UNEXPECTED, main
from tacit.errors import ConfigError


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    make_base(folder)
    return folder


def test_hostile_inputs_end_in_success_or_in_one_sentence(base: Path) -> None:
    """Catches tracebacks, crashes, hangs and lost records; the same cases each time."""
    counts = fuzz(120, 0, base)
    print(counts)
    assert counts.found.total() == 120
    assert not counts.bad, counts
    assert min(counts.found["success"], counts.found["clean error"]) > 30, counts


@pytest.mark.slow
@pytest.mark.parametrize("half", ["one half", "the other"])
def test_ten_thousand_hostile_inputs(half: str, base: Path) -> None:
    """As above, with other cases each time: the first seed is printed."""
    first = random.SystemRandom().randrange(1, 10**9)
    print(f"seeds from {first}")
    counts = fuzz(5_000, first, base)
    print(counts)
    assert counts.found.total() == 5_000
    assert not counts.bad, f"seeds from {first}: {counts}"


def _raises(error: BaseException) -> object:
    def verb(arguments: list[str], obj: object) -> None:
        raise error

    return verb


def test_the_fuzzer_sees_what_it_looks_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The negative controls: a traceback, a hang and a lost record are each counted as what they are."""
    monkeypatch.setattr(tacit.cli.main, "app", _raises(KeyError("a secret")))
    assert outcome(Case(["scan"]))[0] == "traceback"
    monkeypatch.setattr(tacit.cli.main, "app", _raises(ConfigError("a", "b", "c")))
    assert outcome(Case(["scan"]))[0] == "clean-error"

    def hangs(arguments: list[str], obj: object) -> None:
        end = time.process_time() + 30
        while time.process_time() < end:
            pass

    monkeypatch.setattr("fuzz_cli.SECONDS_OF_PROCESSOR", 0.2)
    monkeypatch.setattr(tacit.cli.main, "app", hangs)
    assert outcome(Case(["scan"]))[0] == "hang"
    (tmp_path / "scan.json").write_text('{"records": 3, "quarantined": {"too-long": 1}}')
    monkeypatch.setattr(tacit.cli.main, "app", lambda arguments, obj: None)
    assert outcome(Case(["scan"], 5, tmp_path))[0] == "lost-records"
    assert outcome(Case(["scan"], 4, tmp_path))[0] == "success"


def test_a_fault_of_tacit_is_one_sentence_without_the_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a traceback on a person's screen; TACIT_DEBUG shows it to whoever asks."""
    monkeypatch.delenv("TACIT_DEBUG", raising=False)
    monkeypatch.setattr(tacit.cli.main, "app", _raises(KeyError("Ann Lee")))
    with pytest.raises(SystemExit) as ended:
        main(["scan"])
    assert ended.value.code == UNEXPECTED
    said = capsys.readouterr().err
    assert "KeyError" in said
    assert "TACIT_DEBUG" in said
    assert "Ann Lee" not in said
    monkeypatch.setenv("TACIT_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["scan"])
