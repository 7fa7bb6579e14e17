"""Canaries where nobody chose any: a rule of public counts, and tokens that nothing of the corpus chose."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runs import experiment, quiet, write_corpus
from tacit.audits.audit import audit
from tacit.audits.findings import Outcome
from tacit.config.audit_schema import AuditConfig
from tacit.data.english_tokenizer import english_tokenizer
from tacit.data.tokenizer import byte_tokenizer
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import planted_canaries
from tacit.training.canaries import TIMES, default_canaries, plants, rare_words
from tacit.training.stages import train


@pytest.mark.parametrize(
    ("records", "counts"), [(0, (16, 8, 16)), (2_000, (100, 40, 100)), (10**6, (741 // 2, 500, 1000))]
)
def test_their_number_is_a_rule_of_the_corpus_size(records: int, counts: tuple[int, int, int]) -> None:
    found = default_canaries(records, english_tokenizer())
    assert [one.template for one in found] == ["{word}", "{2 words}", "My ID is {4 digits}."]
    assert [one.count for one in found][1:] == list(counts[1:])
    assert 16 <= found[0].count <= counts[0]
    assert [one.repetitions for one in found] == [1, 1, 1]
    assert [one.inside_probability for one in found] == [0.5, 0.5, 1.0]


def test_a_rare_word_is_one_token_again_and_again() -> None:
    tokenizer = english_tokenizer()
    words = rare_words(tokenizer, 200)
    assert len(set(words)) == 200
    for word in words:
        tokens = tokenizer.encode(word)
        assert len(tokens) == TIMES
        assert len(set(tokens)) == 1
    common = Counter(tokenizer.encode(" ".join(["the man said that he would come to the house"] * 3)))
    assert not {tokenizer.encode(word)[0] for word in words} & common.keys()


def test_where_no_vocabulary_is_known_there_are_no_rare_tokens() -> None:
    for tokenizer in (None, byte_tokenizer()):
        assert [one.template for one in default_canaries(2_000, tokenizer)] == ["{2 words}", "My ID is {4 digits}."]


def test_a_default_run_plants_them_and_its_audit_reports_something(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    config = experiment(corpus, "selective", canaries=None)
    assert plants(config)
    assert not plants(experiment(corpus, "selective"))
    train(config, tmp_path / "run", quiet)
    run = RunFolder.view(tmp_path / "run")
    planted = planted_canaries(run)
    assert run.read_json(dict, ReleaseFile.GUARANTEE)["evidence"]["planted"] == planted.copies > 16
    names = ["exposure", "epsilon", "power"]
    found = audit(tmp_path / "run", AuditConfig(candidates=10), quiet, names=names)
    assert [one.attack for one in found.canaries] == names
    assert found.verdict.outcome is Outcome.CONSISTENT
    assert "planted secrets" in found.canaries[0].sentence
    stored = run.path(PrivateFile.SETTINGS).read_text()
    assert json.loads(stored)["audit"]["canaries"] is None
    released = "".join(path.read_text("utf-8", "replace") for path in (tmp_path / "run/release").rglob("*.json"))
    secrets = [one for one in planted.planted if one.plan.known]
    assert not any(f'"{canary.value}"' in released for one in secrets for canary in one.canaries)


@pytest.mark.parametrize(
    ("mechanism", "coins"), [("crt", [0.5, 0.5, 1.0]), ("cadp", [0.5, 0.5, 0.5]), ("redaction", [0.5, 0.5, 1.0])]
)
def test_default_canaries_measure_what_is_claimed(mechanism: str, coins: list[float], tmp_path: Path) -> None:
    """Of flagged records, too, where canaries are among them: a default audit has a verdict on every claim."""
    second: dict[str, Any] = {"conservative_policy": "conservative"} if mechanism == "crt" else {}
    config = experiment(write_corpus(tmp_path), mechanism, canaries=None, tokenizer="english", **second)
    train(config, tmp_path / "run", quiet)
    planted = planted_canaries(RunFolder.view(tmp_path / "run")).planted
    assert [one.plan.inside_probability for one in planted] == coins
    found = audit(tmp_path / "run", AuditConfig(candidates=10), quiet, names=["epsilon"])
    assert found.verdict.outcome is Outcome.CONSISTENT
