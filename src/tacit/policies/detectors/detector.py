"""A detector's folder, and its policy: every sentence, turn or record that the detector flags is marked whole.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.common.files import digest
from tacit.common.serialize import read_json
from tacit.data.records import Range, Record, Span
from tacit.errors import ClaimRefused, ConfigError
from tacit.policies.detectors.encoder import Encoder, libraries
from tacit.policies.detectors.linear import Linear, Window, damaged
from tacit.policies.policy import PIECES, Policy, hash_of, nested, visible
from tacit.policies.stability import PLACEHOLDER

DETECTOR = "detector.json"
CARD = "card.json"
SKETCHES = "sketches.json"
_FORMAT = 2
_SKETCH_SIZE = 1_000
_SHORTEST = 40  # characters; shorter lines, such as greetings, occur in unrelated corpora
KINDS: dict[str, type[Linear] | type[Encoder]] = {"linear": Linear, "encoder": Encoder}
KIND = "SENSITIVE"
_MOST_SHARED = 3
_MOST_SHARE = 0.01


def text_key(text: str) -> int | None:
    """Eight bytes of the SHA-256 of a text without its case and spacing; None when it is too short to tell."""
    plain = " ".join(text.split()).casefold()
    if len(plain) < _SHORTEST:
        return None
    return int.from_bytes(hashlib.sha256(plain.encode("utf-8", "surrogatepass")).digest()[:8], "big")


class TextDigest:
    """SHA-256 of the texts of records, in their order, whatever file they are in; and a sketch of them in no order.

    The sketch has the smallest keys of distinct texts (bottom-k, Cohen and Kaplan 2007): a sample that every file with
    the same texts agrees on, so that the share of it that is in another corpus estimates the share of all texts.
    """

    def __init__(self) -> None:
        self._state = hashlib.sha256()
        self._keys: set[int] = set()

    def add(self, record: Record) -> None:
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
        """The SHA-256 of all records so far."""
        return self._state.hexdigest()


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
    (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    (folder / SKETCHES).write_text(json.dumps([list(sketch) for sketch in sketches]) + "\n", encoding="utf-8")
    content = {
        "format": _FORMAT,
        "kind": next(name for name, known in KINDS.items() if isinstance(scorer, known)),
        "window": scorer.window._asdict(),
        "bias": scorer.bias,
        "threshold": threshold,
        "files": _files(folder),
    }
    (folder / DETECTOR).write_text(json.dumps({**content, "hash": hash_of(content)}, indent=2) + "\n", encoding="utf-8")


def read_detector(folder: Path) -> Detector:
    """The detector of a folder, after every file was compared with its hash."""
    try:
        content = read_json(folder / DETECTOR)
        stated = content.pop("hash")
        if hash_of(content) != stated or content["files"] != _files(folder):
            raise damaged(folder, "files that are not those that were written")
        if content["format"] != _FORMAT or content["kind"] not in KINDS:
            raise damaged(folder, "a detector of another version of tacit")
        card = read_json(folder / CARD)
        scorer = KINDS[content["kind"]].load(folder, float(content["bias"]), Window(**content["window"]))
        sources = tuple(str(source["sha256"]) for source in card["sources"])
        keys = tuple(tuple(map(int, sketch)) for sketch in read_json(folder / SKETCHES))
        return Detector(stated, str(card["trained_on"]), sources, float(content["threshold"]), scorer, card, keys)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(folder, type(error).__name__) from error


def _files(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the one that lists them."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / DETECTOR)
    return {path.relative_to(folder).as_posix(): digest(path) for path in found}


@dataclass(frozen=True)
class Detected(Policy):
    """Every piece of a record (sentence, turn, or all of it) whose context the detector takes for sensitive.

    G1 (whole). A piece is marked from its first to its last visible character, or not at all.
    G2 (context). Whether a piece is marked depends on its own text alone, with its numbers masked.
    G3 (stable). A marked piece that is replaced by a placeholder changes no other mark: a placeholder ends a piece.
    """

    detector: Detector
    level: str = "sentence"
    kind: str = KIND

    def __post_init__(self) -> None:
        if self.level not in PIECES:
            raise ConfigError.unknown_name("piece of text that a detector looks at", self.level, PIECES)

    @classmethod
    def from_folder(cls, folder: Path, level: str = "sentence", kind: str = KIND) -> "Detected":
        """The policy of a folder that `tacit detector train` wrote."""
        return cls(read_detector(folder), level, kind)

    @property
    def id(self) -> str:
        return f"detector:{self.detector.hash[:12]}, {self.level}"

    def content(self) -> Any:  # noqa: ANN401
        detector = self.detector
        known = {"hash": detector.hash, "trained_on": detector.trained_on, "sources": list(detector.sources)}
        read_by = libraries() if isinstance(detector.scorer, Encoder) else {}
        return {"detector": known, "level": self.level, "kind": self.kind, "libraries": read_by}

    def learned_from(self) -> Iterable[tuple[str, frozenset[int]]]:
        detector = self.detector
        missing = len(detector.sources) - len(detector.sketches)
        return zip(detector.sources, map(frozenset, [*detector.sketches, *[()] * missing]), strict=True)

    def find(self, record: Record) -> tuple[Span, ...]:
        pieces = list(self._pieces(record.text))
        if not pieces:
            return ()
        flags = self.detector.flags([record.text[start:end] for start, end in pieces])
        return tuple(Span(start, end, self.kind) for (start, end), flag in zip(pieces, flags, strict=True) if flag)

    def _pieces(self, text: str) -> Iterator[Range]:
        """The pieces without the white space at their ends; a placeholder is no part of any."""
        offset = 0
        for part in text.split(PLACEHOLDER):
            for piece in PIECES[self.level](part):
                first, last = visible(part, piece)
                if first < last:
                    yield offset + first, offset + last
            offset += len(part) + len(PLACEHOLDER)


def detector_data(policy: Policy) -> str | None:
    """What the detectors of a policy were trained on, wherever in it they are; None when it has none."""
    parts = (part for part in nested(policy.content()) if isinstance(part, dict))
    return "; ".join(dict.fromkeys(part["trained_on"] for part in parts if "trained_on" in part)) or None


class DetectorOverlap:
    """Whether detectors, and models of alpha-contexts, learned from a corpus that goes by: their marks would tell it.

    G1 (same). The same texts in the same order are noticed, whatever file they are in.
    G2 (shared). So is a corpus that shares texts with a source, in any order: more than 3 of the (at most 1,000) texts
        in the source's sketch, or more than 1 % of them. Texts of less than 40 characters do not count.
    G3 (runs). The sources of a model in a run folder are the corpora that its private settings name, where those files
        are still there.

    Other overlaps are not seen: that the data are disjoint stays a condition.
    """

    def __init__(self, policy: Policy) -> None:
        self._learned = [source for part in _parts(policy) for source in part.learned_from()]
        self._shared: list[set[int]] = [set() for _ in self._learned]
        self._digest = TextDigest()

    def watching(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each seen."""
        for record in records:
            if self._learned:
                self._digest.add(record)
                key = text_key(record.text)
                for keys, (_, sketch) in zip(self._shared, self._learned, strict=True):
                    if key in sketch:
                        keys.add(key)
            yield record

    def found(self) -> bool:
        """Whether the records that went by are a source, or share too many texts with one."""
        whole = self._digest.hexdigest()
        return any(
            whole == known or len(keys) > min(_MOST_SHARED, _MOST_SHARE * len(sketch))
            for keys, (known, sketch) in zip(self._shared, self._learned, strict=True)
        )


def check_detector_data(overlaps: bool) -> None:
    """Refuse detectors that learned from the corpus."""
    if overlaps:
        raise ClaimRefused(
            expected="a detector, or a model of an alpha-context, trained on public or disjoint data",
            found="one that was trained on texts of this corpus, which no accounting covers",
            way_out="train it on other text (tacit detector train --negatives ...)",
        )


def _parts(policy: Policy) -> Iterator[Policy]:
    """A policy and all that it is made of."""
    yield policy
    inside = [getattr(policy, one.name) for one in fields(policy)] if is_dataclass(policy) else vars(policy).values()
    for value in inside:
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, Policy):
                yield from _parts(one)
