"""Recipes, their needs, their processes and their tables: everything of a sweep but training itself."""

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from finished_runs import MADE, write_run
from marking import prepare
from tacit.audits.findings import Audit, Checkpoint
from tacit.cli.main import app
from tacit.common.files import digest
from tacit.common.progress import Progress
from tacit.common.serialize import dotted, from_words, to_json
from tacit.data.corpus import Fields, read, write_jsonl
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record
from tacit.data.tokenizer import NOTHING, Tokenizer, byte_tokenizer, train_bpe
from tacit.errors import ConfigError, RunError, TacitError
from tacit.papers.two_stage import TwoStageResult, two_stage_finding
from tacit.policies.patterns import Digits
from tacit.policies.registry import build_policy, parse_policy
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, code_hash
from tacit.runs.utility import Utility
from tacit.sweeps import scheduler as processes
from tacit.sweeps.recipe import Need, Recipe, nested, read_recipe, references, resolved, variations
from tacit.sweeps.result_columns import written
from tacit.sweeps.scheduler import Places, RunOutcome
from tacit.sweeps.sweep import MIXED, Board, Swept, make_needs, row_of, sweep
from tacit.sweeps.worker import MarkedCounts, count, figures, marked_texts, read_state, write_state

RECIPE: dict[str, Any] = {
    "name": "small",
    "needs": {"train": {"simulate": "customersim", "dialogs": 20}},
    "settings": {"corpus": "$train", "policy": "gold", "plan": {"mechanism": "plain", "public_epochs": 2}},
    "grid": {"seed": [0, 1, 2]},
}


def recipe_file(folder: Path, **over: Any) -> Path:  # noqa: ANN401
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, **over}, sort_keys=False))
    return path


def names(recipe: Recipe) -> list[str]:
    return [one.name for one in variations(recipe)]


# --- recipes ---


def test_g1_every_run_meets_every_choice(tmp_path: Path) -> None:
    runs = {
        "a": {"plan.public_epochs": 1},
        "b": {"grid": {"plan.public_batch_size": [8, 16]}, "model_config": {"layers": 2}},
    }
    found = variations(read_recipe(recipe_file(tmp_path, runs=runs, grid={"seed": [3, 4]})))
    assert [one.name for one in found] == [
        *("a-seed-3", "a-seed-4"),
        *(f"b-public_batch_size-{batch}-seed-{seed}" for batch in (8, 16) for seed in (3, 4)),
    ]
    assert [one.group for one in found] == ["a", "a", *["b-public_batch_size-8"] * 2, *["b-public_batch_size-16"] * 2]
    last = found[-1]
    assert last.settings["plan"] == {"mechanism": "plain", "public_epochs": 2, "public_batch_size": 16}
    assert last.differs == {"model_config.layers": 2, "plan.public_batch_size": 16, "seed": 4}


def test_an_axis_of_a_run_comes_before_the_one_that_all_share(tmp_path: Path) -> None:
    runs = {"once": {"plan.mechanism": "plain"}, "often": {"plan.mechanism": "plain", "grid": {"seed": [0, 1, 2]}}}
    found = names(read_recipe(recipe_file(tmp_path, runs=runs, grid={"seed": [5]})))
    assert found == ["once-seed-5", "often-seed-0", "often-seed-1", "often-seed-2"]


