"""`tacit verify`: an untouched run holds, and every change of a released file is found and named.

The four changes of the first test were once printed by `report` without a word.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from finished_runs import reseal, rewrite, write_run
from runs import experiment, quiet, write_corpus
from saved import release_files
from tacit import api as verbs
from tacit.audits.audit import audit
from tacit.cli.main import app
from tacit.common.progress import Progress
from tacit.common.serialize import from_json, to_json
from tacit.config.audit_schema import AuditConfig
from tacit.data.store import PreparedCorpus
from tacit.errors import PrepareError, RunError, TacitError
from tacit.mechanisms.build import Terms, plan
from tacit.mechanisms.custom import Own
from tacit.mechanisms.mechanism import PrivateSteps
from tacit.mechanisms.registry import describe, register_mechanism
from tacit.mechanisms.settings import PlanSettings
from tacit.models.loading import load
from tacit.privacy.guarantee import Evidence, Guarantee
from tacit.privacy.ledger import read_entries
from tacit.privacy.plan import Phase, Plan, Pool, Unit, View
from tacit.reports.write import report
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import Verified, check_verified, disagreement, verify
from tacit.training.stages import resume, train

LOUDER = "noise_multiplier 1.0 for a record, zero-out in ledger.jsonl, but noise_multiplier 10.0 by plan.json"
SHAPE = {"hidden_size": 8, "embedding_size": 8}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of dpsgd, as training left it."""
    place = tmp_path_factory.mktemp("verify")
    train(experiment(write_corpus(place), "dpsgd", model_config=SHAPE), place / "run", quiet)
    return place / "run"


