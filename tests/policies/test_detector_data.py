"""Marks that something trained has made: it must not have learned from the corpus, and every claim says so."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marking import check_detector_data
from tacit.api import Run, train
from tacit.data.records import Record
from tacit.errors import ClaimRefused
from tacit.mechanisms.build import plan
from tacit.mechanisms.mechanism import FROZEN_DETECTOR, LEARNED_ELSEWHERE
from tacit.papers.alpha_context import WithAlphaContext
from tacit.policies.detectors.detector import (
    Detected,
    TextDigest,
    detector_data,
    read_detector,
    text_key,
    write_detector,
)
from tacit.policies.detectors.linear import DEFAULT_WINDOW, Linear
from tacit.policies.patterns import Digits
from tacit.policies.policy import Policy
from tacit.privacy.guarantee import Evidence, Status

TEXTS = [f"Note number {number} about the garden and the dog at 4 {number * 7} Street." for number in range(3000)]
SMALL: dict[str, Any] = {"held_out": 0.1, "model_config": {"embedding_size": 8, "hidden_size": 8}}


def records(texts: list[str]) -> list[Record]:
    return [Record(str(number), text) for number, text in enumerate(texts)]


def detected(folder: Path, texts: list[str], said: str = "notes") -> Detected:
    """A detector that knows nothing, and says that it learned from `texts`."""
    folder.mkdir()
    digest = TextDigest()
    for record in records(texts):
        digest.add(record)
    card = {"trained_on": said, "sources": [{"sha256": digest.hexdigest()}]}
    write_detector(folder, Linear(np.zeros(2, np.int32), 0.0, DEFAULT_WINDOW), 1.0, card, [digest.sketch()])
    return Detected(read_detector(folder))


@given(st.lists(st.sampled_from(TEXTS[:50]) | st.text(max_size=60)), st.randoms())
def test_a_sketch_has_the_smallest_keys_in_any_order(texts: list[str], chance: random.Random) -> None:
    first, second = TextDigest(), TextDigest()
    for record in records(texts):
        first.add(record)
    chance.shuffle(texts)
    for record in records([f" {text.upper()}\n" if text.isascii() else text for text in texts + texts]):
        second.add(record)
    keys = {key for text in texts if (key := text_key(text)) is not None}
    assert list(first.sketch()) == sorted(keys) == list(second.sketch())


def test_a_sketch_of_many_texts_equals_the_slow_one() -> None:
    digest = TextDigest()
    for record in records(TEXTS):
        digest.add(record)
    assert list(digest.sketch()) == sorted(filter(None, map(text_key, TEXTS)))[:1000]


def test_g1_and_g2_the_corpus_is_known_again_in_another_order_and_in_part(tmp_path: Path) -> None:
    policy = Digits() | detected(tmp_path / "detector", TEXTS)
    short = ["Yes.", "Thank you, good bye."] * 50
    other = [text.replace("garden", "kitchen") for text in TEXTS]
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    for corpus in (TEXTS, shuffled, TEXTS[1:], [text.upper() for text in shuffled[:200]], [*other, *TEXTS[:100]]):
        with pytest.raises(ClaimRefused, match="public or disjoint") as caught:
            check_detector_data(policy, partial(records, corpus))
        assert "garden" not in str(caught.value)
    check_detector_data(policy, lambda: records([*other, *short]))
    sketch = set(policy.right.detector.sketches[0])  # type: ignore[attr-defined]
    kept = [text for text in TEXTS if text_key(text) in sketch]
    check_detector_data(policy, lambda: records([*other, *kept[:3], *kept[:3]]))
    with pytest.raises(ClaimRefused):
        check_detector_data(policy, lambda: records([*other, *kept[:4]]))


def test_g2_short_lines_do_not_count_but_a_whole_corpus_of_them_does(tmp_path: Path) -> None:
    short = ["Yes.", "No, thank you.", "Good bye."] * 9
    policy = detected(tmp_path / "detector", short)
    check_detector_data(policy, lambda: records(short[1:]))
    with pytest.raises(ClaimRefused):
        check_detector_data(policy, lambda: records(short))


@pytest.mark.parametrize("mechanism", ["selective", "twice", "redaction", "crt", "cadp", "uedp"])
def test_every_claim_about_marks_names_the_condition(mechanism: str) -> None:
    words: dict[str, Any] = {"mechanism": mechanism, "records": 1000, "epochs": 2}
    words |= {} if mechanism == "redaction" else {"epsilon": 3}
    words |= {"flagged": 300} if mechanism in ("cadp", "crt") else {}
    words |= {"user_cap": 1, "entity_cap": 1, "epsilon": 30} if mechanism == "uedp" else {}
    said = plan(words, Evidence(detector_data="public")).guarantee.holds_if
    assert [one.status for one in said if LEARNED_ELSEWHERE in one.text] == [Status.ASSUMED]
    silent = plan(words, Evidence()).guarantee.holds_if
    assert FROZEN_DETECTOR not in silent


def test_a_claim_about_records_does_not_depend_on_marks() -> None:
    words = {"mechanism": "dpsgd", "records": 1000, "epochs": 2, "epsilon": 3}
    assert plan(words, Evidence(detector_data="public")).guarantee.holds_if == plan(words).guarantee.holds_if


# Runs


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora, a model of the first, and policies that read it."""
    folder = tmp_path_factory.mktemp("alpha")
    for name, said in (
        ("first", "hello, I am glad to be here and my code is"),
        ("second", "so this is the number that you asked me for:"),
    ):
        lines = [
            {"id": f"r{number}", "text": f"{said} {1000 + number * 37}, {chr(97 + number % 26) * (number + 1)}"}
            for number in range(40)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    train(folder / "first.jsonl", out=folder / "base", mechanism="plain", epochs=1, policy="digits", settings=SMALL)
    words = "policy: {widened: {policy: digits, to: alpha-context, model: base, trained_on: public}}\n"
    (folder / "alpha.yaml").write_text(words)
    return folder


def run(place: Path, out: Path, corpus: str, mechanism: str = "selective", **more: Any) -> Run:  # noqa: ANN401
    words = {"noise_multiplier": 1.0, "steps": 2, "expected_batch_size": 2, "public_epochs": 1}
    settings = {**SMALL, "plan": words, **more}
    return train(place / f"{corpus}.jsonl", out=out, mechanism=mechanism, settings=settings)


def test_a_run_with_alpha_contexts_says_what_its_model_learned_from(place: Path, tmp_path: Path) -> None:
    trained = run(place, tmp_path / "run", "second", policy=str(place / "alpha.yaml"))
    assert trained.guarantee.evidence.detector_data == "public"
    assert FROZEN_DETECTOR in trained.guarantee.holds_if
    assert json.loads((tmp_path / "run" / "release" / "tacit" / "guarantee.json").read_text())


def test_g3_a_model_of_this_corpus_is_not_public(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ClaimRefused, match="public or disjoint"):
        run(place, tmp_path / "run", "first", policy=str(place / "alpha.yaml"))
    (place / "copy.jsonl").write_bytes((place / "first.jsonl").read_bytes())
    with pytest.raises(ClaimRefused, match="public or disjoint"):
        run(place, tmp_path / "copy", "copy", policy=str(place / "alpha.yaml"))


def test_g3_what_a_model_learned_from_is_known_from_its_run_alone(tmp_path: Path) -> None:
    policy: Policy = WithAlphaContext(Digits(), tmp_path, 0.01, "public", "0" * 64)
    check_detector_data(policy, lambda: records(TEXTS))
    (tmp_path / "private").mkdir()
    for content in ("[]", "{", '{"corpus": "nowhere.jsonl"}'):
        (tmp_path / "private" / "settings.json").write_text(content)
        check_detector_data(policy, lambda: records(TEXTS))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"body": text}) + "\n" for text in TEXTS))
    settings = {"corpus": str(corpus), "data": {"text_field": "body"}}
    (tmp_path / "private" / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(ClaimRefused, match="public or disjoint"):
        check_detector_data(policy, lambda: records(TEXTS))


def test_the_conservative_policy_is_looked_at_too(place: Path, tmp_path: Path) -> None:
    texts = [json.loads(line)["text"] for line in (place / "second.jsonl").read_text().splitlines()]
    detected(tmp_path / "same", texts[::-1], "the second corpus")
    detected(tmp_path / "other", TEXTS, "notes")
    for name in ("same", "other"):
        (tmp_path / f"{name}.yaml").write_text(f"policy: {{detector: {name}}}\n")
    (tmp_path / "some.yaml").write_text("policy: {forgetful: {policy: digits, miss_rate: 0.5, seed: 1}}\n")
    first = str(tmp_path / "some.yaml")
    with pytest.raises(ClaimRefused, match="public or disjoint"):
        run(place, tmp_path / "a", "second", "crt", policy=first, conservative_policy=str(tmp_path / "same.yaml"))
    trained = run(
        place, tmp_path / "b", "second", "crt", policy=first, conservative_policy=str(tmp_path / "other.yaml")
    )
    assert trained.guarantee.evidence.detector_data == "notes" == detector_data(detected(tmp_path / "c", TEXTS))
    assert FROZEN_DETECTOR in trained.guarantee.holds_if