def test_g2_the_dial_moves_what_is_listed_and_nothing_else(tmp_path: Path) -> None:
    runs = {"a": {"plan.public_epochs": 8}, "b": {"plan": {"public_batch_size": 30}}}
    scales = ["needs.train.dialogs", "plan.public_epochs", "plan.public_batch_size"]
    file = recipe_file(tmp_path, runs=runs, grid={"plan.public_batch_size": [5, 50]}, scales=scales)
    assert read_recipe(file).needs["train"].dialogs == 20
    small = read_recipe(file, 0.1)
    assert small.needs["train"].dialogs == 2
    words = {one.name: one.settings["plan"] for one in variations(small)}
    assert words["a-public_batch_size-1"] == {"mechanism": "plain", "public_epochs": 1, "public_batch_size": 1}
    assert words["b-public_batch_size-5"] == {"mechanism": "plain", "public_epochs": 1, "public_batch_size": 5}
    large = {one.name: one.settings["plan"] for one in variations(read_recipe(file, 3))}
    assert large["a-public_batch_size-150"]["public_epochs"] == 24
    assert large["b-public_batch_size-150"]["public_epochs"] == 6


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"nam": "x"}, "nam"),
        ({"name": "a/b"}, "name"),
        ({"needs": {**RECIPE["needs"], "other": "x.jsonl"}}, "other, which none does"),
        ({"settings": {**RECIPE["settings"], "policy": "$trian"}}, "trian"),
        ({"needs": {"train": {"file": "a", "dialogs": 3}}}, "dialogs"),
        ({"needs": {"train": {"file": "a", "policy": "gold"}}}, "file and policy"),
        ({"needs": {"train": {"simulate": "customersim"}}}, "dialogs"),
        ({"grid": {"seed": []}}, "seed"),
        ({"grid": {"seed": [1, 1]}}, "'seed-1' twice"),
        ({"paper": {"plane": {"perplexity": 3}}}, "plane"),
        ({"paper": {"small": {"perplexety": 3}}}, "did you mean perplexity"),
        ({"runs": {"a b": {}}}, "a b"),
    ],
)
def test_g3_what_means_nothing_is_refused(tmp_path: Path, over: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_recipe(recipe_file(tmp_path, **over))
    assert words in str(refused.value)


@pytest.mark.parametrize("scales", [[], ["plan.epochs"], ["policy"], ["needs.train.records"]])
def test_g3_a_dial_that_would_move_nothing_is_refused(tmp_path: Path, scales: list[str]) -> None:
    with pytest.raises(ConfigError):
        read_recipe(recipe_file(tmp_path, scales=scales), 0.5)


def test_the_example_of_the_docstring_is_a_recipe(tmp_path: Path) -> None:
    from tacit.sweeps import recipe

    file = tmp_path / "example.yaml"
    lines = (
        (recipe.__doc__ or "").split("\n\n")[1].replace("$unsure, plan", "$unsure, vocabulary_corpus: $others, plan")
    )
    file.write_text(textwrap.dedent(lines))
    assert len(names(read_recipe(file, 0.5))) == 6


@given(st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("def"), st.integers(), min_size=1)))
def test_dotted_and_nested_are_inverse(words: dict[str, dict[str, int]]) -> None:
    assert nested(dotted(words)) == words


def test_references_are_found_wherever_they_are() -> None:
    words = {"a": "$x", "b": ["$y", {"c": "$z"}], "d": "costs 3$"}
    assert sorted(references(words)) == ["x", "y", "z"]
    assert resolved(words, {"x": "1", "y": "2", "z": "3"}) == {"a": "1", "b": ["2", {"c": "3"}], "d": "costs 3$"}


# --- needs ---


def _need(**words: Any) -> Need:  # noqa: ANN401
    return from_words(Need, words)


def test_needs_are_found_cut_written_or_simulated(tmp_path: Path) -> None:
    write_jsonl((Record(f"r{n}", f"text {n}") for n in range(9)), tmp_path / "all.jsonl")
    needs = {
        "whole": _need(file="all.jsonl"),
        "first": _need(file="all.jsonl", records=4),
        "policy": _need(policy={"widened": {"policy": "digits", "to": "sentence"}}),
        "made": _need(simulate="customersim", dialogs=3, seed=5),
    }
    made = make_needs(needs, tmp_path, tmp_path / "made")
    assert made["whole"].place == tmp_path / "all.jsonl"
    assert [one.id for one in read(made["first"].place)] == ["r0", "r1", "r2", "r3"]
    assert len(list(read(made["made"].place))) == 3
    assert parse_policy(str(made["policy"].place)) == build_policy(needs["policy"].policy)
    assert made["policy"].digest == build_policy(needs["policy"].policy).hash
    assert all(made[name].digest == digest(made[name].place) for name in ("whole", "first", "made"))
    again = make_needs(needs, tmp_path, tmp_path / "elsewhere")
    assert {name: one.digest for name, one in again.items()} == {name: one.digest for name, one in made.items()}


def test_g6_a_folder_is_known_by_its_files(tmp_path: Path) -> None:
    def known(place: Path) -> str:
        return make_needs({"model": _need(file="model")}, place, place / "made")["model"].digest

    for place in (tmp_path / "one", tmp_path / "two"):
        (place / "model" / "part").mkdir(parents=True)
        (place / "model" / "part" / "config.json").write_text("{}")
        (place / "model" / ".cache").write_text(place.name)
    before = known(tmp_path / "one")
    assert before == known(tmp_path / "two")
    (tmp_path / "two" / "model" / "part" / "config.json").write_text("{ }")
    assert known(tmp_path / "two") != before
    (tmp_path / "one" / "model" / "part" / "config.json").rename(tmp_path / "one" / "model" / "part" / "other.json")
    assert known(tmp_path / "one") != before


