"""What the page says of policies, versions and training records: counted, bounded, and with no secret in it."""

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_scan_page import HOSTILE, Page
from typer.testing import CliRunner

from finished_runs import make_plan, reseal, rewrite, write_run
from marking import measured, sampled
from runs import experiment, quiet, write_corpus
from saved import release_files
from tacit.api import five_ways as quick
from tacit.audits.attacks.exposure import exposure_finding
from tacit.cli.main import app
from tacit.common.serialize import from_json, to_json
from tacit.config.load import load_config, released
from tacit.config.schema import Config
from tacit.config.setting import NO, VALUE, every_setting
from tacit.data.corpus import read
from tacit.data.records import Record, Span
from tacit.errors import ConfigError, RunError
from tacit.policies.card import MOST_KINDS, OTHERS, PolicyCard
from tacit.policies.marking import KEPT, Excerpt, Inside
from tacit.policies.patterns import Digits, Gold, Regex
from tacit.policies.policy import Forgetful
from tacit.privacy.account import account, average_case
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Coverage, Evidence
from tacit.reports.claim_charts import average_case_chart
from tacit.reports.comparison_page import comparison_page
from tacit.reports.drawing import draw
from tacit.reports.finished_run import read_inside, read_run, read_runs
from tacit.reports.run_page import run_page
from tacit.reports.write import report, report_inside
from tacit.runs.folder import RunFolder
from tacit.runs.release import Environment, MadeWith, PrivateFile, ReleaseFile, code_hash, environment
from tacit.training.stages import train


def labelled(number: int, text: str = "call 5550199 or Ann", kind: str = "NAME") -> Record:
    return Record(f"r{number}", text, spans=(Span(5, 12, "PHONE"), Span(16, 19, kind)))


def inside_run(folder: Path, records: list[Record], **words: Any) -> Path:  # noqa: ANN401
    """A finished run with a sample of `records`, in which digits are secret."""
    write_run(folder, **words)
    sampler = sampled(records, Digits())
    with RunFolder.open(folder) as run:
        kept = Inside(sampler.excerpts(), (("PHONE", len(records)), ("<b>", 1)))
        run.write_json(PrivateFile.SAMPLE, kept)
    return folder


def test_g1_a_measured_policy_holds_counts_and_names_of_kinds_alone() -> None:
    records = [labelled(at) for at in range(6)] + [labelled(9, kind="Ann Lee"), labelled(10, kind="seed")]
    found = measured(Digits(), records)
    assert found is not None
    assert (found.counts.records, found.counts.missed_records) == (8, 8)
    kinds = found.counts.kinds
    assert set(kinds) == {"PHONE", "PERSON", "DIGITS", "SEED", OTHERS}
    assert (kinds["PHONE"].gold, kinds["PHONE"].covered) == (8, 8)
    assert (kinds["PERSON"].gold, kinds["PERSON"].covered) == (6, 0)
    assert kinds[OTHERS].gold == 1
    assert found.overall.counts.gold == 16
    many = [labelled(at, kind=f"K{at}") for at in range(100)]
    most = measured(Digits(), many)
    assert most is not None
    assert len(most.kinds) <= MOST_KINDS + 1
    assert sum(one.gold for one in most.counts.kinds.values()) == 200


def test_g3_a_policy_that_knows_the_labels_and_records_without_labels_give_nothing() -> None:
    records = [labelled(at) for at in range(6)]
    assert measured(Gold(), records) is None
    assert measured(Forgetful(Gold(), 0.5, 1), records) is None
    assert measured(Digits(), [replace(record, spans=None) for record in records]) is None
    assert measured(Digits(), [replace(record, spans=()) for record in records]) is None
    broken = replace(records[0], spans=(Span(5, 500, "PHONE"),))
    found = measured(Digits(), [*records, broken])
    assert found is not None
    assert found.counts.records == 6


