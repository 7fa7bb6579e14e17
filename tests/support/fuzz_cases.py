"""Hostile inputs for the command line: corpora, settings, policies, model folders, run folders and arguments.

Each case is a function of its seed: what it writes into its folder, and the command that reads it.
"""

import contextlib
import gzip
import hashlib
import json
import lzma
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz_values import TOKENS, VALUES, changed, damaged
from tacit.data.text_files import zstd

WORDS = (
    "Ann",
    "Lee",
    "my name is",
    "call",
    "555-123-4567",
    "a@b.co",
    "order",
    "AB-1234",
    "é",
    "中",
    "😀",
    "Dr.",
    "\n",
    ".",
)
POLICIES = ("pii", "gold", "digits", "conservative", "any-capital", "everything", "digits,pii", "nope", "")
_PRIVATE = {"noise_multiplier": 1.0, "steps": 1, "expected_batch_size": 4}
PLANS: dict[str, dict[str, Any]] = {
    "plain": {"public_epochs": 1},
    "redaction": {"public_epochs": 1},
    "invented": {"public_epochs": 1},
    "dpsgd": _PRIVATE,
    "selective": {**_PRIVATE, "public_epochs": 1},
    "twice": {**_PRIVATE, "public_epochs": 1},
    "cadp": {**_PRIVATE, "public_epochs": 1},
    "crt": {**_PRIVATE, "public_epochs": 1},
    "user": {**_PRIVATE, "weight_cap": 2},
    "uedp": {**_PRIVATE, "user_cap": 2, "entity_cap": 1},
}
MECHANISMS = tuple(PLANS)
FORMATS = ("jsonl", "jsonl", "csv", "txt", "parquet", "dataset")
SMALL = ("--set", "model_config={hidden_size: 8, embedding_size: 8}", "--set", "mode=research")
FEW = ("--set", "max_tokens=32", "--set", "max_full_tokens=32", "--set", "held_out=0.3")


@dataclass(frozen=True)
class Case:
    """A command, and what must come of it: `rows` records, read or set aside, where that can be known."""

    arguments: list[str]
    rows: int | None = None
    out: Path | None = None


def case(seed: int, base: Path, folder: Path) -> Case:
    """The case of this seed; it writes into `folder`, and reads from `base`, which it leaves alone."""
    rng = random.Random(seed)
    kinds: list[tuple[int, Callable[[random.Random, Path, Path], Case]]] = [
        (34, _corpus),
        (12, _settings),
        (10, _policy),
        (16, _run),
        (10, _model),
        (8, _arguments),
        (6, _sample),
        (4, _candidates),
    ]
    chosen = rng.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]
    return chosen(rng, base, folder)


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.choice([1, 3, 8, 20])))