@pytest.mark.parametrize("way", ["policy", "file"])
def test_g6_a_policy_is_known_by_the_files_it_names(tmp_path: Path, way: str) -> None:
    """Names of files in a policy are looked for in the data folder, wherever the sweep writes."""
    definition = {"dictionary": "names.txt"}
    need = _need(policy=definition) if way == "policy" else _need(file="listed.yaml")

    def known(place: Path, words: str) -> str:
        place.mkdir(exist_ok=True)
        (place / "listed.yaml").write_text(yaml.safe_dump({"policy": definition}))
        (place / "names.txt").write_text(words)
        made = make_needs({"listed": need}, place, tmp_path / "runs" / place.name)["listed"]
        found = parse_policy(str(made.place)).find(Record("a", "Alice met Bob"))
        assert [span.start for span in found] == [0 if words == "Alice\n" else 10]
        return made.digest

    before = known(tmp_path / "one", "Alice\n")
    assert known(tmp_path / "two", "Alice\n") == before
    assert known(tmp_path / "one", "Bob\n") != before


def test_what_is_not_there_is_said_with_its_command(tmp_path: Path) -> None:
    needs = {"a": _need(file="a.jsonl", made_by="make FILE"), "b": _need(file="b.jsonl")}
    with pytest.raises(ConfigError, match=r"a\.jsonl, b\.jsonl") as missing:
        make_needs(needs, tmp_path, tmp_path / "made")
    assert f"make {tmp_path / 'a.jsonl'}" in missing.value.way_out
    assert "--data" in missing.value.way_out


# --- what perplexities are stated in ---

TEXTS = ["Born 1987 in a town of 3000 people .\n", "No number here at all .\n", "été 12 " * 30]


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_words_and_tokens_are_those_of_the_text(tmp_path: Path, kind: str) -> None:
    measure_tokenizer = train_bpe(TEXTS, 400, NOTHING)
    (tmp_path / "measure.json").write_text(json.dumps(measure_tokenizer.codec.definition()["content"]))
    tokenizer = byte_tokenizer() if kind == "bytes" else train_bpe(["another text of 12 words"], 270, NOTHING)
    records = [Record(f"r{n}", text) for n, text in enumerate(TEXTS)]
    store = prepare(records, Digits(), tokenizer, tmp_path / "store", PrepareConfig(max_tokens=40))
    assert len(store) > len(records)  # some are cut
    texts = list(marked_texts(store, tokenizer, 1000))
    assert [one.text for one in texts] == TEXTS
    words, tokens = count(iter(texts), tmp_path / "measure.json")
    assert words == MarkedCounts(sum(len(text.split()) for text in TEXTS), 2 + 30)
    assert tokens is not None
    assert tokens.overall == sum(map(len, measure_tokenizer.encode_batch(TEXTS)))
    assert 32 <= tokens.private < tokens.overall
    short = next(marked_texts(store, tokenizer, 5))
    assert TEXTS[0].startswith(short.text[:4])
    assert count(iter(texts), None)[1] is None


def test_a_tokenizer_that_loses_text_counts_nothing(tmp_path: Path) -> None:
    class Lossy:
        size, lossless, specials = 256, False, frozenset[int]()

        def encode_batch(self, texts: list[str]) -> list[list[int]]:
            return [list(text.lower().encode()) for text in texts]

    tokenizer = Tokenizer(Lossy(), NOTHING)  # type: ignore[arg-type]
    store = prepare([Record("a", "Text")], Digits(), byte_tokenizer(), tmp_path / "store", PrepareConfig())
    with pytest.raises(ConfigError):
        list(marked_texts(store, tokenizer, 10))


