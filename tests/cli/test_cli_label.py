"""`tacit label` as a person meets it: what is written, what is printed, and what is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scans import card_of
from tacit.cli.scan import label
from tacit.common.formatting import rounded_up
from tacit.data.corpus import write_jsonl
from tacit.errors import ClaimRefused, ConfigError, CorpusError, TacitError
from tacit.policies.coverage import read_coverage
from tacit.policies.registry import parse_policy
from tacit.privacy.guarantee import average_rates
from tacit.simulation.simulate import simulate


def run(*words: str | Path) -> str:
    """What is printed on both streams."""
    result = CliRunner().invoke(label, [str(word) for word in words])
    if result.exception is not None:
        raise result.exception
    assert result.exit_code == 0
    return result.output


@pytest.fixture(scope="module")
def dialogs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "dialogs.jsonl"
    write_jsonl(simulate("customersim", 60, 3, "train"), path)
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def secrets_of(corpus: Path) -> set[str]:
    found = {row["text"][start:end] for row in rows_of(corpus) for start, end, _ in row["spans"]}
    return {secret for secret in found if len(secret) > 3}


def fill(sample: Path, secrets: dict[str, Any]) -> None:
    header, *rows = rows_of(sample)
    rows = [row | {"secrets": secrets[row["id"]]} for row in rows]
    sample.write_text("".join(json.dumps(row) + "\n" for row in [header, *rows]))


def by_text(corpus: Path) -> dict[str, Any]:
    """What a careful person writes: every secret by its text."""
    return {row["id"]: [row["text"][start:end] for start, end, _ in row["spans"]] for row in rows_of(corpus)}


def test_fields_can_be_renamed(dialogs: Path, tmp_path: Path) -> None:
    """The same records are drawn, and the corpus is known again, under names of its own."""
    renamed, names = tmp_path / "renamed.jsonl", ("--text-field", "body", "--spans-field", "marks")
    rows = [{"id": row["id"], "body": row["text"], "marks": row["spans"]} for row in rows_of(dialogs)]
    renamed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--policy", "pii", "--records", "20", "--seed", "7", "--gold", "--out")
    run("draw", dialogs, *words, tmp_path / "usual.jsonl")
    run("draw", renamed, *words, tmp_path / "sample.jsonl", *names)
    drawn = [[row["id"] for row in rows_of(tmp_path / f"{name}.jsonl")[1:]] for name in ("usual", "sample")]
    assert drawn[0] == drawn[1]
    run("read", tmp_path / "sample.jsonl", "--policy", "pii", "--corpus", renamed, *names)
    with pytest.raises(CorpusError):
        run("read", tmp_path / "sample.jsonl", "--policy", "pii", "--corpus", renamed)


def test_from_a_draw_to_a_bound(dialogs: Path, tmp_path: Path) -> None:
    sample, out = tmp_path / "sample.jsonl", tmp_path / "coverage.json"
    words = ("--policy", "pii", "--conservative", "conservative")
    drawn = run("draw", dialogs, *words, "--records", "40", "--seed", "7", "--out", sample)
    assert "40 of 60 records" in drawn
    assert "seed 7" in drawn
    assert "contains secrets" in drawn
    assert "0600" in drawn
    assert f"tacit label read {sample} --policy pii --conservative conservative" in drawn
    assert sample.stat().st_mode & 0o777 == 0o600
    header, *rows = rows_of(sample)
    assert (header["population"]["segment_by"], header["population"]["records"]) == ("record", 60)
    assert all(row["secrets"] is None and "found" not in row and "spans" not in row for row in rows)
    fill(sample, by_text(dialogs))
    told = run("read", sample, *words, "--corpus", dialogs, "--out", out)
    pi, pi_c = parse_policy("pii"), parse_policy("conservative")
    coverage, cleared, among = read_coverage(out, pi.hash, pi_c.hash)
    assert coverage is not None
    assert cleared is not None
    assert among is not None
    assert among[0].missed >= coverage.missed
    assert cleared.missed == 0
    assert coverage.sampled == cleared.sampled == 40
    assert str(coverage) in told.replace("Audited", "audited")
    assert str(cleared) in told
    missed, lost = (rounded_up(rate, 3) for rate in average_rates(among))
    assert "Both at once, with 95% confidence, among records with secrets" in told
    assert f"at most {missed} missed or not redacted stably, and at most {lost} in which neither" in told
    assert out.stat().st_mode & 0o777 == 0o600
    for secret in secrets_of(dialogs):
        assert secret not in drawn + told + out.read_text()


def test_gold_labels_count_what_the_policy_card_counts(dialogs: Path, tmp_path: Path) -> None:
    from tacit.data.corpus import read

    sample, out = tmp_path / "sample.jsonl", tmp_path / "coverage.json"
    assert "gold spans" in run("draw", dialogs, "--policy", "pii", "--records", "60", "--gold", "--out", sample)
    assert rows_of(sample)[0]["labels"] == "gold"
    assert "labels: gold" in run("read", sample, "--policy", "pii", "--out", out)
    card = card_of(parse_policy("pii"), read(dialogs))
    coverage = read_coverage(out, parse_policy("pii").hash, None).coverage
    assert coverage is not None
    assert (coverage.sampled, coverage.missed) == (60, card.counts.missed_records)
    assert coverage.miss_rate == card.miss_bound


def test_found_spans_are_shown_when_asked_and_it_is_said(dialogs: Path, tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl"
    run("draw", dialogs, "--policy", "digits", "--records", "5", "--show-found", "--out", sample)
    header, *rows = rows_of(sample)
    assert "shown" in header["labels"]
    assert any(row["found"] != [[]] for row in rows)
    fill(sample, by_text(dialogs))
    assert "shown what the policies found" in run("read", sample, "--policy", "digits")
    with pytest.raises(ConfigError):
        run("draw", dialogs, "--policy", "digits", "--gold", "--show-found", "--out", tmp_path / "other.jsonl")
    assert not (tmp_path / "other.jsonl").exists()


def test_refusals_name_no_secret_and_write_nothing(dialogs: Path, tmp_path: Path) -> None:
    sample, out, other = tmp_path / "sample.jsonl", tmp_path / "coverage.json", tmp_path / "other.jsonl"
    write_jsonl(simulate("customersim", 60, 4, "train"), other)
    run("draw", dialogs, "--policy", "pii", "--records", "20", "--out", sample)
    read = ("read", sample, "--policy", "pii", "--out", out)
    refused: list[TacitError] = []

    def expect(kind: type[TacitError], *words: str | Path) -> None:
        with pytest.raises(kind) as error:
            run(*words)
        refused.append(error.value)

    expect(CorpusError, *read)  # nobody labelled it
    expect(ConfigError, "draw", dialogs, "--policy", "pii", "--out", sample)  # would write over it
    expect(ConfigError, "draw", dialogs, "--policy", "pii", "--records", "61", "--out", tmp_path / "s.jsonl")
    fill(sample, by_text(dialogs))
    expect(ClaimRefused, "read", sample, "--policy", "digits", "--out", out)
    expect(ClaimRefused, *read, "--conservative", "conservative")
    expect(ClaimRefused, *read, "--corpus", other)
    expect(ConfigError, "read", sample, "--policy", "pii", "--out", sample)
    fill(sample, {name: [*secrets, "not in the text"] for name, secrets in by_text(dialogs).items()})
    expect(CorpusError, *read)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.jsonl", "sample.jsonl"]
    told = " ".join(map(str, refused))
    assert not [secret for secret in secrets_of(dialogs) | secrets_of(other) if secret in told]


def test_help_and_wrong_numbers() -> None:
    result = CliRunner().invoke(label, ["draw", "c.jsonl", "--policy", "pii", "--out", "s.jsonl", "--records", "0"])
    assert result.exit_code == 2
    for verb in ("draw", "read"):
        assert CliRunner().invoke(label, [verb, "--help"]).exit_code == 0
