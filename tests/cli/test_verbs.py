"""Every verb of the command line is a function with the same words, and none is loaded before it is needed."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from readers import save_tiny_run
from tacit import api as verbs
from tacit.api.inputs import FieldNames
from tacit.cli.main import app
from tacit.cli.output import FIELDS
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.config.setting import every_setting
from tacit.data.corpus import read
from tacit.errors import ConfigError, RunError
from tacit.policies.patterns import Digits

NO_CANARIES = {"no_canaries": "settings={'audit.canaries': []}"}
IN_SETTINGS = {**NO_CANARIES, "minutes": "settings"}
OTHERWISE: dict[str, dict[str, str]] = {
    "policy compare": {"policy": "one more of `policies`"},
    "audit": {
        "model": "audit_model",
        **dict.fromkeys(("candidates", "checkpoints", "confidence", "seed"), "settings"),
        "out": "the result is returned",
        "show_secrets": "Run.canary_values",
        "processes": "torchrun",
    },
    "scan": {"no_stability": "stability=False"},
    "train": {
        "source": "corpus, or train_config(config(source))",
        "resume": "resume",
        "processes": "torchrun",
        **NO_CANARIES,
    },
    "prepare": {"source": "corpus, or prepare_config(config(source))", **IN_SETTINGS},
    "config": IN_SETTINGS,
    "sweep": {"slurm": "sweep_slurm"},
    "context": {"table": "the result is returned", "show_secrets": "nothing is printed"},
}
"""Words of the command line that have no parameter, and what stands for them in Python."""
CALLED = {"policy compare": "compare_policies"}
ONLY_IN_PYTHON = {
    "train": {"corpus", "expected_batch_size", "mode"},
    "prepare": {"corpus"},
    "audit": {"settings"},
    "quickstart": {"watch"},
}


def commands() -> dict[str, Any]:
    """Every verb, groups spelled out, by its name in Python."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    found: dict[str, Any] = {}
    for name, command in root.commands.items():
        inner = command.commands if isinstance(command, TyperGroup) else None
        found |= {name: command} if inner is None else {f"{name} {verb}": one for verb, one in inner.items()}
    return found


@pytest.mark.parametrize("name", [name for name in commands() if name != "plan"])
def test_every_verb_has_a_function_with_the_same_words(name: str) -> None:
    function = getattr(verbs, CALLED.get(name, name.replace(" ", "_")))
    words = {parameter.name for parameter in commands()[name].params if parameter.name not in ("help", "as_json")}
    known = set(inspect.signature(function).parameters)
    if "field_names" in known:
        known = known - {"field_names"} | FieldNames.__annotations__.keys()
    assert words - known == set(OTHERWISE.get(name, {}))
    assert known - words <= {"observe", *ONLY_IN_PYTHON.get(name, ())}


def test_names_of_fields_are_flags_wherever_a_corpus_is_read() -> None:
    declared = {one.name.removeprefix("data."): one.help for one in FIELDS}
    assert declared.keys() == FieldNames.__annotations__.keys()
    having = {name for name, one in commands().items() if declared.keys() <= {flag.name for flag in one.params}}
    reading = {"scan", "policy compare", "label draw", "label read", "detector measure", "train", "config"}
    reading |= {"plan", "prepare"}
    assert having == reading
    for name in reading:
        flags = {flag.name: flag.help for flag in commands()[name].params}
        assert all(flags[field].startswith(text) for field, text in declared.items())


def test_plan_takes_counts_and_settings_as_mappings() -> None:
    words = {parameter.name for parameter in commands()["plan"].params}
    declared = {one.name for kind in (PlanConfig, CorpusCounts) for one in every_setting(kind)}
    given = {"corpus", "policy", "conservative_policy", "model", *FieldNames.__annotations__}
    assert words - {"file", "list_", "json_", "certificate", "help"} - given == declared
    assert verbs.plan("plain", counts={"records": 10}).guarantee.claim == "No guarantee."


def test_all_lists_every_verb() -> None:
    functions = {name for name, value in vars(verbs).items() if inspect.isfunction(value) and name[0] != "_"}
    assert functions | {"PrivateStep", "Run"} == set(verbs.__all__)


def test_loading_the_verbs_loads_nothing_heavy() -> None:
    heavy = ("torch", "scipy", "pyarrow", "dp_accounting", "transformers", "pydantic", "numpy")
    program = f"import sys, tacit.api; print([name for name in {heavy!r} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_simulate_gives_the_records_that_it_writes(tmp_path: Path) -> None:
    records = list(verbs.simulate("customersim", dialogs=3, out=tmp_path / "c.jsonl"))
    assert list(read(tmp_path / "c.jsonl")) == records


