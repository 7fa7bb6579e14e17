"""Membership of secrets: which of two values was in a place; pairs that differ by a coin alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from audited import train_run
from runs import quiet
from tacit.audits.attacks.inference import inference, inference_finding
from tacit.audits.attacks.secrets import Told, secrets_finding, secrets_told
from tacit.audits.findings import About
from tacit.audits.sample_sizes import ENOUGH
from tacit.audits.target import Target
from tacit.audits.values import Place, ValuePair, form, held_out_pairs, value_pairs
from tacit.config.audit_schema import AuditConfig
from tacit.papers.two_stage import two_stage_of_values
from tacit.runs.folder import RunFolder

SETTINGS = AuditConfig(candidates=30, group_size=5)
OVERFIT = {"mechanism": "plain", "public_epochs": 40, "public_batch_size": 12}
LITTLE = {"mechanism": "redaction", "public_epochs": 1}


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A run that overfits 120 records, half of them held out."""
    return Target.of(RunFolder.view(train_run(tmp_path_factory.mktemp("leaky"), OVERFIT, [], records=120)))


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A run that read no value."""
    return Target.of(RunFolder.view(train_run(tmp_path_factory.mktemp("blank"), LITTLE, [], records=120)))


def test_values_of_one_user_meet_values_of_the_other_side(leaky: Target) -> None:
    """G1, G2: all pairs are of one kind and form, and no value comes twice or is on both sides."""
    pairs = value_pairs(leaky.members, leaky.held_out, 1000, 0)
    own, other = ({pair.place.text for pair in pairs}, {pair.other.text for pair in pairs})
    assert len(pairs) == len(own) == len(other) >= ENOUGH
    assert not own & other
    assert {(one.kind, form(one.text)) for pair in pairs for one in (pair.place, pair.other)} == {("NAME", "a")}
    trained = {leaky.tokenizer.decode(value) for row in range(60) for value in _secrets(leaky, row)}
    assert own <= trained
    assert not other & trained


def _secrets(target: Target, row: int) -> list[list[int]]:
    return target.members.secrets(row) if row < len(target.members.store) else []


def test_an_overfitted_model_tells_true_values_and_one_that_read_none_does_not(leaky: Target, blank: Target) -> None:
    """Right guesses of a model that read no value are binomial: false alarms of the two bounds together below 1e-5."""
    found, nothing = (secrets_told(target, SETTINGS, quiet) for target in (leaky, blank))
    assert found is not None
    assert nothing is not None
    assert found.single.rate.value > 0.9
    assert found.in_one_record == found.single
    assert found.groups.of == found.single.of // 5
    for chance in (nothing.single, found.held_out, nothing.held_out):
        assert stats.binomtest(int(chance.right), chance.of).pvalue > 1e-6
    assert not found.blind.flagged


def test_the_finding_stays_inside_and_prints_how_many(leaky: Target) -> None:
    found = secrets_told(leaky, SETTINGS, quiet)
    assert found is not None
    finding = secrets_finding(found)
    assert finding.about is About.TRAINING_RECORDS
    rows = {row[0]: row for row in finding.tables[0].rows}
    assert f"n {found.single.of}" in rows["single values"][1]
    assert rows["groups of 5"][1] == f"– ({ENOUGH - found.groups.of} too few)"
    assert set(finding.figures) == {"secrets told", "secrets told, without the model"}
    assert "secrets told, groups" not in finding.figures


def test_a_rate_above_what_the_claim_allows_is_a_warning(leaky: Target) -> None:
    found = secrets_told(leaky, SETTINGS, quiet)
    assert found is not None
    assert found.allowed is None
    assert not secrets_finding(found).warning
    assert "the claim allows 60.0 % at most" in secrets_finding(replace(found, allowed=0.6)).warning


@pytest.mark.parametrize(
    ("text", "shape"),
    [("Ann Lee", "a a"), ("ZK-971614", "a-999999"), ("E6H3U", "xxxxx"), ("1-985-220-3561", "9-999-999-9999")],
)
def test_forms_keep_the_length_of_numbers_and_codes(text: str, shape: str) -> None:
    assert form(text) == shape


def test_ties_count_half_and_widen_the_interval() -> None:
    told = Told.by(np.array([1.0, -1.0, 0.0, 2.0] * 20), 0.95)
    assert told.rate.value == 0.625
    assert told.rate.interval.low < 0.625 < told.rate.interval.high
    assert str(told).endswith("n 80")
    assert str(Told.by(np.array([1.0] * 12), 0.95)) == "– (38 too few)"


def test_held_out_pairs_are_of_the_held_out_side(leaky: Target) -> None:
    trained = {pair.place.text for pair in value_pairs(leaky.members, leaky.held_out, 1000, 0)}
    pairs = held_out_pairs(leaky.members, leaky.held_out, 1000, 0)
    assert pairs
    assert not {one.text for pair in pairs for one in (pair.place, pair.other)} & trained
    assert all(isinstance(pair, ValuePair) and isinstance(pair.place, Place) for pair in pairs)


def test_a_value_that_can_be_copied_from_above_is_no_place(tmp_path: Path) -> None:
    """G3: `Ann Lee` and then `ann.lee@...`: the second is left out, and so is a name that two users have."""
    from tacit.data.corpus import write_jsonl
    from tacit.data.records import Record, Span

    corpus = tmp_path / "corpus.jsonl"
    records = []
    for number in range(40):
        name = "Q" + "".join("abcdefghij"[int(digit)] for digit in f"{number:02}") + "zz"
        shared = "Sam" if number % 2 else "Kim"
        text = f"{shared}: I am {name}, {name}@x.org"
        start = text.index(name)
        spans = (Span(0, 3, "NAME"), Span(start, start + 5, "NAME"), Span(start + 7, len(text), "EMAIL"))
        records.append(Record(f"r{number}", text, f"u{number}", None, spans))
    write_jsonl(records, corpus)
    target = Target.of(RunFolder.view(train_run(tmp_path, LITTLE, [], corpus=str(corpus), max_full_tokens=64)))
    pairs = value_pairs(target.members, target.held_out, 1000, 0)
    assert pairs
    assert {pair.place.kind for pair in pairs} == {"NAME"}
    assert all(pair.place.text.startswith("Q") for pair in pairs)


def test_two_stages_are_right_about_every_value_whatever_the_scores(blank: Target) -> None:
    """They are shown beside what they say of random scores: the same."""
    found = two_stage_of_values(blank, SETTINGS)
    assert found is not None
    assert found.accuracy == found.of_noise == 1


def test_the_true_value_is_chosen_among_many(leaky: Target, blank: Target) -> None:
    """Chance is 1 in 20; false alarms of all bounds together below 1e-5."""
    found, nothing = (inference(target, replace(SETTINGS, secrets=60), quiet, among=20) for target in (leaky, blank))
    assert found is not None
    assert nothing is not None
    assert stats.binomtest(found.trained.count, found.trained.of, 1 / 20, alternative="greater").pvalue < 1e-6
    for chance in (found.held_out, nothing.trained, nothing.held_out):
        assert stats.binomtest(chance.count, chance.of, 1 / 20).pvalue > 1e-6
    assert inference_finding(found).figures["inferred"] == found.trained.share
    assert inference(leaky, SETTINGS, quiet, among=1000) is None