@pytest.fixture(scope="module")
def reported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with page, certificate and model card."""
    folder = tmp_path_factory.mktemp("reported") / "run"
    shutil.copytree(trained, folder)
    report([folder])
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def failing(verified: Verified) -> str:
    """All that does not hold, in one text."""
    assert verified.holds == all(one.holds for one in verified.checks)
    assert (verified.sentence is None) != verified.holds
    return "\n".join(one.why for one in verified.checks if not one.holds)


def edit(folder: Path, file: ReleaseFile, change: Callable[[str], str]) -> None:
    path = folder / "release" / file
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))


def smaller_claim(folder: Path) -> None:
    guarantee = from_json(Guarantee, (folder / "release" / ReleaseFile.GUARANTEE).read_bytes())
    figure = guarantee.figures[0]
    edit(
        folder, ReleaseFile.GUARANTEE, lambda text: text.replace(str(figure), f"(0.01, {str(figure).split(', ')[1]}", 1)
    )


def shorter_ledger(folder: Path) -> None:
    edit(folder, ReleaseFile.LEDGER, lambda text: "".join(text.splitlines(keepends=True)[:-1]))


def louder_plan(folder: Path) -> None:
    edit(folder, ReleaseFile.PLAN, lambda text: text.replace('"noise_multiplier": 1.0', '"noise_multiplier": 10.0'))


def other_weights(folder: Path) -> None:
    flip(folder / "release" / ReleaseFile.MODEL, -1, 3)


def flip(path: Path, byte: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(bytes(content))


TAMPERED: dict[Callable[[Path], None], tuple[ReleaseFile, str]] = {
    smaller_claim: (ReleaseFile.GUARANTEE, "has 0.01 in its claim where"),
    shorter_ledger: (ReleaseFile.LEDGER, "counts 0 executions of 'utility' where plan.json has 1"),
    louder_plan: (ReleaseFile.PLAN, LOUDER),
    other_weights: (ReleaseFile.MODEL, "SHA-256"),
}


@pytest.mark.parametrize("tamper", TAMPERED)
def test_each_of_the_four_changes_is_named_and_nothing_is_printed(tamper: Callable[[Path], None], run: Path) -> None:
    """Each passed every verb before there was a manifest."""
    file, why = TAMPERED[tamper]
    assert verify(run).holds
    tamper(run)
    found = failing(verify(run))
    assert f"{file} was changed: its SHA-256 is not the one in manifest.json" in found
    assert why in found
    uses: list[Callable[[], object]] = [
        lambda: report([run]),
        lambda: verbs.generate(run),
        lambda: load(run),
        lambda: audit(run, AuditConfig(), quiet),
    ]
    before = {path: path.read_bytes() for path in release_files(run / "release")}
    for use in uses:
        with pytest.raises(RunError, match=f"{file} was changed.*Way out: restore the file"):
            use()
    assert {path: path.read_bytes() for path in release_files(run / "release")} == before


@pytest.mark.usefixtures("unverified")
def test_without_verification_a_smaller_claim_would_be_printed(run: Path) -> None:
    """Negative control: what `report` did."""
    smaller_claim(run)
    assert "(0.01, " in report([run]).page.read_text()


@pytest.mark.parametrize("tamper", [smaller_claim, shorter_ledger, louder_plan])
def test_a_new_manifest_does_not_make_a_false_claim_follow(tamper: Callable[[Path], None], run: Path) -> None:
    """Only weights cannot be told from others by somebody who believes the manifest: that is what it is for."""
    tamper(run)
    reseal(run)
    assert TAMPERED[tamper][1] in failing(verify(run))


def test_release_alone_is_enough_under_any_name(reported: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(reported / "release", tmp_path / "from Ann"))
    for place in (reported, reported / "release", copy):
        verified = verify(place)
        assert verified.holds
        assert verified.sentence == from_json(Guarantee, (copy / ReleaseFile.GUARANTEE).read_bytes()).sentence()
    ours, theirs = load(reported)[0], load(copy)[0]
    for one, other in zip(ours.module.parameters(), theirs.module.parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(RunError, match="a run folder"):
        report([copy])


def test_verify_reads_no_private_file(run: Path) -> None:
    shutil.rmtree(run / "private")
    assert verify(run).holds


def released(folder: Path) -> list[Path]:
    return release_files(folder / "release")


@hypothesis_settings(max_examples=60)
@given(data=st.data())
def test_any_flipped_bit_of_any_released_file_is_found(reported: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(released(reported)), "file")
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1), "byte"), data.draw(st.integers(0, 7), "bit")
    flip(path, *at)
    try:
        with pytest.raises(TacitError):
            check_verified(RunFolder.view(reported))
    finally:
        path.write_bytes(whole)
    check_verified(RunFolder.view(reported))


def test_a_removed_file_is_missed(reported: Path) -> None:
    for path in released(reported):
        whole = path.read_bytes()
        path.unlink()
        assert f"{path.name} is missing" in failing(verify(reported))
        path.write_bytes(whole)
    assert verify(reported).holds


def test_what_nobody_sealed_is_named(run: Path) -> None:
    """A file, a folder, and a link in place of a file; what a killed writer left behind is no released file."""
    release = run / "release"
    (release / "notes.txt").write_text("x")
    assert failing(verify(run)) == "notes.txt is not covered by the manifest"
    with pytest.raises(RunError, match=r"notes\.txt.*Way out: remove it"):
        load(run)
    (release / "notes.txt").unlink()
    (release / "more").mkdir()
    assert failing(verify(run)) == "more is not covered by the manifest"
    (release / "more").rmdir()
    (release / ".draft-report.html").write_text("half a p")
    assert verify(run).holds
    config = release / ReleaseFile.CONFIG
    config.rename(run / "config.json")
    config.symlink_to(run / "config.json")
    assert failing(verify(run)) == "tacit/config.json is not a regular file"


def test_a_ledger_cut_anywhere_is_found(run: Path) -> None:
    path = run / "release" / ReleaseFile.LEDGER
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        assert ReleaseFile.LEDGER in failing(verify(run))


def test_a_file_that_an_interrupted_verb_left_is_made_anew_by_it(tmp_path: Path) -> None:
    """Killed between the file and its seal: the verb itself repairs it, others name it."""
    folder = write_run(tmp_path / "run", "redaction")
    with RunFolder.open(folder) as opened:
        opened.write_text(ReleaseFile.AUDIT, "{}")
        opened.write_text(ReleaseFile.REPORT, "half")
    found = verify(folder)
    assert "audit.json was changed" in failing(found)
    with pytest.raises(RunError, match="make it again: tacit audit run"):
        report([folder])
    rewritten = write_run(tmp_path / "other", "redaction") / "release" / ReleaseFile.AUDIT
    with RunFolder.open(folder) as opened:
        opened.write_text(ReleaseFile.AUDIT, rewritten.read_text())
        opened.seal()
    report([folder])
    assert verify(folder).holds


def test_a_persons_own_readme_is_covered_by_the_next_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "redaction")
    (folder / "release" / ReleaseFile.MODEL_CARD).write_text("# Mine\n")
    assert failing(verify(folder)) == "README.md is not covered by the manifest"
    report([folder])
    assert verify(folder).holds


def test_a_seal_does_not_cover_what_others_changed(run: Path) -> None:
    edit(run, ReleaseFile.CONFIG, lambda text: text.replace("dpsgd", "crt"))
    with RunFolder.open(run) as opened:
        opened.write_text(ReleaseFile.REPORT, "page")
        opened.seal()
    assert failing(verify(run)) == "tacit/config.json was changed: its SHA-256 is not the one in manifest.json"


def test_a_run_that_is_not_finished_says_so(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run").close()
    found = failing(verify(tmp_path / "run"))
    assert "the run is not finished" in found
    with pytest.raises(RunError, match="Way out: tacit train --resume run"):
        load(tmp_path / "run")


def stopping(steps: int) -> Callable[[Progress], None]:
    def observe(progress: Progress) -> None:
        if progress.stage == "training" and progress.done == steps:
            raise KeyboardInterrupt

    return observe


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that was stopped after two of its steps."""
    settings = experiment(write_corpus(tmp_path), "crt", model_config=SHAPE, checkpoint_steps=1)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", stopping(2))
    return tmp_path / "run"


