"""A detector's folder: what was trained, when it raises its flag, and a card that says on what and how well.

    detector.json    kind, window, bias, threshold, and the SHA-256 of every other file
    card.json        what it was trained on, and its measured quality
    sketches.json    hashes of some of the texts of each source, to know them again (`TextDigest`)
    weights.npy      a linear detector's weights, or head.npy and model/ of one on top of an encoder

G1 (whole). A folder in which any file was changed, is missing or was added is refused.
G2 (one hash). The hash of a detector covers all of its files: another weight, threshold or card is another hash.
G3 (no code). Nothing in a folder is run: JSON, numbers, and for an encoder safetensors.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.corpus.record import Record
from tacit.digests import digest
from tacit.documents import read_json
from tacit.errors import PolicyError
from tacit.policy.detector.encoder import Encoder
from tacit.policy.detector.features import Window
from tacit.policy.detector.linear import Linear

DETECTOR = "detector.json"
CARD = "card.json"
SKETCHES = "sketches.json"
_FORMAT = 2
_SKETCH_SIZE = 1_000
_SHORTEST = 40  # characters; shorter lines, such as greetings, stand in corpora that have nothing to do with another


def text_key(text: str) -> int | None:
    """Eight bytes of the SHA-256 of a text without its case and spacing; None when it is too short to tell."""
    plain = " ".join(text.split()).casefold()
    if len(plain) < _SHORTEST:
        return None
    return int.from_bytes(hashlib.sha256(plain.encode("utf-8", "surrogatepass")).digest()[:8], "big")


class TextDigest:
    """SHA-256 of the texts of records, in their order, whatever file they are in; and a sketch of them in no order.

    The sketch has the smallest keys of distinct texts (bottom-k, Cohen and Kaplan 2007): a sample that every file with
    the same texts agrees on, so that the share of it that stands in another corpus estimates the share of all texts.
    """

    def __init__(self) -> None:
        self._state = hashlib.sha256()
        self._keys: set[int] = set()

    def add(self, record: Record) -> None:
        """One more record."""
        text = record.text.encode("utf-8", "surrogatepass")
        self._state.update(len(text).to_bytes(8, "big") + text)
        key = text_key(record.text)
        if key is not None:
            self._keys.add(key)
            if len(self._keys) > 2 * _SKETCH_SIZE:
                self._keys = set(self.sketch())

    def sketch(self) -> tuple[int, ...]:
        """The smallest keys so far, in order."""
        return tuple(sorted(self._keys)[:_SKETCH_SIZE])

    def hexdigest(self) -> str:
        """Of all records so far."""
        return self._state.hexdigest()


KINDS: dict[str, type[Linear] | type[Encoder]] = {"linear": Linear, "encoder": Encoder}


@dataclass(frozen=True)
class Detector:
    """A frozen detector; two with one hash are equal."""

    hash: str
    trained_on: str
    sources: tuple[str, ...]  # digests of the texts it learned from
    threshold: float = field(compare=False)
    scorer: Linear | Encoder = field(compare=False, repr=False)
    card: Mapping[str, Any] = field(compare=False, repr=False)
    sketches: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)  # of the same texts

    def flags(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts reach the threshold."""
        flagged: npt.NDArray[np.bool_] = self.scorer.scores(texts) >= self.threshold
        return flagged


def write_detector(
    folder: Path,
    scorer: Linear | Encoder,
    threshold: float,
    card: Mapping[str, Any],
    sketches: Sequence[Sequence[int]] = (),
) -> None:
    """The detector as files of `folder`, which is there and empty."""
    scorer.save(folder)
    (folder / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=True) + "\n", encoding="utf-8")
    (folder / SKETCHES).write_text(json.dumps([list(sketch) for sketch in sketches]) + "\n", encoding="utf-8")
    kind = next(name for name, known in KINDS.items() if isinstance(scorer, known))
    content = {
        "format": _FORMAT,
        "kind": kind,
        "window": scorer.window._asdict(),
        "bias": scorer.bias,
        "threshold": threshold,
        "files": _files(folder),
    }
    (folder / DETECTOR).write_text(json.dumps({**content, "hash": _hash(content)}, indent=2) + "\n", encoding="utf-8")


def read_detector(folder: Path) -> Detector:
    """The detector of a folder, after every file was compared with its hash."""
    try:
        content = read_json(folder / DETECTOR)
        stated = content.pop("hash")
        if _hash(content) != stated or content["files"] != _files(folder):
            raise _damaged(folder, "files that are not those that were written")
        if content["format"] != _FORMAT or content["kind"] not in KINDS:
            raise _damaged(folder, "a detector of another version of tacit")
        card = read_json(folder / CARD)
        window = Window(**content["window"])
        scorer = KINDS[content["kind"]].load(folder, float(content["bias"]), window)
        sources = tuple(str(source["sha256"]) for source in card["sources"])
        sketches = read_json(folder / SKETCHES)
        keys = tuple(tuple(int(key) for key in sketch) for sketch in sketches)
        return Detector(stated, str(card["trained_on"]), sources, float(content["threshold"]), scorer, card, keys)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder, type(error).__name__) from error


def _hash(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _files(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the one that lists them."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / DETECTOR)
    return {path.relative_to(folder).as_posix(): digest(path) for path in found}


def _damaged(folder: Path, found: str) -> PolicyError:
    return PolicyError(
        expected=f"a whole detector in {str(folder)!r}",
        found=found,
        way_out="train it again with `tacit detector train`, or take the folder as it was written",
    )