def test_figures_are_numbers_that_json_can_say(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "selective")
    with_attacks = figures(folder, MarkedCounts(100, 10), MarkedCounts(120, 0), attacks=True)
    text = json.dumps(with_attacks, allow_nan=False)
    assert str(tmp_path) not in text
    assert figures(folder, MarkedCounts(100, 10), MarkedCounts(120, 0), attacks=True) == with_attacks
    utility = with_attacks["utility"]
    nats = utility["tokens"]["overall"]["nats"]
    assert utility["words"]["overall"]["perplexity"] == pytest.approx(math.exp(nats / 100))
    assert utility["normalised"]["private"]["perplexity"] is None
    assert with_attacks["claim"]["figures"][0]["epsilon"] > 0
    assert with_attacks["attacks"]["checkpoints"] == []
    assert with_attacks["code"] == [*(one.code for one in MADE.environments), code_hash()]
    assert figures(folder, None, None, attacks=False)["attacks"] is None


def test_figures_have_the_models_on_the_way(tmp_path: Path) -> None:
    """Perplexities of models on the way are restated as that of the last model is."""
    folder = write_run(tmp_path / "run", "selective")
    run = RunFolder.view(folder)
    found, utility = run.read_json(Audit, PrivateFile.AUDIT), run.read_json(Utility, PrivateFile.UTILITY)
    last = Checkpoint(20, utility.overall.perplexity, {"exposure": found.figures["exposure"]})
    first = replace(last, step=10, perplexity=math.exp(800 / utility.overall.tokens), figures={})
    staged = two_stage_finding(TwoStageResult(60, 0.7, 0.6), None)
    assert staged is not None
    changed = replace(found, checkpoints=(first, last), training_records=(*found.training_records, staged))
    (folder / "private" / PrivateFile.AUDIT).write_text(to_json(changed))
    attacks = figures(folder, None, MarkedCounts(120, 0), attacks=True)["attacks"]
    early, late = attacks["checkpoints"]
    assert early["normalised"] == pytest.approx(math.exp(800 / 120))
    total = utility.overall.perplexity ** (utility.overall.tokens / 120)
    assert late["normalised"] == pytest.approx(total)
    assert early["figures"] == {}
    assert late["figures"]["exposure"] == attacks["figures"]["exposure"]
    assert attacks["figures"]["two-stage membership"] == 0.7
    assert attacks["figures"]["two-stage membership of random scores"] == 0.6
    assert figures(folder, None, None, attacks=True)["attacks"]["checkpoints"][0]["normalised"] is None


# --- processes, without training: what a process does is told by its seed ---

STUB = """
import json, os, signal, sys
job = json.loads(sys.stdin.readline())
seed = job["settings"]["seed"]
with open(os.environ["SAID"], "a") as said:
    said.write(f"{seed} {os.environ['OMP_NUM_THREADS']}\\n")
print(json.dumps({"progress": {"stage": "training", "done": 1, "total": 2, "tokens": 3, "epsilon": 0.5}}), flush=True)
todo = os.environ.get(f"SEED_{seed}", "works")
if todo == "waits":
    sys.stdin.read()
    sys.exit(130)
if todo == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
if todo == "refuses":
    found = f"{job['folder']} and {job['settings']['corpus']}"
    print(json.dumps({"refused": {"expected": "this", "found": found, "way_out": "that"}}))
    sys.exit(0)
os.makedirs(job["folder"], exist_ok=True)
part = {"count": 1, "nats": 1.0, "perplexity": 2.0, "accuracy": 0.5}
utility = {"tokens": {"overall": part, "public": part, "private": part}, "words": None, "normalised": None}
figures = {"mechanism": "plain", "claim": {"figures": [], "published": None}, "utility": utility, "attacks": None}
state = {"trained": job["identity"]["trained"], "audited": job["identity"]["audited"], "figures": figures,
         "stated": job["identity"]["stated"], "seconds": {"training": float(os.getpid())}, "refused": None}
with open(job["state"], "w") as file:
    json.dump(state, file)
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Which seeds were run since the last look, with how many threads."""
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-c", STUB))
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("OMP_NUM_THREADS", "4")

    def look() -> list[str]:
        lines = (tmp_path / "said").read_text().splitlines() if (tmp_path / "said").exists() else []
        (tmp_path / "said").write_text("")
        return sorted(lines)

    return look


Said = Callable[[], list[str]]


def test_g1_what_is_done_is_not_done_again(tmp_path: Path, said: Said) -> None:
    file = recipe_file(tmp_path)
    news: list[tuple[str, object]] = []
    first = sweep(file, jobs=2, observe=lambda name, one: news.append((name, one)))
    assert said() == ["0 2", "1 2", "2 2"]
    assert first.exit_code == 0
    assert ("seed-0", Progress("training", 1, 2, 3, None, 0.5)) in news
    assert not any(one.known for one in first.outcomes)
    second = sweep(file)
    assert said() == []
    assert all(one.known for one in second.outcomes)
    assert first.results == tmp_path / "small.results.json"
    more = recipe_file(tmp_path, grid={"seed": [0, 1, 2, 3]})
    (tmp_path / "small.runs" / "seed-1").rmdir()
    sweep(more)
    assert said() == ["1 4", "3 4"]


