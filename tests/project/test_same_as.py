"""The script that compares two commits: each difference between two run folders is found, and nothing else is."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from same_as import Outcome, refusal
from same_as_cases import MECHANISMS, SETTINGS, cases, translate
from same_as_compare import FILES, audit_differences, cleaned, json_differences, lost_figures, run_differences
from tacit.mechanisms.registry import REGISTRY

PLAN = {"mechanism": {"name": "dpsgd"}, "plan": [{"optimiser": "public", "moves": "all", "rate": 0.19}]}
GUARANTEE = {"claim": f"Of list {'a' * 64}: (1.5, 1e-05).", "code_version": "1", "evidence": {"policy_id": "gold"}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with all that is compared."""
    folder = tmp_path / "old"
    for name, places in FILES.items():
        place = folder / places[0]
        if place.suffix:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(GUARANTEE if "guarantee" in name else {"sums": [1.5, 2.25]}))
        else:
            (place / "public").mkdir(parents=True)
            (place / "public" / "tokens.bin").write_bytes(b"tokens")
            (place / "public" / "pieces.bin").write_bytes(b"pieces")
            (place / "header.json").write_text(json.dumps({"counts": {"records": 3}, "version": 1}))
    (folder / "release/tacit/plan.json").write_text(json.dumps(PLAN))
    (folder / "release/tacit/ledger.jsonl").write_text('{"charge":0,"times":2,"chain":"c"}\n{"charge":1,"times":3}\n')
    (folder / "private/audit.json").write_text(json.dumps({"exposure": [{"bits": 3.125, "rank": 4}]}))
    _write_model(folder)
    return folder


def _write_model(folder: Path, added: float = 0.0) -> None:
    weights = np.arange(4, dtype=np.float32) + np.float32(added)
    save_file({"embedding": np.zeros(3, np.float32), "head": weights}, folder / "release/model.safetensors")


def _copy(run: Path) -> Path:
    return Path(shutil.copytree(run, run.parent / "new"))


def _in_text(place: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / place).read_text()
        assert old in text
        (folder / place).write_text(text.replace(old, new))

    return change


def _in_column(place: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / place).write_bytes(b"others")

    return change


def _move(place: str, to: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / to).parent.mkdir(exist_ok=True)
        (folder / place).rename(folder / to)

    return change


