"""Reference models on other halves of a corpus: who read what, both scores, and resuming."""

import math
from pathlib import Path

import pytest

from audited import KNOWN, OVERFIT, train_run
from runs import quiet
from tacit import api
from tacit.audits.attacks.membership import membership
from tacit.audits.shadows import Shadow, shadow_scores
from tacit.audits.target import Target
from tacit.config.audit_schema import AuditConfig
from tacit.errors import ConfigError
from tacit.runs.folder import RunFolder
from tacit.training.shadows import seconds_for, shadow_folders, train_shadows

SETTINGS = AuditConfig(candidates=60, secrets=10, group_size=5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    return train_run(folder, {**OVERFIT, "public_epochs": 40}, [KNOWN], records=120)


@pytest.fixture(scope="module")
def folders(run: Path) -> tuple[Path, ...]:
    assert seconds_for(run, 2) != 0
    return train_shadows(run, 2, quiet)


def test_each_record_was_read_by_one_of_two_at_most(run: Path, folders: tuple[Path, ...]) -> None:
    one, two = map(Shadow.of, folders)
    assert not one.records & two.records
    target = Target.of(RunFolder.view(run))
    every = {side.store.record_id(row) for side in (target.members, target.held_out) for row in range(len(side.store))}
    assert one.records | two.records <= every
    assert not [name for name in one.records | two.records if name.startswith("canary-")]
    assert len(one.records | two.records) > 0.8 * len([name for name in every if not name.startswith("canary-")])


def test_members_of_an_overfitted_run_are_told_by_both_scores(run: Path, folders: tuple[Path, ...]) -> None:
    """The lower end of each 95 % interval is above a half with a false alarm of 2.5 %; the seeds are fixed."""
    target = Target.of(RunFolder.view(run), None, tuple(map(Shadow.of, folders)))
    found = membership(target, SETTINGS, quiet)
    assert found is not None
    rates = {one.attack: one.rates for one in found.attacks}
    for score in ("likelihood ratio", "rmia"):
        assert rates[score].auc.interval.low > 0.5
        assert rates[score].members > 40


def test_a_reference_model_itself_is_at_chance(run: Path, folders: tuple[Path, ...]) -> None:
    """A negative control: the model that is attacked has nothing to do with who was held out. False alarm: 1 %."""
    target = Target.of(RunFolder.view(run))
    candidates = target.candidates(SETTINGS)
    assert candidates is not None
    one, two = map(Shadow.of, folders)
    scores = shadow_scores(one.learner, [two], candidates.passages, candidates.records)
    from tacit.audits.statistics import auc, judged

    for each in scores.values():
        known = {name: candidates.inside[name] for name in each.by_id}
        interval = auc(judged(each, known), 0.99).interval
        assert interval.low < 0.5 < interval.high


def test_the_offline_form_needs_texts_that_the_model_did_not_read(run: Path, folders: tuple[Path, ...]) -> None:
    target = Target.of(RunFolder.view(run))
    candidates = target.candidates(SETTINGS)
    assert candidates is not None
    shadow = Shadow.of(folders[0])
    found = shadow_scores(target.learner, [shadow], candidates.passages, candidates.records)
    assert found["rmia"].by_id.keys() == found["likelihood ratio"].by_id.keys()
    assert not [one for one in found["rmia"].by_id if candidates.records[one] in shadow.records]
    assert all(0 <= value < 1 for value in found["rmia"].by_id.values())
    assert all(math.isfinite(value) for value in found["likelihood ratio"].by_id.values())


def test_finished_ones_are_taken_as_they_are(run: Path, folders: tuple[Path, ...]) -> None:
    model = folders[0] / "release" / "model.safetensors"
    before = model.stat().st_mtime_ns
    assert train_shadows(run, 2, quiet) == folders == shadow_folders(run, 2)
    assert model.stat().st_mtime_ns == before
    assert seconds_for(run, 2) == 0
    assert all("private" in one.parts for one in folders)
    with pytest.raises(ConfigError, match="1 to 2 shadow models"):
        shadow_folders(run, 3)


def test_an_audit_with_shadow_models_has_their_rows(run: Path, folders: tuple[Path, ...]) -> None:
    found = api.audit(run, attacks=["membership"], settings={"candidates": 60}, shadow_models=2)
    assert {"AUC by rmia", "AUC by likelihood ratio"} <= found.figures.keys()
    assert api.verify(run).holds