def test_g2_other_settings_under_a_name_are_refused_once_a_step_was_taken(tmp_path: Path, said: Said) -> None:
    sweep(recipe_file(tmp_path))
    said()
    plan = {"mechanism": "plain", "public_epochs": 3}
    other = recipe_file(tmp_path, settings={**RECIPE["settings"], "plan": plan})
    write_run(tmp_path / "small.runs" / "seed-1", "plain")  # its ledger has charges
    with pytest.raises(RunError, match="others under the same name") as refused:
        sweep(other)
    assert "remove" in refused.value.way_out
    assert said() == []
    sweep(other, out=tmp_path / "elsewhere")
    assert len(said()) == 3


def test_g2_files_are_settings_too(tmp_path: Path, said: Said) -> None:
    file = recipe_file(tmp_path, scales=["needs.train.dialogs"])
    sweep(file, out=tmp_path / "out")
    assert len(said()) == 3
    sweep(file, out=tmp_path / "out", scale=0.5)  # no step was taken in any folder: all begin anew
    assert len(said()) == 3
    write_run(tmp_path / "out" / "seed-0", "plain")
    with pytest.raises(RunError, match="others under the same name"):
        sweep(file, out=tmp_path / "out")


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, said: Said) -> None:
    (tmp_path / "small.runs" / "seed-1").mkdir(parents=True)
    (tmp_path / "small.runs" / "seed-1" / "mine").write_text("x")
    with pytest.raises(RunError, match="no folder"):
        sweep(recipe_file(tmp_path))
    assert (tmp_path / "small.runs" / "seed-1" / "mine").exists()
    assert said() == []


def test_g3_failures_are_recorded_and_stop_nobody(tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_0", "refuses")
    monkeypatch.setenv("SEED_1", "dies")
    swept = sweep(recipe_file(tmp_path))
    assert swept.exit_code == 1
    refused, killed, fine = swept.outcomes
    assert refused.refused == {
        "expected": "this",
        "found": "OUT/seed-0 and OUT/.sweep/needs/train.jsonl",
        "way_out": "that",
    }
    assert killed.refused is not None
    assert killed.refused["found"] == "one that ended by signal 9"
    assert fine.refused is None
    content = json.loads(swept.results.read_text())
    assert [bool(line["refused"]) for line in content["runs"]] == [True, True, False]
    assert str(tmp_path) not in swept.results.read_text()
    said()
    monkeypatch.delenv("SEED_0")
    monkeypatch.delenv("SEED_1")
    assert sweep(recipe_file(tmp_path)).exit_code == 0
    assert said() == ["0 4", "1 4"]


def test_the_command_says_which_runs_failed_and_why(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEED_0", "refuses")
    result = CliRunner().invoke(app, ["sweep", str(recipe_file(tmp_path))], catch_exceptions=False)
    assert len(said()) == 3
    assert result.exit_code == 1
    words = " ".join(result.output.split())
    assert "seed-0 failed: expected this found OUT/seed-0" in words
    assert "seed-1: done" in words
    assert "no guarantee covers that" in words


def test_g4_equal_results_are_equal_bytes_but_for_seconds(tmp_path: Path, said: Said) -> None:
    def written(place: str, jobs: int) -> dict[str, Any]:
        (tmp_path / place).mkdir()
        swept = sweep(recipe_file(tmp_path / place), jobs=jobs)
        content: dict[str, Any] = json.loads(swept.results.read_text())
        for line in content["runs"]:
            assert line.pop("seconds")
        return content

    assert json.dumps(written("a", 1)) == json.dumps(written("b", 3))
    assert len(said()) == 6


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("no model in /home/alice/secret-client/gpt2", "no model in gpt2"),
        ("/srv/a.jsonl: No such file", "a.jsonl: No such file"),
        ("found '/home/my notes/b.yaml', which", "found 'b.yaml', which"),
        ("a folder /data/my models/gpt2 or none", "a folder gpt2 or none"),
        ("/r/x.runs/one and /r/data/c.txt and (/r/y)", "OUT/one and DATA/c.txt and (RECIPE/y)"),
        ("rows/columns, 1 / 2, ../near and/or ~/mine", "rows/columns, 1 / 2, ../near and/or ~/mine"),
    ],
)
def test_g4_no_place_of_the_machine_is_in_a_reason(said: str, kept: str) -> None:
    places = Places.of(Path("/r/x.yaml"), None, None, None, 1.0)
    assert places.without(said, {"model": "/data/my models/gpt2", "model_config": {"layers": 2}}) == kept