def test_a_copy_of_a_run_is_equal(run: Path) -> None:
    assert list(run_differences(run, _copy(run))) == []
    assert list(audit_differences(run, run.parent / "new")) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_in_text("release/tacit/plan.json", "0.19", "0.2"), "plan: plan[0].rate 0.19 -> 0.2"),
        (_in_text("release/tacit/ledger.jsonl", '"times":3', '"times":4'), "ledger: [1].times 3 -> 4"),
        (_in_text("private/guarantee.json", "(1.5,", "(1.4,"), "guarantee: claim"),
        (_in_text("private/guarantee.json", "aaa", "bbb"), "guarantee: claim"),
        (_in_text("release/tacit/guarantee.json", "(1.5,", "(1.4,"), "released guarantee: claim"),
        (_in_text("private/utility.json", "2.25", "2.2500000001"), "utility: sums[1] 2.25 -> 2.2500000001"),
        (_in_text("release/tacit/utility.json", ", 2.25", ""), "released utility: sums"),
        (_in_text("release/tacit/tokenizer.json", "sums", "merges"), "tokenizer: merges in new alone"),
        (_in_text("private/prepared/header.json", "3", "4"), "prepared: counts.records 3 -> 4"),
        (_in_column("private/prepared/public/tokens.bin"), "prepared: tokens"),
        (_in_column("private/held-out/public/pieces.bin"), "held-out: chunks"),
        (_in_column("private/held-out/public/salt.bin"), "held-out: salt in new alone"),
        (lambda folder: (folder / "private/prepared/public/tokens.bin").unlink(), "prepared: tokens in old alone"),
        (lambda folder: (folder / "release/tacit/ledger.jsonl").unlink(), "ledger: not found in new"),
        (lambda folder: _write_model(folder, 1e-3), "model: 1 of 2 tensors, head by 0.001"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_difference_is_found_and_named(change: Callable[[Path], None], found: str, run: Path) -> None:
    change(_copy(run))
    differences = list(run_differences(run, run.parent / "new"))
    assert differences
    assert differences[0].startswith(found)


@pytest.mark.parametrize(
    "change",
    [
        _in_text("private/guarantee.json", '"code_version": "1"', '"code_version": "2", "average_case": null'),
        _in_text("private/guarantee.json", "gold", "gold, known-canaries"),
        _in_text("release/tacit/guarantee.json", "a" * 64, "b" * 64),
        _in_text("release/tacit/plan.json", '"optimiser": "public", "moves"', '"optimizer": "public", "trainable"'),
        _in_text("release/tacit/ledger.jsonl", '"chain":"c"', '"chain":"d"'),
        _in_column("private/prepared/public/kept.bin"),
        _move("private/prepared/public/pieces.bin", "private/prepared/public/chunks.bin"),
        _move("release/tacit/plan.json", "release/plan.json"),
    ],
)
def test_versions_identifiers_and_new_names_are_no_difference(change: Callable[[Path], None], run: Path) -> None:
    change(_copy(run))
    assert list(run_differences(run, run.parent / "new")) == []


def test_weights_may_differ_by_the_tolerance_and_no_more(run: Path) -> None:
    _write_model(_copy(run), 1e-4)
    assert list(run_differences(run, run.parent / "new", tolerance=1e-3)) == []
    assert len(list(run_differences(run, run.parent / "new", tolerance=1e-5))) == 1
    _write_model(run.parent / "new", float("nan"))
    assert len(list(run_differences(run, run.parent / "new", tolerance=1e-3))) == 1


def test_equal_weights_in_other_bytes_are_found(run: Path) -> None:
    tensors = {"head": np.arange(4, dtype=np.float32), "embedding": np.zeros(3, np.float32)}
    save_file(tensors, _copy(run) / "release/model.safetensors", {"made": "elsewhere"})
    assert list(run_differences(run, run.parent / "new")) == ["model: bytes, though all tensors are equal"]


def test_a_part_that_neither_run_has_is_found(run: Path) -> None:
    (run / "release/tacit/ledger.jsonl").unlink()
    assert list(run_differences(run, _copy(run))) == ["ledger: not found in old and new"]


def test_figures_of_an_audit_may_move_but_not_change() -> None:
    old = {"exposure": [{"bits": 3.125, "rank": 4}]}
    assert list(lost_figures(old, {"findings": [{"figures": {"bits": 3.125}}]})) == []
    assert list(lost_figures(old, {"findings": [{"figures": {"bits": 3.126}}]})) == ["exposure[0].bits 3.125 is lost"]


@pytest.mark.parametrize(("old", "new"), [(1, 2), ([1], [1, 1]), ({"a": 1}, [1]), (None, 0), ("a", "b"), (0.1, 0.2)])
def test_json_values_that_differ_are_told_apart(old: Any, new: Any) -> None:  # noqa: ANN401
    assert len(list(json_differences(cleaned(old), cleaned(new)))) == 1
    assert list(json_differences(cleaned(new), cleaned(new))) == []


def test_a_refusal_counts_unless_both_refuse_what_they_should() -> None:
    fine, refused, fault = Outcome(0, "", ""), Outcome(2, "", "expected an lstm"), Outcome(70, "", "")
    assert refusal(refused, refused, may_refuse=True) == ""
    assert "should be trained: an lstm" in refusal(refused, refused, may_refuse=False)
    assert "0 in old, 2 in new" in refusal(fine, refused, may_refuse=True)
    assert "70 in old" in refusal(fault, fault, may_refuse=True)


def test_every_mechanism_has_a_case_with_every_model() -> None:
    assert set(MECHANISMS) == set(REGISTRY)
    names = [case.name for case in cases()]
    assert len(names) == len(set(names))
    assert {f"{mechanism}-{model}" for mechanism in REGISTRY for model in ("lstm", "gpt", "classifier")} <= set(names)


def test_a_setting_is_given_by_the_name_that_a_side_shows() -> None:
    known = {"held_out", "shape", "plan.batch"}
    assert [translate(name, known) for name in ("held_out", "shape.layers", "plan.batch")] == [
        *("held_out", "shape.layers", "plan.batch")
    ]
    assert translate("shape.layers", {"model_config"}) == "model_config.layers"
    assert translate("plan.batch", {"plan.expected_batch_size"}) == "plan.expected_batch_size"
    used = {name for case in cases() for name in case.settings}
    assert all(any(name == old or name.startswith(f"{old}.") for name in used) for old in SETTINGS)
