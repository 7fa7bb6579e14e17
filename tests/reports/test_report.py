"""The pages of runs: true to the folders, pure, safe whatever the folders say, complete, and quick."""

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from test_scan_page import HOSTILE, Page
from typer.testing import CliRunner

from finished_runs import CLASSES, WORDS, make_audit, make_plan, rewrite, text_utility, write_run
from saved import release_files
from tacit.audits.attacks.exposure import exposure_finding
from tacit.audits.findings import Audit, Outcome, Verdict
from tacit.cli.main import app
from tacit.errors import ConfigError, RunError
from tacit.privacy.guarantee import Condition, Guarantee, Order, Status, compare
from tacit.reports.comparison_page import comparison_page, differing, matrix, standing
from tacit.reports.finished_run import Finished, read_run, read_runs
from tacit.reports.run_page import run_page
from tacit.reports.write import report
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile

SECTIONS = ("protected", "secret", "utility", "ledger", "attacks", "again", "certificate")


def page_of(folder: Path) -> Page:
    return Page(run_page(read_run(folder)))


@pytest.mark.parametrize("mechanism", list(WORDS))
def test_a_page_says_what_the_folder_says(tmp_path: Path, mechanism: str) -> None:
    run = read_run(write_run(tmp_path / "the-run", mechanism))
    page = run_page(run)
    parsed = Page(page)
    claim = run.guarantee.claim
    assert claim in parsed.text
    for condition in run.guarantee.holds_if:
        assert condition.text in parsed.text
    for line in (*run.guarantee.coverage, *run.guarantee.not_protected):
        assert line in parsed.text
    ids = {value for name, value in parsed.attributes if name == "id"}
    assert {*SECTIONS} <= ids
    assert "the-run" in parsed.text
    assert not re.search(
        r"(?<![a-z])(nan|inf|None)(?![a-z])", re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL)
    )
    assert len(page) < 500_000


def test_an_unaudited_run_says_so(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "run", leak=None))
    assert "Not audited: run tacit audit RUN" in page.text
    assert page.text.count("Not audited") >= 2


@pytest.mark.parametrize(
    ("outcome", "tone"), [(Outcome.CONSISTENT, "good"), (Outcome.CONTRADICTED, "bad"), (Outcome.NOT_COMPARABLE, "mute")]
)
def test_the_verdict_has_a_word_and_a_colour(tmp_path: Path, outcome: Outcome, tone: str) -> None:
    folder = write_run(tmp_path / "run")
    rewrite(folder, ReleaseFile.AUDIT, verdict=Verdict(outcome, f"{outcome.value.capitalize()}: because of this."))
    page = run_page(read_run(folder))
    assert f'class="sheet verdict {tone}"' in page
    assert "<p>Because of this.</p>" in page


def test_a_leak_is_seen_and_the_bound_is_drawn_only_where_the_claim_is_about_records(tmp_path: Path) -> None:
    records = run_page(read_run(write_run(tmp_path / "dpsgd", "dpsgd"), inside=True))
    secrets = run_page(read_run(write_run(tmp_path / "selective", "selective"), inside=True))
    assert 'data-series="membership-allowed"' in records
    assert 'data-series="membership-allowed"' not in secrets
    assert "which this claim does not hide" in secrets
    leaking = write_run(tmp_path / "leaking", "dpsgd", leak=18.0, noise_multiplier=3.0, steps=5)
    run = read_run(leaking)
    assert run.audit is not None
    assert run.audit.verdict.outcome == Outcome.CONTRADICTED
    assert "verdict bad" in run_page(run)


def test_classifiers_show_error_rates_and_no_perplexity(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "dpsgd", utility=CLASSES)
    page = page_of(run)
    assert "Test error rate" in page.text
    assert "Perplexity" not in page.text
    both = Page(comparison_page(read_runs([run, write_run(tmp_path / "other", "plain", utility=CLASSES)])))
    assert "Privacy against errors" in both.text


def test_g1_the_pages_are_pure_functions_of_the_folders(tmp_path: Path) -> None:
    names = ("plain", "selective")
    pages = []
    for place in ("here", "there/deeper"):
        folders = [write_run(tmp_path / place / name, name) for name in names]
        pages.append((run_page(read_run(folders[1])), comparison_page(read_runs(folders))))
        assert str(tmp_path) not in "".join(pages[-1])
    assert pages[0] == pages[1]
    shutil.rmtree(tmp_path / "here" / "selective" / "private")  # it is not needed, and never read
    assert run_page(read_run(tmp_path / "here" / "selective")) == pages[0][0]


