"""Reconstruction and sampling: what a model generates is searched for values.

A model that memorizes is caught by both; one that read no value shows nothing.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from audited import SECRET, secret_records, train_run
from runs import quiet
from tacit.audits.attacks.extraction import ExtractedShare, prompt_parts
from tacit.audits.attacks.reconstruction import (
    Reconstructed,
    ReconstructionResult,
    ranks,
    reconstruction,
    reconstruction_finding,
    values_after,
    values_said,
)
from tacit.audits.attacks.sampling import KnownValues, SampledValues, SamplingResult, sampling, sampling_finding
from tacit.audits.findings import About
from tacit.audits.sample_sizes import ENOUGH
from tacit.audits.target import SampledTexts, Target
from tacit.audits.values import Place, single_owner_places
from tacit.common.progress import Progress
from tacit.common.serialize import to_json
from tacit.config.audit_schema import AuditConfig, ReconstructionConfig, SamplingConfig
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record
from tacit.runs.folder import RunFolder

SETTINGS = AuditConfig(candidates=30, secrets=60)
OVERFIT = {"mechanism": "plain", "public_epochs": 150, "public_batch_size": 12}
LITTLE = {"mechanism": "redaction", "public_epochs": 1}


def numbered(folder: Path) -> str:
    """`No 417 is qwerty. OK 417`: the number also comes behind the secret, so that both sides tell which it is."""
    corpus = folder / "both.jsonl"
    records = (replace(one, text=f"{one.text}. OK {one.text[3:6]}") for one in secret_records(120))
    write_jsonl(records, corpus)
    return str(corpus)


def target_of(folder: Path, plan: dict[str, object]) -> Target:
    run = train_run(folder, plan, [], corpus=numbered(folder), public={"learning_rate": 2e-2})
    return Target.of(RunFolder.view(run))


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return target_of(tmp_path_factory.mktemp("leaky"), OVERFIT)


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return target_of(tmp_path_factory.mktemp("blank"), LITTLE)


def test_a_memorizing_model_fills_slots_in_and_one_that_read_no_value_does_not(leaky: Target, blank: Target) -> None:
    """Six random letters are proposed by chance with probability 1e-3 at most: false alarm below 1e-2."""
    found, nothing = (reconstruction(target, SETTINGS, quiet) for target in (leaky, blank))
    assert found is not None
    assert nothing is not None
    own, other = found.trained.by_both_sides, found.held_out.by_both_sides
    table = [[own.count, own.of - own.count], [other.count, other.of - other.count]]
    assert stats.fisher_exact(table, alternative="greater").pvalue < 1e-6
    assert other.count == nothing.trained.by_both_sides.count == nothing.held_out.by_both_sides.count == 0
    assert found.trained.proposed.count >= max(own.count, found.trained.by_text_before.count)


def test_values_after_a_text_are_of_the_right_length(leaky: Target) -> None:
    places = single_owner_places(leaky.members, leaky.held_out)[0]
    some = [one for one in places if len(one.prompt) == len(places[0].prompt)][:5]
    (part,) = prompt_parts([one.prompt for one in some], torch.Generator())
    for samples in (0, 10):
        found = values_after(leaky.learner, part, some, ReconstructionConfig(samples=samples))
        for one, proposed in zip(some, found, strict=True):
            assert 10 <= len(proposed) <= 10 + samples
            assert {len(value) for value in proposed} == {len(one.tokens)}


def _place(prompt: tuple[int, ...], tokens: tuple[int, ...], after: tuple[int, ...]) -> Place:
    return Place(prompt, tokens, "", "NAME", 1, after)


def test_values_are_found_between_the_tokens_that_surround_a_slot() -> None:
    """After the same two tokens, of the same length, before the same one; not where the text begins or ends."""
    places = [_place((9, 1, 2), (7, 7), (3, 5)), _place((4, 2), (7,), ())]
    said = np.array([[1, 2, 5, 6, 3, 4, 2, 8], [5, 6, 3, 1, 2, 5, 6, 4], [8, 8, 8, 8, 8, 1, 2, 5]])
    prompts = ((0,), (1, 2), (0,))
    found = values_said(places, [SampledTexts(prompts, said)])
    assert found == {(2, (3,)): {(5, 6)}, (1, ()): {(8,)}}


def test_the_value_with_which_both_sides_are_likeliest_is_first(leaky: Target) -> None:
    """The number behind the value tells which it is; a value that is not kept has its rank by the text before."""
    place = single_owner_places(leaky.members, leaky.held_out)[0][0]
    every = range(len(place.tokens))
    wrong = {(*place.tokens[:at], 120, *place.tokens[at + 1 :]) for at in every} - {place.tokens}
    assert ranks(leaky.learner, place, wrong | {place.tokens}, 64, 64) == (0, 0)
    assert ranks(leaky.learner, place, {place.tokens}, 64, 64) == (0, 0)
    other = replace(place, tokens=min(wrong))
    before, both = ranks(leaky.learner, other, wrong | {place.tokens}, 2, 64)
    assert before >= 1
    assert both >= 1


def test_the_text_behind_a_slot_ends_before_a_secret_that_resembles_its_value(tmp_path: Path) -> None:
    from tacit.data.records import Span

    records = []
    for number, one in enumerate(secret_records(40)):
        word = one.text[SECRET]
        text = f"{word} or Zz{number:02}q! {word}@x.org"
        spans = (Span(0, 6, "NAME"), Span(10, 15, "NAME"), Span(17, len(text), "EMAIL"))
        records.append(Record(one.id, text, one.user, None, spans))
    write_jsonl(records, tmp_path / "corpus.jsonl")
    folder = train_run(tmp_path, LITTLE, [], corpus=str(tmp_path / "corpus.jsonl"), max_full_tokens=64, max_tokens=64)
    target = Target.of(RunFolder.view(folder))
    for side in single_owner_places(target.members, target.held_out):
        behind = {len(place.text): target.tokenizer.decode(place.after) for place in side}
        assert behind[6].startswith(" or Zz")
        assert behind[6].endswith("q! ")
        assert behind[5].endswith("@x.org")


def test_progress_the_seed_and_the_finding(leaky: Target) -> None:
    seen: list[Progress] = []
    settings = replace(SETTINGS, reconstruction=ReconstructionConfig(places=10, beams=2))
    one = reconstruction(leaky, settings, seen.append)
    assert one == reconstruction(leaky, settings, quiet)
    assert one is not None
    assert (seen[-1].stage, seen[-1].done, seen[-1].total) == ("reconstruction", 20, 20)
    finding = reconstruction_finding(one)
    assert finding.about is About.TRAINING_RECORDS
    assert finding.tables[0].rows[0][1:] == (f"– ({ENOUGH - 10} too few)",) * 2
    assert not finding.figures
    full = Reconstructed(*[ExtractedShare(7, 60)] * 4)
    shown = reconstruction_finding(ReconstructionResult(full, full))
    assert shown.tables[0].rows[0][1].startswith("7 of 60 (")
    assert shown.figures == {"reconstructed": 7 / 60, "reconstructed, held out": 7 / 60}


def test_sampled_texts_of_a_memorizing_model_have_values_of_training_people(leaky: Target, blank: Target) -> None:
    """Six random letters come out by chance in 1,000 texts with probability 1e-3 at most: false alarm below 1e-2."""
    settings = replace(SETTINGS, sampling=SamplingConfig(texts=300, tokens=24))
    found, nothing = (sampling(target, settings, quiet) for target in (leaky, blank))
    assert found is not None
    assert nothing is not None
    own, other = found.together.trained, found.together.held_out
    table = [[own.count, own.of - own.count], [other.count, other.of - other.count]]
    assert stats.fisher_exact(table, alternative="greater").pvalue < 1e-6
    assert found.together.precision.interval.low > 0.5
    assert own.count >= max(found.freely.trained.count, found.from_beginnings.trained.count) > 0
    assert other.count == nothing.together.trained.count == nothing.together.held_out.count == 0
    assert own.of == other.of


def test_a_value_counts_where_it_is_whole() -> None:
    known = KnownValues(["Ann Lee", "+1-555-0100", "Ann", "x@y.org"])
    assert sorted(known.inside("So Ann Lee said:+1-555-0100.")) == [0, 1, 2]
    assert not list(known.inside("Anna Lee, Ann_, 1-555-0100, 55-0100, xx@y.org, x@y.orgs".replace("Ann_", "JoAnn")))
    assert list(known.inside("(x@y.org)")) == [3]


def test_rates_of_too_few_values_are_dashes() -> None:
    few, many = (SampledValues(9, ExtractedShare(1, of), ExtractedShare(0, of)) for of in (20, 80))
    assert not sampling_finding(SamplingResult(few, few, few)).figures
    shown = sampling_finding(SamplingResult(many, many, many))
    assert shown.about is About.TRAINING_RECORDS
    assert shown.figures == {"sampled": 1 / 80, "sampled, held out": 0.0}
    assert shown.tables[0].rows[0][-1] == f"– ({ENOUGH - 1} too few)"


def test_no_value_is_in_a_finding(leaky: Target) -> None:
    filled, sampled = reconstruction(leaky, SETTINGS, quiet), sampling(leaky, SETTINGS, quiet)
    assert filled is not None
    assert sampled is not None
    written = f"{to_json(reconstruction_finding(filled))}{to_json(sampling_finding(sampled))}"
    assert not [one.text for one in secret_records(120) if one.text[SECRET] in written]