def _row(rng: random.Random, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {"id": f"r{number}", "text": _text(rng), "user": f"u{number % 5}", "label": "ab"[number % 2]}
    if rng.random() < 0.5:
        row["spans"] = [[0, 1, "NAME"]] if len(row["text"]) > 2 else []
    return changed(rng, row) if rng.random() < 0.15 else row


def _jsonl(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _table(rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401
    return pa.table(
        {"id": [str(number) for number in range(len(rows))], "text": [str(row.get("text"))[:999] for row in rows]}
    )


def _written(rng: random.Random, rows: list[Any], form: str, folder: Path) -> Path:
    """The rows as a corpus of this format, whole."""
    objects = [row if isinstance(row, dict) else {"text": "x"} for row in rows]
    if form == "dataset":
        place = folder / "saved"
        place.mkdir()
        table = _table([{"text": str(row.get("text")).encode("utf-8", "replace").decode()} for row in objects])
        with pa.OSFile(str(place / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
        (place / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
        return place
    path = folder / f"corpus.{form}"
    if form == "parquet":
        clean = [{"text": str(row.get("text")).encode("utf-8", "replace").decode()} for row in objects]
        pq.write_table(_table(clean), path, row_group_size=9)
        return path
    if form == "jsonl":
        data = _jsonl(rows)
    else:
        texts = [str(row.get("text")).encode("utf-8", "replace").decode() for row in objects]
        lines = [text.replace("\n", " ") for text in texts]
        quoted = ["text,id", *(f'"{line.replace(chr(34), chr(34) * 2)}",{at}' for at, line in enumerate(lines))]
        data = "\n".join(quoted if form == "csv" else lines).encode()
    path.write_bytes(data)
    return path


def _compressed(rng: random.Random, path: Path) -> Path:
    ways: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd.compress}
    ending = rng.choice(list(ways))
    packed = path.with_name(path.name + ending)
    packed.write_bytes(ways[ending](path.read_bytes()))
    return packed


def _corpus(rng: random.Random, base: Path, folder: Path) -> Case:
    rows: list[Any] = [_row(rng, number) for number in range(rng.choice([0, 1, 12, 30, 30, 30, 40]))]
    form = rng.choice(FORMATS)
    path = _written(rng, rows, form, folder)
    if form in ("jsonl", "csv", "txt") and rng.random() < 0.3:
        path = _compressed(rng, path)
    target = path / rng.choice(["data.arrow", "state.json"]) if path.is_dir() else path
    if rng.random() < 0.5:
        target.write_bytes(damaged(rng, target.read_bytes()))
    if rng.random() < 0.03:
        _replaced(rng, target)
    rows_there = _countable(path)
    policy = rng.choice(POLICIES[:7])
    match rng.randrange(10):
        case 0 | 1 | 2 | 3 | 4:
            out = folder / "out"
            return Case(["scan", str(path), "--policy", policy, "--processes", "1", "--out", str(out)], rows_there, out)
        case 5:
            return Case(["label", "draw", str(path), "--policy", policy, "--out", str(folder / "sample.jsonl")])
        case 6:
            words = ["policy", "compare", str(path), "--policies", "digits,pii", "--processes", "1"]
            return Case([*words, "--out", str(folder / "compared")])
        case _:
            mechanism = rng.choice(MECHANISMS)
            words = ["train", str(path), "--policy", policy, *_plan(mechanism), "--out", str(folder / "run")]
            return Case([*words, *SMALL, *FEW])


def _plan(mechanism: str) -> list[str]:
    return ["--mechanism", mechanism, "--set", f"plan={json.dumps(PLANS[mechanism])}"]


def _countable(path: Path) -> int | None:
    """How many records a text file has: its lines that are not blank. Of other formats only the reader knows."""
    if path.suffix not in (".jsonl", ".txt") or not path.is_file() or path.is_symlink():
        return None
    return sum(1 for line in path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip())


def _settings(rng: random.Random, base: Path, folder: Path) -> Case:
    mechanism = rng.choice(MECHANISMS)
    content: Any = {
        "corpus": str(base / "corpus.jsonl"),
        "policy": rng.choice(POLICIES),
        "held_out": 0.3,
        "max_tokens": 32,
        "max_full_tokens": 32,
        "mode": "research",
        "seed": 3,
        "model_config": {"hidden_size": 8, "embedding_size": 8},
        "canaries": [{"template": "My code is {4 digits}", "count": 2, "repetitions": 1}],
        "public": {"learning_rate": 0.01},
        "plan": {"mechanism": mechanism, **PLANS[mechanism]},
    }
    for _ in range(rng.choice([1, 1, 2])):
        content = changed(rng, content) if isinstance(content, dict) else content
    data = json.dumps(content).encode()  # which is YAML
    if rng.random() < 0.25:
        data = damaged(rng, data)
    file = folder / "settings.yaml"
    file.write_bytes(data)
    verb = rng.choice(["config", "config", "plan", "train"])
    over = [
        "--set",
        f"{rng.choice(['seed', 'plan.epsilon', 'model_config.layers', 'model', '.', 'a.b.c', ''])}={_word(rng)}",
    ]
    extra = over if rng.random() < 0.3 and verb != "plan" else []
    return Case([verb, str(file), *extra, *(["--out", str(folder / "run")] if verb == "train" else [])])


def _word(rng: random.Random) -> str:
    text = json.dumps(rng.choice(VALUES)) if rng.random() < 0.6 else rng.choice(TOKENS).decode("utf-8", "replace")
    return text.replace("\0", "")[:3000]


def _policy(rng: random.Random, base: Path, folder: Path) -> Case:
    (folder / "words.txt").write_bytes(rng.choice([b"Ann\nLee\n", b"", b"\xff", b"\0\n", "é\n中\n".encode()]))
    definitions: list[Any] = [
        {
            "regex": rng.choice(["(a+)+$", r"\b\w+\b", "(?=a)", "[", r"(\w+\s?)+:", "é|a", "(" * 300, "x{1001}"]),
            "kind": "X",
        },
        {"dictionary": "words.txt", "kind": "NAME"},
        {"any": ["digits", {"widened": {"policy": "digits", "to": "sentence"}}]},
        {"all": ["pii", "digits"]},
        {"without": ["conservative", "pii"]},
        {"forgetful": {"policy": "digits", "miss_rate": 0.5, "seed": 1}},
        {"rare-words": "words.txt"},
        {"pii": {"kinds": ["NAME"]}},
        {"detector": "nothing"},
        {"token-classifier": str(base / "gpt")},
    ]
    content: Any = {"policy": rng.choice(definitions)}
    if rng.random() < 0.6:
        content = changed(rng, content)
    data = json.dumps(content).encode()
    file = folder / "policy.yaml"
    file.write_bytes(damaged(rng, data) if rng.random() < 0.3 else data)
    corpus = str(base / "corpus.jsonl")
    return Case(["scan", corpus, "--policy", str(file), "--processes", "1", "--out", str(folder / "out")])


def _replaced(rng: random.Random, file: Path) -> None:
    """Something else in the place of a file."""
    file.unlink()
    match rng.randrange(3):
        case 0:
            os.mkfifo(file)
        case 1:
            file.symlink_to("/dev/zero")
        case _:
            file.mkdir()


def _spoiled(rng: random.Random, file: Path) -> None:
    """One file of a folder, damaged, changed, removed or replaced."""
    match rng.randrange(10):
        case 0:
            file.unlink()
        case 1:
            _replaced(rng, file)
        case 2 | 3 | 4 if file.suffix == ".json":
            file.write_text(json.dumps(changed(rng, json.loads(file.read_bytes()))), encoding="utf-8")
        case 5 | 6 if file.suffix == ".jsonl":
            lines = file.read_bytes().splitlines(keepends=True)
            at = rng.randrange(len(lines) + 1)
            file.write_bytes(b"".join([*lines[:at], damaged(rng, b"".join(lines[at : at + 1])), *lines[at + 1 :]]))
        case _:
            file.write_bytes(damaged(rng, file.read_bytes()))


def _copied(source: Path, target: Path) -> list[Path]:
    shutil.copytree(source, target)
    return sorted(path for path in target.rglob("*") if path.is_file())


def _run(rng: random.Random, base: Path, folder: Path) -> Case:
    source = base / rng.choice(["run", "run", "unfinished"])
    files = _copied(source, folder / "run")
    for file in rng.sample(files, rng.choice([0, 1, 1, 1, 2])):
        _spoiled(rng, file)
    if rng.random() < 0.6:
        _seal(folder / "run" / "release")
    run = str(folder / "run")
    return Case(
        rng.choice(
            [
                ["report", run],
                ["verify", run],
                ["verify", run, "--json"],
                ["verify", str(folder / "run" / "release")],
                ["generate", run, "--tokens", "3"],
                ["generate", run, "--tokens", "3", "--prompt", "Ann é 😀"],
                ["audit", run, "--candidates", "10"],
                ["train", "--resume", run],
                ["train", "--resume", run],
                ["context", "My name is Ann Lee", "--target", "Ann", "--model", run],
            ]
        )
    )


def _seal(release: Path) -> None:
    """Make the manifest fit what is there, as whoever edits a run could: so that the readers behind it are met."""
    if not (release / "tacit" / "manifest.json").is_file():  # a link to a device may have no end
        return
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        manifest = json.loads((release / "tacit" / "manifest.json").read_bytes())
        for name in manifest["files"]:
            if (release / name).is_file() and not (release / name).is_symlink():
                manifest["files"][name] = hashlib.sha256((release / name).read_bytes()).hexdigest()
        (release / "tacit" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def _model(rng: random.Random, base: Path, folder: Path) -> Case:
    files = _copied(base / "gpt", folder / "gpt")
    for file in rng.sample(files, rng.choice([0, 1, 1, 2])):
        _spoiled(rng, file)
    model, corpus = str(folder / "gpt"), str(base / "corpus.jsonl")
    if rng.random() < 0.3:
        return Case(
            ["audit", "--model", model, "--candidates", str(base / "candidates.jsonl"), "--out", str(folder / "a")]
        )
    words = ["train", corpus, "--policy", "gold", "--model", model, *_plan(rng.choice(["plain", "selective"]))]
    lora = ["--set", "lora={rank: 2}"] if rng.random() < 0.2 else []
    return Case([*words, "--out", str(folder / "run"), "--set", "mode=research", *FEW, *lora])


def _arguments(rng: random.Random, base: Path, folder: Path) -> Case:
    corpus, run = str(base / "corpus.jsonl"), str(base / "run")
    odd = _word(rng)
    return Case(
        rng.choice(
            [
                ["plan", "--mechanism", rng.choice(MECHANISMS), "--epsilon", odd],
                ["plan", "--mechanism", odd, "--epsilon", "2"],
                ["plan", "--mechanism", "dpsgd", "--epsilon", "2", "--records", odd],
                ["simulate", odd, "--dialogs", "2", "--out", str(folder / "c.jsonl")],
                ["simulate", "customersim", "--dialogs", "2", "--seed", odd, "--out", str(folder / "c.jsonl")],
                ["simulate", "customersim", "--dialogs", "2", "--out", str(folder / odd)],
                ["scan", corpus, "--policy", odd, "--processes", "1", "--out", str(folder / "out")],
                ["scan", corpus, "--policy", "digits", "--processes", "1", "--out", str(folder / odd)],
                ["scan", odd, "--policy", "digits", "--processes", "1", "--out", str(folder / "out")],
                [
                    "scan",
                    corpus,
                    "--policy",
                    "digits",
                    "--text-field",
                    odd,
                    "--processes",
                    "1",
                    "--out",
                    str(folder / "o"),
                ],
                ["scan", corpus, "--policy", "digits", "--sample", odd, "--processes", "1", "--out", str(folder / "o")],
                ["generate", run, "--temperature", odd, "--tokens", "2"],
                ["generate", run, "--prompt", odd, "--tokens", "2"],
                ["generate", odd],
                ["report", odd],
                ["verify", odd],
                ["train", "--resume", odd],
                ["train", corpus, "--mechanism", "plain", "--out", run],
                ["config", corpus, "--mechanism", "selective", "--epsilon", "2", "--set", odd],
                ["config", corpus, "--mechanism", "selective", "--seed", odd],
                ["context", odd, "--target", "a", "--model", run],
                ["label", "read", odd, "--policy", "digits"],
                [odd],
            ]
        )
    )


def _sample(rng: random.Random, base: Path, folder: Path) -> Case:
    file = folder / "sample.jsonl"
    shutil.copy(base / "sample.jsonl", file)
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    if rng.random() < 0.5:
        at = rng.randrange(len(lines))
        lines[at] = changed(rng, lines[at])
    file.write_bytes(_jsonl(lines))
    if rng.random() < 0.4:
        _spoiled(rng, file)
    return Case(["label", "read", str(file), "--policy", "digits", "--out", str(folder / "coverage.json")])


def _candidates(rng: random.Random, base: Path, folder: Path) -> Case:
    file = folder / "candidates.jsonl"
    rows = [json.loads(line) for line in (base / "candidates.jsonl").read_bytes().splitlines()]
    file.write_bytes(_jsonl([changed(rng, row) for row in rows]))
    if rng.random() < 0.3:
        _spoiled(rng, file)
    return Case(["audit", "--model", str(base / "gpt"), "--candidates", str(file), "--out", str(folder / "a")])