def test_a_resumed_run_verifies_once_it_is_finished(stopped: Path) -> None:
    assert "the run is not finished" in failing(verify(stopped))
    ended = resume(stopped, quiet)
    verified = verify(stopped)
    assert failing(verified) == ""
    assert verified.sentence == ended.guarantee.sentence()
    resume(stopped, quiet)  # once more changes nothing
    assert verify(stopped) == verified


def test_a_resumed_run_refuses_what_was_prepared_and_changed(stopped: Path) -> None:
    """A flipped bit in the prepared store trained another model under the same claim."""
    private = stopped / "private"
    prepared = [path for path in sorted(private.rglob("*.bin")) if path.stat().st_size]
    beside = [private / PrivateFile.MARKS, *sorted(private.rglob("header.json"))]
    assert len(prepared) > 15
    for path in [*prepared, *beside]:
        flip(path, -1)
        with pytest.raises((RunError, PrepareError), match=path.name):
            resume(stopped, quiet)
        flip(path, -1)
    resume(stopped, quiet)
    assert verify(stopped).holds


def test_a_changed_store_would_train_another_model(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the check a resumed run trains on it, and its claim is the same."""
    other = Path(shutil.copytree(stopped, stopped.with_name("other")))
    tokens = other / "private" / PrivateFile.PREPARED / "public" / "tokens.bin"
    for place in range(0, tokens.stat().st_size, 2):
        flip(tokens, place)
    monkeypatch.setattr("tacit.training.stages.check_stores", lambda _: None)
    assert resume(stopped, quiet).guarantee == resume(other, quiet).guarantee
    ours, theirs = (dict(load(folder)[0].module.named_parameters()) for folder in (stopped, other))
    assert not all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_finished_run_that_was_changed_is_not_sealed_anew_by_resuming_it(run: Path) -> None:
    edit(run, ReleaseFile.MADE, lambda text: text.replace("torch", "torches"))
    with pytest.raises(RunError, match=r"made\.json was changed"):
        resume(run, quiet)


def test_an_audit_refuses_a_prepared_store_that_was_changed(run: Path) -> None:
    """Its members would be other ones."""
    for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT):
        path = run / "private" / place / "public" / "tokens.bin"
        flip(path, len(path.read_bytes()) // 2)
        with pytest.raises(PrepareError, match=r"tokens\.bin"):
            audit(run, AuditConfig(), quiet)
        flip(path, len(path.read_bytes()) // 2)


def own(words: PlanSettings) -> Own:
    private = words.private(words.need("records"))

    def schedule(steps: PrivateSteps) -> Plan:
        return Plan((Phase(((steps.step(View.FULL, Pool.EVERY), steps.steps),)),))

    return Own("mine", private, schedule, Unit.RECORD)


def test_a_mechanism_of_ones_own_is_verified_from_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its price follows from the plan itself, so nobody needs its code."""
    with monkeypatch.context() as patch:
        patch.setattr("tacit.mechanisms.registry._OWN", {})
        register_mechanism("mine", "noise on everything", own)
        folder = write_run(
            tmp_path / "run", "mine", noise_multiplier=1.0, steps=20, expected_batch_size=16, records=500
        )
    assert verify(folder).holds
    louder_plan(folder)
    reseal(folder)
    assert LOUDER in failing(verify(folder))


def test_a_run_that_stops_by_choice_is_charged_whole(tmp_path: Path) -> None:
    """With fewer executions than planned: only where plan.json says that models were looked at."""
    planned = plan(
        {"mechanism": "dpsgd", "noise_multiplier": 1.0, "steps": 60, "expected_batch_size": 64, "records": 2000}
    )
    for chooses in (True, False):
        terms = Terms(describe(planned.mechanism), planned.plan, chooses=chooses)
        with RunFolder.create(tmp_path / str(chooses)) as opened:
            opened.ledger.declare("private", terms.prices()["private"])
            opened.ledger.charge("private", 5)
            opened.write_json(ReleaseFile.PLAN, terms)
            opened.write_json(ReleaseFile.GUARANTEE, terms.conclude({"private": 5}, Evidence()))
            opened.seal()
    assert terms.conclude({"private": 60}, Evidence()).figures == planned.guarantee.figures
    verified = verify(tmp_path / "True")
    assert verified.holds
    assert verified.sentence == planned.guarantee.sentence()
    assert "counts 5 executions of 'private' where plan.json has 60" in failing(verify(tmp_path / "False"))


def test_numbers_may_differ_by_the_last_digits_and_no_more() -> None:
    """Arithmetic of another machine; a figure just above a rounding step may round to the next digit."""
    said = plan(
        {"mechanism": "dpsgd", "noise_multiplier": 1.0, "steps": 60, "expected_batch_size": 64, "records": 2000}
    ).guarantee
    figure = said.figures[0]
    assert disagreement(replace(said, figures=said.figures), said) is None
    near, far = ((replace(figure, epsilon=figure.epsilon * part), *said.figures[1:]) for part in (1 - 1e-9, 0.9999))
    assert disagreement(replace(said, figures=near), said) is None
    assert "figures.0.epsilon" in (disagreement(replace(said, figures=far), said) or "")
    above = replace(said, claim="epsilon 2.001, delta 1", figures=(replace(figure, epsilon=2 + 1e-10),))
    below = replace(said, claim="epsilon 2, delta 1", figures=(replace(figure, epsilon=2.0),))
    assert disagreement(below, above) is None
    for claim in ("epsilon 1.999, delta 1", "epsilon 1, delta 1", "epsilon 2.001, delta 2", "Epsilon 2.001, delta 1"):
        assert disagreement(replace(above, claim=claim), above) is not None


def test_figures_and_curves_that_do_not_follow_are_found(tmp_path: Path) -> None:
    """Also those that no sentence repeats; a curve may have other points, if they are true."""
    folder = write_run(tmp_path / "run", "selective", leak=None)
    guarantee = RunFolder.view(folder).read_json(Guarantee, ReleaseFile.GUARANTEE)
    first, *rest = guarantee.figures

    def with_first(**changes: object) -> str:
        rewrite(folder, ReleaseFile.GUARANTEE, figures=(replace(first, **changes), *rest))  # type: ignore[arg-type]
        return failing(verify(folder))

    assert "figures.0.mu" in with_first(mu=first.mu / 2)
    assert "figures.0.profile" in with_first(profile=((0.01, first.profile[0][1]), *first.profile[1:]))
    epsilons, deltas = np.array(first.curve).T
    assert "figures.0.curve" in with_first(curve=tuple(zip(epsilons.tolist(), (deltas / 2).tolist(), strict=True)))
    assert with_first(curve=first.curve[::2]) == ""
    rewrite(folder, ReleaseFile.GUARANTEE, figures=guarantee.figures, holds_if=guarantee.holds_if[1:])
    assert "entries in holds_if" in failing(verify(folder))
    swapped = guarantee.claim.replace(str(first), f"({rest[0].epsilon:.4g}, {str(first).split(', ')[1]}")
    rewrite(folder, ReleaseFile.GUARANTEE, holds_if=guarantee.holds_if, claim=swapped)
    assert "in its claim where" in failing(verify(folder))


def test_hostile_files_end_in_a_check_that_does_not_hold(run: Path) -> None:
    for file, content in {
        ReleaseFile.PLAN: (run / "release" / ReleaseFile.PLAN).read_text().replace('"steps": 3', '"steps": -3'),
        ReleaseFile.GUARANTEE: "[" * 100_000,
        ReleaseFile.LEDGER: "[" * 100_000,
        ReleaseFile.MANIFEST: json.dumps({"files": {"../../etc/passwd": "0"}, "ledger": {"head": "", "length": 0}}),
    }.items():
        path = run / "release" / file
        whole = path.read_bytes()
        path.write_text(content)
        assert failing(verify(run))
        path.write_bytes(whole)
    fifo = run / "release" / ReleaseFile.GUARANTEE
    fifo.unlink()
    os.mkfifo(fifo)
    assert "guarantee.json is not a regular file" in failing(verify(run))


def test_the_command_line(run: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    fine = runner.invoke(app, ["verify", str(run)])
    assert fine.exit_code == 0
    assert "does not hold" not in fine.output
    assert verify(run).sentence in fine.output.replace("\n", " ")  # type: ignore[operator]
    as_json = runner.invoke(app, ["verify", str(run / "release"), "--json"])
    assert as_json.exit_code == 0
    assert from_json(Verified, as_json.output) == verbs.verify(run)
    smaller_claim(run)
    wrong = runner.invoke(app, ["verify", str(run)])
    assert wrong.exit_code == 1
    flat = " ".join(wrong.output.split())
    assert "guarantee.json was changed" in flat
    assert "Way out: restore the file" in flat
    assert "0.01, " not in flat
    told = runner.invoke(app, ["verify", str(run), "--json"])
    assert told.exit_code == 1
    assert json.loads(told.output)["sentence"] is None
    with pytest.raises(RunError, match="no folder"):
        runner.invoke(app, ["verify", str(tmp_path / "missing")], catch_exceptions=False)


def test_what_is_sealed_is_what_is_there(reported: Path) -> None:
    """The manifest names every file but itself, and where the ledger ends."""
    manifest = json.loads((reported / "release" / ReleaseFile.MANIFEST).read_text())
    assert {*manifest["files"], ReleaseFile.MANIFEST} == {
        path.relative_to(reported / "release").as_posix() for path in released(reported)
    }
    assert manifest["ledger"]["length"] == len((reported / "release" / ReleaseFile.LEDGER).read_text().splitlines())
    assert read_entries(reported / "release" / ReleaseFile.LEDGER).charges() == {"private": 3, "utility": 1}
    assert len(PreparedCorpus(reported / "private" / PrivateFile.PREPARED)) > 0
    assert to_json(verify(reported))