def test_the_card_stands_on_the_page_with_exact_intervals_or_is_said_to_be_missing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert "exact counts of labeled records are not released" in Page(run_page(read_run(folder))).text
    (folder / "private" / PrivateFile.POLICY).unlink()
    unmeasured = Page(run_page(read_run(folder, inside=True))).text
    assert "was not measured: the held-out records have no labels" in unmeasured
    found = measured(Digits(), [labelled(at) for at in range(20)])
    with RunFolder.open(folder) as run:
        run.write_json(PrivateFile.POLICY, found)
    assert RunFolder.view(folder).read_json(PolicyCard, PrivateFile.POLICY) == found
    page = Page(run_page(read_run(folder, inside=True)))
    assert "Measured on 20 held-out records" in page.text
    assert "PHONE: 100.0 % of 20" in page.text
    assert "83.1 to 100.0 %" in page.text  # Clopper-Pearson for 20 of 20: 0.025 ** (1 / 20)
    assert "PERSON: 0.0 % of 20" in page.text


def test_planted_records_that_were_left_out_are_said_beside_their_exposure(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert "left out of training" not in run_page(read_run(folder))
    rewrite(folder, ReleaseFile.AUDIT, canaries=(exposure_finding((replace(make_plan(0.0), left_out=37),)),))
    told, kept = (Page(run_page(read_run(folder, inside))).text for inside in (True, False))
    assert "37 planted records were left out of training as duplicates" in told
    assert "left out of training" not in kept


def test_a_run_says_what_it_was_made_with_and_what_it_was_resumed_under(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "release" / ReleaseFile.MADE).unlink()
    reseal(folder)
    with RunFolder.open(folder) as run:
        run.note_environment()
        run.note_environment()
        run.seal()
        assert run.read_json(MadeWith, ReleaseFile.MADE) == MadeWith((environment(),))
    page = Page(run_page(read_run(folder))).text
    for library in ("torch", "numpy", "dp-accounting"):
        assert f"{library} {dict(environment().libraries)[library]}" in page
    assert code_hash()[:50] in page
    assert re.fullmatch("[0-9a-f]{64}", code_hash())
    older = Environment("0" * 64, "3.11.0", "Linux x86_64", (("tacit", "0.0.9"),))
    with RunFolder.open(folder) as run:
        run.write_json(ReleaseFile.MADE, MadeWith((older,)))
        run.note_environment()
        run.seal()
        assert run.read_json(MadeWith, ReleaseFile.MADE) == MadeWith((older, environment()))
    assert "Then, resumed under" in Page(run_page(read_run(folder))).text
    assert str(tmp_path) not in (folder / "release" / ReleaseFile.MADE).read_text()


def test_every_setting_that_is_a_word_is_known_to_name_a_file_or_not(tmp_path: Path) -> None:
    """A setting of free text that is added later has to be put on one side."""
    free = {one for one in every_setting(Config) if one.type in (str, str | None) and "[]" not in one.name}
    harmless = {"execution.device", "lora.base_name", "plan.mechanism"}
    left = {one.name for one in free if one.release == VALUE}
    assert left == harmless
    fields = {f"data.{part}_field" for part in ("text", "id", "user", "label", "spans", "turns", "messages")}
    assert {one.name for one in free if one.release == NO} == {"corpus", "data.held_out_corpus"} | fields
    given = {one.name: f"{tmp_path}/deep/{one.name}.yaml" for one in free if one.name not in harmless}
    examples = {"ORDER": ["an example that somebody took from the corpus"]}
    words = {**given, "plan.mechanism": "plain", "canaries": [_SLASHED], "inventions": examples}
    settings = load_config(words)
    outside = released(settings)
    assert str(tmp_path) not in json.dumps(outside)
    assert "an example" not in json.dumps(outside)
    assert "Carla" not in json.dumps(outside)
    assert outside["data"]["vocabulary_corpus"] == "data.vocabulary_corpus.yaml"
    assert outside["audit"]["canaries"][0]["template"] == _SLASHED["template"]
    assert released(load_config(settings, {"policy": "digits,pii"}))["policy"] == "digits,pii"


_SLASHED = {"template": "see example.org/home/{6 digits}", "count": 2, "words": ["Carla", "Dmitri"]}


@pytest.mark.usefixtures("unverified")
def test_the_average_case_figure_is_drawn_for_crt_alone_and_is_that_of_the_theorem(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "plain", "dpsgd")
    assert average_case_chart([read_run(plain)], {1: ("key", 0)}) is None
    folder = write_run(tmp_path / "crt", "crt")
    run = read_run(folder)
    figure = run.guarantee.figures[1]
    assert figure.neighbors.relation == Relation.REPLACE
    replaced = account(run.plan.spend(figure.neighbors))
    chart = average_case_chart([run], {1: ("key", 0)})
    assert chart is not None
    assert float(chart.table.rows[0][4]) == pytest.approx(
        average_case(replaced, figure.delta, 0.1, 0).amplified, rel=1e-3
    )
    assert float(chart.table.rows[0][7]) == pytest.approx(figure.epsilon, rel=1e-3)
    assert chart.table.rows[0][-2:] == ("not stated", "–")
    among = (Coverage(300, 2), Coverage(5000, 0))
    evidence = Evidence(among_secrets=among)
    rewrite(folder, ReleaseFile.GUARANTEE, evidence=evidence)
    drawn = average_case_chart([read_run(folder, inside=True)], {1: ("key", 0)})
    assert drawn is not None
    own = average_case(replaced, figure.delta, *(coverage.miss_rate_at(0.975) for coverage in among))
    shown = re.findall(r"[\d.e-]+", drawn.table.rows[0][-1])
    assert [float(one) for one in shown] == pytest.approx([own.amplified, own.delta], rel=1e-2)
    assert draw(drawn).picture.count('<a class="point" href="#run-1"') == 1
    both = comparison_page(read_runs([plain, folder]))
    assert "What a policy that misses little is worth" in both
    assert 'id="chart-amplification-title"' in run_page(read_run(folder))


def test_a_sample_hides_secrets_and_does_not_depend_on_the_order() -> None:
    records = [labelled(at, f"call 555{at:04} or Ann 555{at:04}") for at in range(200)]
    samplers = [sampled(seen, Regex(r"555\d+", "PHONE")) for seen in (records, records[::-1])]
    kept = [{str(one.pieces) for one in sampler.excerpts()} for sampler in samplers]
    assert kept[0] == kept[1]
    assert len(samplers[0].excerpts()) == KEPT
    written = to_json(Inside(samplers[0].excerpts(), ()))
    assert "555" not in written
    assert "Ann" not in written
    assert "call" in written
    assert from_json(Inside, written).excerpts == samplers[0].excerpts()
    lengths = {str(_excerpt_of(text).pieces) for text in ("call 1234567 or Ann", "call 12345678901 or Ann")}
    assert len(lengths) == 1  # the length of a secret shows nowhere


def _excerpt_of(text: str) -> Excerpt:
    return sampled([Record("r", text)], Digits()).excerpts()[0]


def test_the_inside_page_stays_inside(tmp_path: Path) -> None:
    folder = inside_run(tmp_path / "run", [labelled(at) for at in range(9)])
    report([folder])
    before = {path.name: path.read_bytes() for path in release_files(folder / "release")}
    written = report_inside(folder, 5)
    assert written.page == folder / "private" / "report.html"
    assert stat.S_IMODE(written.page.stat().st_mode) == 0o600
    assert {path.name: path.read_bytes() for path in release_files(folder / "release")} == before
    text = written.page.read_text()
    page = Page(text)
    assert "Not for release" in page.text
    assert "contains no text of the corpus" not in page.text
    assert text.count("<article") == 5
    assert "call " in page.text
    assert "5550199" not in text
    assert "Ann" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert report_inside(folder, 5).page.read_text() == text
    outside = (folder / "release" / "tacit" / "report.html").read_text()
    assert "Not for release" not in outside
    assert "<article" not in outside
    assert "contains no text of the corpus" in outside


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_records_stay_text_on_the_inside_page(tmp_path: Path, hostile: str) -> None:
    record = Record(hostile, f"{hostile} 5550199 {hostile}")
    folder = inside_run(tmp_path / "run", [record], template=hostile)
    with RunFolder.open(folder) as run:
        kept = Inside(read_inside(folder).excerpts, ((hostile, 3),))
        run.write_json(PrivateFile.SAMPLE, kept)
    text = report_inside(folder, 5).page.read_text()
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


def test_a_record_of_ten_megabytes_gives_a_small_inside_page(tmp_path: Path) -> None:
    folder = inside_run(tmp_path / "run", [Record("r", "5550199 " + "x <b> " * 1_700_000)])
    assert (folder / "private" / PrivateFile.SAMPLE).stat().st_size < 10_000
    assert len(report_inside(folder, 20).page.read_bytes()) < 500_000


def test_a_damaged_sample_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    folder = inside_run(tmp_path / "run", [labelled(1)])
    path = folder / "private" / PrivateFile.SAMPLE
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=PrivateFile.SAMPLE):
        report_inside(folder, 5)
    path.write_text('{"excerpts": [{"record": 1}], "kinds": []}')
    with pytest.raises(RunError, match=f"Inside as JSON[^$]*{PrivateFile.SAMPLE}"):
        report_inside(folder, 5)
    path.unlink()
    with pytest.raises(RunError, match="leave --sample out"):
        report_inside(folder, 5)
    with pytest.raises(ConfigError, match="at least one record"):
        report_inside(folder, 0)