def test_scan_and_labels_take_words_or_a_policy(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    verbs.simulate("customersim", dialogs=30, out=corpus)
    assert verbs.scan(corpus, "digits", processes=1) == verbs.scan(corpus, Digits(), processes=1)
    sample = verbs.label_draw(corpus, "digits", tmp_path / "s.jsonl", records=20, gold=True, conservative=Digits())
    assert sample.header.sampled == 20
    measured = verbs.label_read(
        tmp_path / "s.jsonl", Digits(), conservative="digits", corpus=corpus, out=tmp_path / "coverage.json"
    )
    assert measured.missed > 0
    assert (tmp_path / "coverage.json").exists()
    with pytest.raises(ConfigError, match="another file"):
        verbs.label_read(tmp_path / "s.jsonl", "digits", conservative="digits", out=tmp_path / "s.jsonl")
    with pytest.raises(ConfigError, match="leave one out"):
        verbs.label_draw(corpus, "digits", tmp_path / "t.jsonl", gold=True, show_found=True)


def test_config_is_what_the_command_line_would_use(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    words = ["--mechanism", "selective", "--epsilon", "2", "--set", "hidden_size=64", "--set", "plan.trainable=head"]
    printed = CliRunner().invoke(app, ["config", "c.jsonl", *words])
    (tmp_path / "s.yaml").write_text(printed.output)
    asked = verbs.config(
        "c.jsonl",
        mechanism="selective",
        epsilon=2,
        settings={"model_config": {"hidden_size": 64}, "plan": {"trainable": "head"}},
    )
    assert verbs.config(tmp_path / "s.yaml") == asked


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    verbs.simulate("customersim", dialogs=30, out=tmp_path / "c.jsonl")

    def stop(done: object) -> None:
        raise KeyboardInterrupt

    settings = {
        "held_out": 0.3,
        "max_tokens": 64,
        "max_full_tokens": 64,
        "model_config": {"hidden_size": 8, "embedding_size": 8},
        "plan": {"steps": 3, "expected_batch_size": 4, "noise_multiplier": 1},
    }
    with pytest.raises(KeyboardInterrupt):
        verbs.train(tmp_path / "c.jsonl", out=tmp_path / "run", mechanism="dpsgd", settings=settings, observe=stop)
    with pytest.raises(RunError, match="finish it"):
        verbs.load(tmp_path / "run").guarantee  # noqa: B018
    assert verbs.load(tmp_path / "run").resume().guarantee.figures


def test_policies_are_compared_by_words_or_by_name(tmp_path: Path) -> None:
    records = list(verbs.simulate("customersim", dialogs=10))
    by_words = verbs.compare_policies(records, ["digits", "pii"], processes=1)
    assert [one.name for one in by_words.policies] == ["digits", "pii"]
    assert verbs.compare_policies(records, {"mine": Digits()}, processes=1).policies[0].policy_hash == Digits().hash


def test_a_detector_is_trained_shown_and_measured(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("My bank security code is {3 digits}\n")
    verbs.simulate("customersim", dialogs=20, seed=5, out=tmp_path / "public.jsonl")
    words: dict[str, Any] = {"templates": tmp_path / "prompts.txt", "most": 40, "sentences": 200, "harmless": False}
    trained = verbs.detector_train(tmp_path / "made", tmp_path / "public.jsonl", **words)
    shown = verbs.detector_show(str(tmp_path / "made"))
    assert shown.hash == trained.detector.hash
    assert shown.card["settings"]["sentences"] == 200
    assert verbs.detector_measure(tmp_path / "made", tmp_path / "prompts.txt").of == 1
    with pytest.raises(ConfigError, match="way of paraphrasing"):
        verbs.detector_train(tmp_path / "other", tmp_path / "public.jsonl", reword=False)
    with pytest.raises(ConfigError, match="new folder"):
        verbs.detector_train(tmp_path / "made", tmp_path / "public.jsonl", **words)


def test_the_context_of_a_target(tmp_path: Path) -> None:
    run = save_tiny_run(tmp_path / "run")
    told = verbs.context("my code is 417, not 417", "417", run, alpha=0.5)
    assert told.start == 20
    assert told.shortest == told.suffixes[0], "nothing is needed where a model is never sure"
    first = verbs.context("my code is 417, not 417", "417", run, alpha=0.0, occurrence=1, reword=True, most=2)
    assert [one.words for one in first.suffixes] == [0, 1, 2, 3]
    assert len(first.suffixes[-1].probabilities) > 1, "with paraphrases"
    for occurrence in (0, 3):
        with pytest.raises(ConfigError, match="from 1 to 2"):
            verbs.context("my code is 417, not 417", "417", run, occurrence=occurrence)


def test_a_page_with_text_of_the_corpus_stays_inside(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="private"):
        verbs.report(tmp_path, out=tmp_path / "page.html", sample=3)


def test_quickstart_refuses_a_folder_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="new folder"):
        verbs.quickstart(out=tmp_path)