def test_a_sweep_has_a_page_with_its_pictures(tmp_path: Path, said: Said) -> None:
    draws = [{"title": "Seeds of <one> run", "x": "epsilon", "y": "perplexity"}]
    swept = sweep(recipe_file(tmp_path, draws=draws))
    assert len(said()) == 3
    text = swept.page.read_text()
    assert "Seeds of &lt;one&gt; run" in text
    assert 'href="seed-1/release/tacit/report.html"' in text
    assert str(tmp_path) not in text
    assert swept.compared is None  # nothing was trained here
    assert sweep(recipe_file(tmp_path)).page.read_text().count("<figure") == 0
    assert said() == []


def test_kept_models_are_attacked_where_there_are_any(tmp_path: Path, said: Said) -> None:
    """One run keeps models, the other does not: both are audited, each as it can be."""
    runs = {"kept": {"save_steps": 5}, "not": {}}
    outcomes = sweep(recipe_file(tmp_path, runs=runs, grid={"seed": [0]}, audit={"checkpoints": True})).outcomes
    assert len(said()) == 2
    states = [read_state(tmp_path / "small.runs" / ".sweep" / f"{one.name}.json") for one in outcomes]
    audited = [state.audited for state in states if state is not None]
    assert audited[0] != audited[1]
    sweep(recipe_file(tmp_path, runs=runs, grid={"seed": [0]}, audit={}))
    assert said() == ["0 4"]  # only the run that had been attacked on its way


def test_runs_of_different_code_are_kept_and_said_to_be_so(tmp_path: Path, said: Said) -> None:
    file = recipe_file(tmp_path)
    assert MIXED not in sweep(file).warnings
    said()
    place = tmp_path / "small.runs" / ".sweep" / "seed-1.json"
    state = read_state(place)
    assert state is not None
    assert state.figures is not None
    write_state(place, replace(state, figures={**state.figures, "code": ["older"]}))
    swept = sweep(file)
    assert said() == []
    assert MIXED in swept.warnings
    assert json.loads(swept.results.read_text())["mixed"] == MIXED