def test_paths_of_the_machine_in_settings_are_cut(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", config={"policy": str(tmp_path / "secret-place" / "mine.yaml")})
    page = run_page(read_run(folder))
    assert "mine.yaml" in page
    assert "secret-place" not in page


@pytest.mark.usefixtures("unverified")
@pytest.mark.parametrize("hostile", HOSTILE)
def test_g2_hostile_text_stays_text(tmp_path: Path, hostile: str) -> None:
    harmless = Page(run_page(read_run(write_run(tmp_path / "harmless"))))
    name = re.sub(r"[/\x00]", "_", hostile)
    folder = write_run(tmp_path / name, config={hostile: {hostile: hostile}, "policy": hostile}, template=hostile)
    claim = {"claim": hostile, "not_protected": (hostile,), "coverage": (hostile,), "code_version": hostile}
    rewrite(folder, ReleaseFile.GUARANTEE, holds_if=(Condition(hostile, Status.MET),), mechanism=hostile, **claim)
    rewrite(folder, ReleaseFile.AUDIT, verdict=Verdict(Outcome.CONSISTENT, hostile))
    other = write_run(tmp_path / "other", "plain")
    single, several = run_page(read_run(folder)), comparison_page(read_runs([folder, other]))
    for page in (single, several):
        parsed = Page(page)
        assert parsed.tags.count("script") == 1
        assert not [name for name, _ in parsed.attributes if name.startswith("on") or name == "src"]
        links = [value for name, value in parsed.attributes if name == "href"]
        assert all(value is not None and value.startswith("#") for value in links)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    assert set(Page(single).tags) <= set(harmless.tags)
    report([folder])
    card = (folder / "release" / ReleaseFile.MODEL_CARD).read_text()
    assert "<script" not in card
    assert "<img" not in card
    yaml.safe_load(card.split("---")[1])


def test_g2_the_page_runs_its_own_script_alone(tmp_path: Path) -> None:
    page = run_page(read_run(write_run(tmp_path / "run")))
    assert re.search(r"default-src &#39;none&#39;; script-src &#39;sha256-[\w+/=]+&#39;", page)
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.usefixtures("unverified")
def test_g3_much_text_gives_a_small_page(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", config={"policy": "x" * 5_000_000, "many": {f"a{at}": at for at in range(2000)}}
    )
    rewrite(folder, ReleaseFile.GUARANTEE, claim="long " * 200_000)
    many = make_audit(read_run(folder).guarantee, 1.0)
    rewrite(folder, ReleaseFile.AUDIT, canaries=tuple(replace(one, charts=one.charts * 40) for one in many.canaries))
    assert len(run_page(read_run(folder))) < 2_000_000


def test_twenty_runs_render_in_seconds(tmp_path: Path) -> None:
    folders = []
    for at in range(20):
        name = ("plain", "redaction", "dpsgd", "selective", "crt")[at % 5]
        folders.append(write_run(tmp_path / f"run-{at}", name, utility=text_utility(5 + at / 3, 60 + at)))
    began = time.process_time()
    page = comparison_page(read_runs(folders))
    assert time.process_time() - began < 5
    assert len(page) < 2_000_000
    assert page.count('<section class="run"') == 20


@pytest.mark.parametrize("different", [True, False])
def test_two_hundred_runs_give_a_page_that_grows_with_their_number(tmp_path: Path, different: bool) -> None:
    """Settings and claims that all differ, or claims that repeat as those of seeds do."""
    kinds = [read_run(write_run(tmp_path / name, name), inside=True) for name in ("dpsgd", "selective", "crt", "plain")]
    pages = [comparison_page([many_of(kinds, at, different) for at in range(count)]) for count in (100, 200)]
    assert pages[1].count('<section class="run"') == 200
    assert len(pages[1]) < 2_000_000
    assert len(pages[1]) < 2.1 * len(pages[0])
    assert ("too many for a table" in pages[1]) == different


def many_of(kinds: list[Finished], at: int, different: bool) -> Finished:
    run = kinds[at % len(kinds)]
    settings = {"model": f"model-{at}", **{f"setting_{word}": f"value-{at}-{word}" for word in range(8)}}
    figures = tuple(
        replace(one, profile=tuple((epsilon * (1 + at / 100), delta) for epsilon, delta in one.profile))
        for one in run.guarantee.figures
    )
    guarantee = replace(run.guarantee, figures=figures) if different else run.guarantee
    return replace(
        run,
        name=f"a-sweep-of-models-{at}",
        at=at + 1,
        config=run.config | settings,
        guarantee=guarantee,
        utility=text_utility(5 + at / 30, 60 + at),
    )


def test_the_report_never_imports_torch(tmp_path: Path) -> None:
    folders = [str(write_run(tmp_path / name, name)) for name in ("plain", "selective")]
    code = (
        "import sys; from pathlib import Path; from tacit.reports.write import report\n"
        "folders = [Path(one) for one in sys.argv[1:]]; report(folders[:1]); report(folders, folders[0] / 'all.html')\n"
        "assert not {'torch', 'transformers', 'safetensors'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, *folders], check=True, timeout=60)


def test_a_comparison_keeps_the_order_and_says_what_compares(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "loud", "dpsgd", noise_multiplier=0.7),
        write_run(tmp_path / "nothing", "plain"),
        write_run(tmp_path / "quiet", "dpsgd", noise_multiplier=2.0),
        write_run(tmp_path / "secrets", "selective", noise_multiplier=5.0),
    ]
    runs = read_runs(folders)
    page = Page(comparison_page(runs))
    table = comparison_page(runs).split('<table class="runs">')[1].split("</table>")[0]
    assert re.findall(r"<bdi>(.*?)</bdi>", table) == ["loud", "nothing", "quiet", "secrets"]
    assert "quiet promises more than loud" in page.text
    assert "secrets and loud" in page.text
    assert "they protect different things: a record's secrets, zero-out against a record, zero-out" in page.text
    for row, first in enumerate(runs):
        for column, second in enumerate(runs):
            comparison = matrix(runs)[row][column]
            assert comparison == (None if row == column else compare(first.guarantee, second.guarantee))
    assert "plan.noise_multiplier: 0.7" in differing(runs)[1]
    assert not any(words.startswith("task") for words in differing(runs)[1])


@pytest.mark.parametrize("missed", [True, False])
def test_canaries_that_the_policy_missed_are_shown_beside_the_others(tmp_path: Path, missed: bool) -> None:
    """A policy that hides what it knows and says what it missed must not look safe."""
    folder, other = write_run(tmp_path / "run", "redaction"), write_run(tmp_path / "other", "plain")
    safe, leaky = make_plan(0.0), make_plan(12.0)
    unknown = (replace(leaky, known=False),) if missed else ()
    rewrite(folder, ReleaseFile.AUDIT, canaries=(exposure_finding((safe, *unknown)),))
    page, compared = run_page(read_run(folder)), comparison_page(read_runs([folder, other]))
    table = compared.split('<table class="runs">')[1].split("</table>")[0]
    assert ("not told: 12.6" in table) == missed
    assert ("How much of a missed canary is known" in compared) == missed
    assert ("Exposure of canaries that the policy was not told of" in page) == missed


def test_labels_leave_out_what_all_names_end_with_and_the_middle_of_long_ones(tmp_path: Path) -> None:
    names = ("plain-seed-0", "a-name-that-is-long-misses-10-seed-0", "a-name-that-is-long-misses-50-seed-0")
    folders = [
        write_run(tmp_path / name, "plain", utility=text_utility(5 + 9 * at, 60)) for at, name in enumerate(names)
    ]
    page = comparison_page(read_runs(folders))
    picture = re.findall(r'<svg [^>]*"chart-utility-title[^>]*>(.*?)</svg>', page, re.DOTALL)[0]
    labels = re.findall(r'<text [^>]*class="label[^>]*>(.*?)</text>', picture)
    assert sorted(labels) == ["a-name-th…-misses-10", "a-name-th…-misses-50", "plain"]


@pytest.mark.parametrize(("second", "curves"), [(2.0, 1), (0.7, 0)])
def test_a_line_leads_from_one_epsilon_to_another_and_nowhere_else(second: float, curves: int, tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / f"run-{at}", "dpsgd", utility=text_utility(5 + at, 60), noise_multiplier=noise)
        for at, noise in enumerate((0.7, second))
    ]
    page = comparison_page(read_runs(folders))
    drawn = dict(re.findall(r'<svg [^>]*"chart-(\w+)-title[^>]*>(.*?)</svg>', page, re.DOTALL))
    assert drawn["utility"].count('class="series') == drawn["public"].count('class="series') == curves


