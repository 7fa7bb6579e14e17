"""`tacit plan` as a person meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit import api
from tacit.cli.main import app
from tacit.cli.output import name_of
from tacit.cli.train import PLAN_FLAGS
from tacit.errors import ConfigError
from tacit.mechanisms.registry import REGISTRY

QUICK = ["plan", "--mechanism", "dpsgd", "--records", "1000", "--expected-batch-size", "50", "--epochs", "3"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with errors as a person sees them."""
    code = "from tacit.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_slow_libraries_are_not_loaded() -> None:
    """Together they take longer than all the rest of a plan."""
    slow = ("torch", "transformers", "dp_accounting", "scipy.signal", "scipy.stats")
    code = f"""
import sys
from tacit.cli.main import main
try:
    main()
finally:
    print([name for name in {slow} if name in sys.modules])
"""
    command = [sys.executable, "-c", code, "plan", "--mechanism", "selective", "--epsilon", "8", "--records", "2000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_list_names_every_mechanism() -> None:
    output = CliRunner().invoke(app, ["plan", "--list"]).output
    assert all(name in output for name in REGISTRY)


def test_every_word_is_a_flag() -> None:
    output = CliRunner().invoke(app, ["plan", "--help"], env={"COLUMNS": "200"}).output
    assert all(f"--{word.replace('_', '-')}" in output for word in map(name_of, PLAN_FLAGS))


def test_prints_noise_rate_steps_sentence_and_curve() -> None:
    output = CliRunner().invoke(app, [*QUICK, "--epsilon", "3"]).output
    for words in ("noise multiplier", "sampling rate", "60 x noisy", "differential privacy", "holds if", "█"):
        assert words in output


def test_prints_what_is_not_protected() -> None:
    output = CliRunner().invoke(app, [*QUICK, "--epsilon", "3"]).output
    assert "does not protect what several records of one person say together" in output


def test_a_shuffled_pass_has_no_sampling_rate() -> None:
    words = ["--mechanism", "cadp-published", "--flagged", "900", "--recall", ".98", "--noise-multiplier", "5"]
    output = CliRunner().invoke(app, ["plan", *words]).output
    assert "20 x split batch" in output
    assert "sampling rate" not in output


def test_printed_noise_keeps_the_target() -> None:
    """Whoever types the printed noise in by hand must not spend more than was asked for."""
    output = CliRunner().invoke(app, [*QUICK, "--epsilon", "3"]).output
    noise = next(line.split()[-1] for line in output.splitlines() if line.startswith("noise multiplier"))
    again = json.loads(CliRunner().invoke(app, [*QUICK, "--noise-multiplier", noise, "--json"]).output)
    assert again["guarantee"]["figures"][0]["epsilon"] <= 3
    exact = json.loads(CliRunner().invoke(app, [*QUICK, "--epsilon", "3", "--json"]).output)
    assert float(noise) >= exact["plan"]["phases"][0]["turns"][0][0]["update"]["noise_multiplier"]


def test_json_holds_plan_and_guarantee() -> None:
    result = json.loads(CliRunner().invoke(app, [*QUICK, "--epsilon", "3", "--json"]).output)
    assert result["guarantee"]["figures"][0]["epsilon"] <= 3
    assert result["plan"]["phases"]
    assert result["sentence"].startswith("Each training record")
    assert result["curve"][-1][0] == 60


def test_certificate_is_markdown() -> None:
    output = CliRunner().invoke(app, [*QUICK, "--noise-multiplier", "1.1", "--certificate"]).output
    assert output.startswith("# Privacy guarantee: dpsgd")
    assert "## Holds if" in output


def test_flags_go_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    asked = "plan: {mechanism: dpsgd, expected_batch_size: 50, epochs: 3, noise_multiplier: 5}"
    file.write_text(f"{asked}\ncounts: {{records: 1000}}\n")
    result = json.loads(CliRunner().invoke(app, ["plan", str(file), "--noise-multiplier", "1.1", "--json"]).output)
    assert result["settings"]["noise_multiplier"] == 1.1
    assert result["settings"]["expected_batch_size"] == 50


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "--mechanism", "selectve", "--records", "10"], "did you mean selective"),
        (["plan", "--mechanism", "dpsgd", "--epsilon", "2"], "--records"),
        (["plan", "--mechanism", "dpsgd", "--records", "10", "--epsilon", "2", "--recall", "0.9"], "recall"),
        (["plan"], "--list"),
    ],
)
def test_errors_have_three_parts_and_no_traceback(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert all(part in done.stderr for part in ("expected", "found", "way out", says))
    assert "Traceback" not in done.stderr


def test_brackets_in_an_error_are_printed_as_they_are() -> None:
    done = run("plan", "[/x].yaml")
    assert done.returncode == 2
    assert "[/x].yaml" in done.stderr


def test_counts_can_be_taken_from_a_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    rows = [{"body": f"My PIN is {n}." if n % 2 else "No secret.", "user": f"u{n // 4}"} for n in range(2000)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["plan", "--corpus", str(corpus), "--text-field", "body", "--noise-multiplier", "2", "--epochs", "1"]
    by_command = json.loads(CliRunner().invoke(app, [*words, "--mechanism", "dpsgd", "--json"]).output)
    settings = {"noise_multiplier": 2.0, "epochs": 1.0}
    by_function = api.plan("dpsgd", corpus=iter(rows), settings=settings, text_field="body")
    assert by_command["plan"] == by_function.to_json()["plan"]
    assert by_function.mechanism.private is not None
    assert 1860 <= by_function.mechanism.private.population <= 1940  # 5 % are kept for measuring
    marked = api.plan("selective", corpus=rows, policy="digits", settings=settings, text_field="body").mechanism.private
    assert marked is not None
    assert marked.population == by_function.mechanism.private.population // 2


def test_a_count_is_given_or_counted_but_not_both() -> None:
    with pytest.raises(ConfigError, match=r"both for records.*leave one out"):
        api.plan("dpsgd", epsilon=8, counts={"records": 5}, corpus=[{"text": "one"}, {"text": "two"}])