def test_g5_a_second_sweep_of_a_folder_waits_and_is_refused(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_SECONDS_FOR_LOCK", 0.5)
    (tmp_path / "small.runs" / ".sweep").mkdir(parents=True)
    with processes.locked(tmp_path / "small.runs" / ".sweep" / "lock"), pytest.raises(RunError, match="the only sweep"):
        sweep(recipe_file(tmp_path))
    assert said() == []
    assert sweep(recipe_file(tmp_path)).exit_code == 0


def test_an_interrupt_ends_the_processes_and_is_no_failure(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEED_1", "waits")

    def interrupt(name: str, news: object) -> None:
        if name == "seed-1" and isinstance(news, Progress) and news.stage == "training":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sweep(recipe_file(tmp_path), observe=interrupt)
    assert said() == ["0 4", "1 4"]
    assert not (tmp_path / "small.results.json").exists()
    monkeypatch.delenv("SEED_1")
    assert sweep(recipe_file(tmp_path)).exit_code == 0
    assert said() == ["1 4", "2 4"]


def test_settings_that_mean_nothing_are_refused_before_anything_runs(tmp_path: Path, said: Said) -> None:
    file = recipe_file(tmp_path, runs={"good": {}, "bad": {"seed": -3}}, grid={})
    with pytest.raises(ConfigError, match="in the run bad: seed"):
        sweep(file)
    bad = {"model": "gpt", "model_config": {"width": 16, "heads": 3}}
    with pytest.raises(ConfigError, match=r"in the run bad: .* heads divide"):
        sweep(recipe_file(tmp_path, runs={"good": {}, "bad": bad}, grid={}))
    with pytest.raises(ConfigError, match=r"audit\.candidate"):
        sweep(recipe_file(tmp_path, audit={"candidate": 3}))
    assert said() == []
    with pytest.raises(ConfigError, match="at least one job"):
        sweep(recipe_file(tmp_path), jobs=0)


def test_no_audit_is_asked_for_where_none_is_wanted(tmp_path: Path, said: Said) -> None:
    sweep(recipe_file(tmp_path, audit=False))
    said()
    assert len(sweep(recipe_file(tmp_path), audit=False).outcomes) == 3
    assert said() == []
    sweep(recipe_file(tmp_path))
    assert len(said()) == 3


def test_the_board_says_how_far_each_run_is(tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_2", "refuses")
    swept: Swept = sweep(recipe_file(tmp_path))
    assert len(said()) == 3
    board = Board(("seed-0", "seed-1", "seed-2", "seed-3"), "four runs")
    board.observe("seed-0", swept.outcomes[0])
    board.observe("seed-1", Progress("training", 30, 120, epsilon=1.234))
    board.observe("seed-2", swept.outcomes[2])
    rows = board.rows()
    assert all(len(row) == len(Board.HEADS) for row in rows)
    assert rows[0][:5] == ("seed-0", "done", "2", "2", "none")
    assert rows[1][:5] == ("seed-1", "training 25%", "", "", "1.24")
    assert rows[2][1] == "failed"
    assert rows[3][1] == "waits"


def test_a_corpus_that_is_cut_keeps_the_names_of_its_fields(tmp_path: Path, said: Said) -> None:
    (tmp_path / "data").mkdir()
    rows = [{"body": f"text {n}", "customer": f"u{n}", "spans": [[0, 4, "KIND"]]} for n in range(9)]
    (tmp_path / "data" / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {**RECIPE["settings"], "text_field": "body", "data": {"user_field": "customer"}}
    file = recipe_file(tmp_path, needs={"train": {"file": "all.jsonl", "records": 4}}, settings=settings)
    assert sweep(file).exit_code == 0
    assert len(said()) == 3
    fields = Fields(text="body", user="customer")
    part = list(read(tmp_path / "small.runs" / ".sweep" / "needs" / "train.jsonl", fields))
    assert part == list(read(tmp_path / "data" / "all.jsonl", fields))[:4]
    runs = {"same": {}, "other": {"data.label_field": "class"}}
    with pytest.raises(ConfigError, match=r"the same field names .* that use \$train"):
        sweep(recipe_file(tmp_path, needs={"train": {"file": "all.jsonl", "records": 4}}, settings=settings, runs=runs))
    whole = recipe_file(tmp_path, needs={"train": {"file": "all.jsonl"}}, settings=settings, runs=runs)
    assert sweep(whole, out=tmp_path / "whole").exit_code == 0


# --- tables of results ---


def _module(name: str) -> ModuleType:
    place = Path(__file__).parents[2] / "benchmarks" / "reproduce" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return _module("tables")


def _line(group: str, seed: int, perplexity: float | None) -> dict[str, Any]:
    part = {"count": 9, "nats": 9.0, "perplexity": perplexity, "accuracy": 0.5}
    tokens = dict.fromkeys(("overall", "public", "private"), part)
    claim = {"figures": [{"neighbors": "a record", "epsilon": 1.9991, "delta": 1e-5}], "published": None}
    utility = {"tokens": tokens, "nats_a_character": 1.0, "words": None, "normalised": None}
    known = {"mechanism": group, "claim": claim, "utility": utility, "attacks": None}
    refused = {"expected": "a", "found": "b", "way_out": "c"}
    return {
        "name": f"{group}-seed-{seed}",
        "group": group,
        "seed": seed,
        "differs": {},
        "figures": known if perplexity is not None else None,
        "refused": None if perplexity is not None else refused,
        "seconds": {"training": 10.0, "audit": 2.0} if perplexity is not None else {},
    }


def test_a_table_has_means_deviations_and_the_papers_values(tmp_path: Path, tables: ModuleType) -> None:
    runs = {"dpsgd": {}, "plain": {"plan.public_epochs": 1}}
    file = recipe_file(tmp_path, runs=runs, paper={"dpsgd": {"perplexity": 305.86}})
    lines = [_line("dpsgd", seed, 10.0 + seed) for seed in range(3)] + [_line("plain", 0, 4.0), _line("plain", 1, None)]
    results = {"recipe": "small", "scale": 1.0, "runs": lines}
    made = tables.table(read_recipe(file), results, "tacit sweep small.yaml")
    head, _, first, second, *rest = made.splitlines()
    assert head.startswith("| run | perplexity | public perplexity | private perplexity | accuracy |")
    assert "exposure" not in head
    assert first.startswith("| `dpsgd`, 3 seeds | 11 ± 1 (paper: 305.86) | 11 ± 1 | 11 ± 1 | 0.5 ± 0 |")
    assert first.endswith("| 2 ± 0 | 12 |")
    assert second.startswith("| `plain`, 2 seeds | 4 (1 of 2) |")
    assert "`tacit sweep small.yaml`" in rest
    assert "Failed: plain-seed-1." in rest
    with pytest.raises(TacitError, match="results of small"):
        tables.table(read_recipe(file), {**results, "recipe": "other"}, "x")


def test_a_perplexity_that_diverged_is_said_to_have() -> None:
    assert written("perplexity", math.exp(700)) == "over 1e+99"
    assert written("perplexity", 1e98) == "1e+98"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ([True], "1.5 (0.5) bits"),
        ([False], "unknown 1.5 (0.5) bits"),
        ([True, False], "1.5 (0.5), unknown 1.5 (0.5) bits"),
        ([], ""),
    ],
)
def test_a_line_of_a_sweep_tells_of_known_and_of_unknown_canaries(known: list[bool], said: str) -> None:
    line = _line("plain", 0, 4.0)
    names = ["exposure" if one else "exposure, unknown" for one in known]
    found = dict.fromkeys(names, 1.5) | {f"{name}, not planted": 0.5 for name in names}
    line["figures"]["attacks"] = {"figures": found, "verdict": "holds"}
    assert row_of(RunOutcome("plain-seed-0", line))[Board.HEADS.index("canaries")] == said


def test_a_table_replaces_what_stands_between_its_markers(tmp_path: Path, tables: ModuleType) -> None:
    document = "# Results\n<!-- table: small -->\nold\n<!-- end -->\nkept\n<!-- table: b -->\nb\n<!-- end -->\n"
    replaced = tables.put(document, "small", "new\n")
    assert replaced == document.replace("old", "new")
    assert tables.put(replaced, "small", "new\n") == replaced
    for broken in ("", "<!-- table: small -->\n", "<!-- end -->\n", document + document):
        with pytest.raises(TacitError):
            tables.put(broken, "small", "new\n")
    place, results = tmp_path / "doc.md", tmp_path / "r.json"
    place.write_text(document)
    results.write_text(json.dumps({"recipe": "small", "scale": 0.5, "runs": [_line("small", 0, 3.0)]}))
    command = [sys.executable, str(tables.__file__), str(recipe_file(tmp_path)), "--results", str(results)]
    command += ["--into", str(place)]
    subprocess.run(command, check=True)
    assert "tacit sweep benchmarks/reproduce/small.yaml --scale 0.5" in place.read_text()
    assert "\nkept\n" in place.read_text()


# --- the papers' data ---


@pytest.mark.shared_data
def test_wikitext_is_lines_of_articles_and_its_windows_are_short(tmp_path: Path) -> None:
    corpora = _module("corpora")
    if not (corpora.DATA / "wikitext-2").exists():
        pytest.skip("the data sets of TACIT_DATA are not here")
    test, valid = (list(corpora.wikitext2(split)) for split in ("test", "valid"))
    assert (len(test), len(valid)) == (2891, 2461)
    assert len({record.user for record in test}) == 60
    assert not {record.user for record in test} & {record.user for record in valid}
    windows = list(corpora.wikitext2_windows("test"))
    assert "".join(one.text for one in windows) == "".join(record.text for record in test)
    lengths = [len(ids) for ids in corpora.gpt2().encode_batch([one.text for one in windows])]
    assert max(lengths) <= 36  # a word at the start of a window may be spelled otherwise than inside a line
    assert sum(lengths) / len(lengths) > 25
    recipe = tmp_path / "r.yaml"
    made_by = "python benchmarks/reproduce/corpora.py customersim FILE --split test --records 5"
    recipe.write_text(yaml.safe_dump({"needs": {"a": {"file": "a.jsonl", "made_by": made_by}, "b": "b.jsonl"}}))
    corpora.run(["--for", str(recipe), "--data", str(tmp_path / "data")])
    assert [record.id for record in read(tmp_path / "data" / "a.jsonl")] == [f"test-dial-{n}" for n in range(5)]
    assert not (tmp_path / "data" / "b.jsonl").exists()