@pytest.mark.usefixtures("unverified")
def test_profiles_at_other_deltas_do_not_compare(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "a", "dpsgd"), write_run(tmp_path / "b", "dpsgd")
    guarantee = RunFolder.view(second).read_json(Guarantee, ReleaseFile.GUARANTEE)
    short = replace(guarantee.figures[0], profile=guarantee.figures[0].profile[:3])
    rewrite(second, ReleaseFile.GUARANTEE, figures=(short, *guarantee.figures[1:]))
    runs = read_runs([first, second])
    assert standing(*runs).order is Order.NOT_COMPARABLE
    comparison_page(runs)


def test_equal_names_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / place / "run", "plain") for place in ("a", "b")]
    assert [run.name for run in read_runs(folders)] == ["a/run", "b/run"]
    with pytest.raises(ConfigError, match="twice"):
        read_runs([folders[0], folders[0]])


def test_the_files_beside_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "my run")
    written = report([folder])
    release = folder / "release"
    assert written.page == release / "tacit" / "report.html"
    papers = {ReleaseFile.CERTIFICATE, ReleaseFile.REGISTRY, ReleaseFile.MODEL_CARD}
    assert set(written.beside) == {release / name for name in papers}
    guarantee = read_run(folder).guarantee
    assert guarantee.sentence() in (release / ReleaseFile.CERTIFICATE).read_text()
    assert yaml.safe_load((release / ReleaseFile.REGISTRY).read_text())["name"] == "my run"
    card = (release / ReleaseFile.MODEL_CARD).read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front["model-index"][0]["results"][0]["metrics"][0]["type"] == "perplexity"
    before = {path.name: path.read_bytes() for path in release_files(release)}
    report([folder])
    assert {path.name: path.read_bytes() for path in release_files(release)} == before
    (release / ReleaseFile.MODEL_CARD).write_text("# Mine\n")
    assert report([folder]).kept == release / ReleaseFile.MODEL_CARD
    assert (release / ReleaseFile.MODEL_CARD).read_text() == "# Mine\n"


