"""Compares what two commits wrote, for `same_as.py`: tensors, JSON, prepared corpora, whole run folders."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

FILES = {
    "model": ("release/model.safetensors",),
    "tokenizer": ("release/tacit/tokenizer.json", "release/tokenizer.json"),
    "ledger": ("release/tacit/ledger.jsonl", "release/ledger.jsonl"),
    "plan": ("release/tacit/plan.json", "release/plan.json"),
    "guarantee": ("private/guarantee.json",),
    "released guarantee": ("release/tacit/guarantee.json", "release/guarantee.json"),
    "utility": ("private/utility.json",),
    "released utility": ("release/tacit/utility.json", "release/utility.json"),
    "prepared": ("private/prepared",),
    "held-out": ("private/held-out", "private/held_out"),
}
"""Where the parts of a run are; the first place that exists counts."""
AUDIT = ("private/audit.json",)

KEYS = {"optimiser": "optimizer", "moves": "trainable", "neighbours": "neighbors"}
"""Older and newer names of JSON fields."""
IGNORED = {
    *("code_version", "version", "versions", "format", "columns", "public_header_sha256"),
    *("policy_id", "policy_hash", "conservative_id", "tokenizer_hash", "hash", "chain", "after"),
}
"""JSON fields of versions and identifiers, and hashes of what is compared itself."""
HASH = re.compile(r"\b[0-9a-f]{64}\b")
COLUMNS = {"pieces": "chunks"}
"""Older and newer names of the columns of a prepared corpus."""
ADDED_COLUMNS = {"flagged", "kept", "entities"}  # in newer ones alone


def located(run: Path, places: tuple[str, ...]) -> Path | None:
    """Where a part of a run is."""
    return next((run / place for place in places if (run / place).exists()), None)


def cleaned(content: Any) -> Any:  # noqa: ANN401
    """JSON without what may differ: versions, identifiers, empty fields; fields have their newer names."""
    if isinstance(content, dict):
        kept = {KEYS.get(key, key): cleaned(value) for key, value in content.items() if key not in IGNORED}
        return {key: value for key, value in kept.items() if value not in (None, [])}
    return [cleaned(value) for value in content] if isinstance(content, list) else content


def json_differences(old: Any, new: Any, tolerance: float = 0.0, path: str = "") -> Iterator[str]:  # noqa: ANN401
    """Where two cleaned JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            place = f"{path}.{key}" if path else key
            if key in old and key in new:
                yield from json_differences(old[key], new[key], tolerance, place)
            else:
                yield f"{place} in {'old' if key in old else 'new'} alone"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from json_differences(*pair, tolerance, f"{path}[{number}]")
    elif not _same(old, new, tolerance):
        yield f"{path} {_short(old)} -> {_short(new)}"


def _same(old: object, new: object, tolerance: float) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance)
    return old == new


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def tensor_differences(old: Path, new: Path, tolerance: float = 0.0) -> Iterator[str]:
    """Where two files of tensors differ: byte for byte, or by more than `tolerance`."""
    if old.read_bytes() == new.read_bytes():
        return
    first, second = load_file(old), load_file(new)
    if _shapes(first) != _shapes(second):
        yield "names or shapes of tensors"
        return
    apart = {name: _distance(first[name], second[name]) for name in first}
    worst = max(apart, key=lambda name: apart[name])
    if apart[worst] > tolerance:
        yield f"{sum(value > 0 for value in apart.values())} of {len(apart)} tensors, {worst} by {apart[worst]:.3g}"
    elif tolerance == 0:
        yield "bytes, though all tensors are equal"


def _distance(old: "np.ndarray[Any, Any]", new: "np.ndarray[Any, Any]") -> float:
    """The largest difference of two numbers; infinite where they differ and one is not a number."""
    apart = np.abs(old.astype(np.float64) - new.astype(np.float64))
    return 0.0 if old.tobytes() == new.tobytes() else float(np.max(np.nan_to_num(apart, nan=np.inf), initial=0.0))


def _shapes(tensors: Mapping[str, "np.ndarray[Any, Any]"]) -> dict[str, tuple[object, ...]]:
    return {name: (value.dtype, *value.shape) for name, value in tensors.items()}


def store_differences(old: Path, new: Path) -> Iterator[str]:
    """Where two prepared corpora differ: columns byte for byte, and what the header counts."""
    first, second = _columns(old), _columns(new)
    for name in sorted({*first, *second}):
        if name not in first and name in ADDED_COLUMNS:
            continue
        if name not in first or name not in second:
            yield f"{name} in {'old' if name in first else 'new'} alone"
        elif first[name].read_bytes() != second[name].read_bytes():
            yield name
    yield from json_differences(*(cleaned(json.loads((folder / "header.json").read_text())) for folder in (old, new)))


def _columns(folder: Path) -> dict[str, Path]:
    return {COLUMNS.get(file.stem, file.stem): file for file in folder.rglob("*.bin")}


def lost_figures(old: Any, new: Any) -> Iterator[str]:  # noqa: ANN401
    """Numbers of one JSON that are nowhere in the other; whole numbers are too common to be missed."""
    kept = {f"{value:.12g}" for _, value in _figures(new)}
    yield from (f"{path} {value!r} is lost" for path, value in _figures(old) if f"{value:.12g}" not in kept)


def _figures(content: object, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _figures(value, f"{path}.{key}" if path else key)
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _figures(value, f"{path}[{number}]")
    elif isinstance(content, float) and not content.is_integer():
        yield path, content


def run_differences(old: Path, new: Path, tolerance: float = 0.0) -> Iterator[str]:
    """Where two run folders differ."""
    for part, places in FILES.items():
        first, second = located(old, places), located(new, places)
        if first is None or second is None:
            missing = [name for name, place in (("old", first), ("new", second)) if place is None]
            yield f"{part}: not found in {' and '.join(missing)}"
        else:
            yield from (f"{part}: {found}" for found in _part_differences(first, second, tolerance))


def _part_differences(old: Path, new: Path, tolerance: float) -> Iterator[str]:
    if old.is_dir():
        return store_differences(old, new)
    if old.suffix == ".safetensors":
        return tensor_differences(old, new, tolerance)
    return json_differences(cleaned(_content(old)), cleaned(_content(new)), tolerance)


def _content(file: Path) -> Any:  # noqa: ANN401
    text = file.read_text()
    text = HASH.sub("hash", text) if "release" in file.parts else text  # there hashes have a random key
    return [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else json.loads(text)


def audit_differences(old: Path, new: Path) -> Iterator[str]:
    """Numbers of an audit that changed; how they are arranged may differ."""
    first, second = located(old, AUDIT), located(new, AUDIT)
    if first is None or second is None:
        yield "audit: not found"
    else:
        yield from (f"audit: {found}" for found in lost_figures(_content(first), _content(second)))