def test_the_command_line_keeps_a_sample_in_its_run(tmp_path: Path) -> None:
    folder = inside_run(tmp_path / "run", [labelled(at) for at in range(4)])
    done = CliRunner().invoke(app, ["report", str(folder), "--sample", "2"])
    assert done.exit_code == 0, done.output
    assert "not for release" in done.output
    assert (folder / "private" / "report.html").read_text().count("<article") == 2
    for more in (["--out", str(tmp_path / "page.html")], [str(write_run(tmp_path / "other"))]):
        refused = CliRunner().invoke(app, ["report", str(folder), "--sample", "2", *more])
        assert refused.exit_code != 0
    assert not (tmp_path / "page.html").exists()


def _secrets(corpus: Path, apart: str) -> set[str]:
    """What labels mark in a corpus, where it is long enough to be looked for and stands in no text known otherwise."""
    values = {record.text[span.start : span.end] for record in read(corpus) for span in record.spans or ()}
    return {value for value in values if len(value) >= 5 and value not in apart}


def _said(files: list[Path], secrets: set[str]) -> list[tuple[str, str]]:
    return [(path.name, one) for path in files for one in secrets if one.encode() in path.read_bytes()]


@pytest.mark.slow
def test_no_way_of_the_quickstart_releases_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of every run's `release/`, the comparison and the sample pages, searched for every labelled secret."""
    monkeypatch.setattr(quick, "DIALOGS", 16)
    monkeypatch.setitem(quick.SHARED, "model_config", {"embedding_size": 8, "hidden_size": 8, "dropout": 0.0})
    monkeypatch.setitem(quick.SHARED, "vocabulary_size", 300)
    for way in quick.WAYS.values():
        less = {"public_epochs": 1, "epochs": 1, "expected_batch_size": 10}
        monkeypatch.setitem(way, "plan", {**way["plan"], **{word: less[word] for word in less if word in way["plan"]}})
    result = quick.quickstart(None, tmp_path / "quick")
    ways = result.ways
    assert all(way.trained is not None for way in ways)
    folders = [tmp_path / "quick" / way.mechanism for way in ways]
    pages = [result.page, *(report_inside(folder, 20).page for folder in folders)]
    released = [path for folder in folders for path in release_files(folder / "release")]
    apart = (tmp_path / "quick" / "public.jsonl").read_text() + run_page(read_run(write_run(tmp_path / "any")))
    secrets = _secrets(tmp_path / "quick" / "corpus.jsonl", apart)
    assert len(secrets) > 30
    assert len(released) > 60
    assert _said([*released, *pages], secrets) == []


def test_a_trained_run_releases_no_secret_and_hides_those_its_policy_missed(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, 30)
    settings = experiment(corpus, "selective", policy="pii", model_config={"hidden_size": 8, "embedding_size": 8})
    train(settings, tmp_path / "run", quiet)
    run = tmp_path / "run"
    report([run])
    page = report_inside(run, 20).page
    found = read_run(run)
    assert found.measured is None
    measured = read_run(run, inside=True).measured
    assert measured is not None
    assert measured.counts.records > 0
    assert found.made == (environment(),)
    secrets = _secrets(corpus, run_page(found))
    assert len(secrets) > 50
    released = release_files(run / "release")
    assert {"utility.json", "made.json", "config.json", "report.html"} <= {path.name for path in released}
    assert _said(released, secrets) == []
    assert _said([page, run / "private" / PrivateFile.SAMPLE], secrets) == []
    assert "hidden" in page.read_text()
    assert str(tmp_path) not in "".join(path.read_text() for path in released if path.suffix in (".json", ".html"))
    assert _said([corpus], secrets) != []  # the search finds what is there