def test_folders_that_are_no_finished_runs_are_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no folder"):
        report([tmp_path / "missing"])
    with pytest.raises(RunError, match="without a run"):
        report([tmp_path])
    begun = tmp_path / "begun"
    RunFolder.create(begun).close()
    with pytest.raises(RunError, match="tacit train --resume"):
        report([begun])
    cut = write_run(tmp_path / "cut")
    files = (ReleaseFile.AUDIT, ReleaseFile.GUARANTEE, ReleaseFile.UTILITY, ReleaseFile.PLAN)
    for file in (*files, ReleaseFile.MADE):
        path = cut / "release" / file
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(RunError, match=file):
            report([cut])
        path.write_bytes(whole)
    ledger = cut / "release" / ReleaseFile.LEDGER
    ledger.write_bytes(ledger.read_bytes().replace(b"times", b"timez"))
    with pytest.raises(RunError, match="ledger"):
        report([cut])
    with pytest.raises(ConfigError, match="--out"):
        report([write_run(tmp_path / "fine")], tmp_path / "nowhere" / "page.html")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [str(write_run(tmp_path / name, name)) for name in ("plain", "redaction")]
    one = CliRunner().invoke(app, ["report", folders[0]])
    assert one.exit_code == 0, one.output
    assert (tmp_path / "plain" / "release" / "tacit" / "report.html").is_file()
    several = CliRunner().invoke(app, ["report", *folders])
    assert several.exit_code == 0, several.output
    assert "page comparison.html" in several.output
    assert "2 runs compared" in (tmp_path / "comparison.html").read_text()
    chosen = CliRunner().invoke(app, ["report", *folders, "--out", "other.html"])
    assert chosen.exit_code == 0
    assert (tmp_path / "other.html").read_bytes() == (tmp_path / "comparison.html").read_bytes()


def test_a_reader_without_colours_or_eyes_gets_everything(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, name) for name in ("plain", "dpsgd", "selective")]
    pages = [run_page(read_run(folders[1])), comparison_page(read_runs(folders))]
    for page in pages:
        parsed = Page(page)
        assert parsed.tags.count("h1") == 1
        labels = " ".join(value or "" for name, value in parsed.attributes if name == "aria-labelledby").split()
        ids = [value for name, value in parsed.attributes if name == "id"]
        assert len(ids) == len(set(ids))
        assert set(labels) <= set(ids)
        pictures = page.count('<svg class="picture"')
        assert pictures >= 4
        assert page.count("<desc ") == pictures
        assert page.count('<details class="numbers"') == pictures
        assert parsed.tags.count("th") == sum(name == "scope" for name, _ in parsed.attributes)


def test_what_is_private_is_not_on_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for file in ("settings.json", "canaries.json", "steps.jsonl"):
        (folder / "private" / file).write_text(json.dumps({"secret": "the-secret-value-4711"}))
    report([folder])
    for path in release_files(folder / "release"):
        assert b"the-secret-value-4711" not in path.read_bytes()
    audit = RunFolder.view(folder).read_json(Audit, ReleaseFile.AUDIT)
    assert audit.canaries
