"""The policy of a detector: every sentence, turn or record it flags is marked whole."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.corpus.boundaries import sentences, turns
from tacit.corpus.record import Record, Span
from tacit.errors import ClaimRefused, ConfigError
from tacit.policy.base import Policy
from tacit.policy.detector.encoder import Encoder, libraries
from tacit.policy.detector.folder import Detector, TextDigest, read_detector
from tacit.policy.stability import PLACEHOLDER

Piece = tuple[int, int]
KIND = "SENSITIVE"


def _whole(text: str) -> list[Piece]:
    return [(0, len(text))] if text else []


LEVELS: dict[str, Callable[[str], list[Piece]]] = {"sentence": sentences, "turn": turns, "record": _whole}


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
        if self.level not in LEVELS:
            raise ConfigError.unknown_name("piece of text that a detector looks at", self.level, LEVELS)

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

    def find(self, record: Record) -> tuple[Span, ...]:
        pieces = list(self._pieces(record.text))
        if not pieces:
            return ()
        flags = self.detector.flags([record.text[start:end] for start, end in pieces])
        return tuple(Span(start, end, self.kind) for (start, end), flag in zip(pieces, flags, strict=True) if flag)

    def _pieces(self, text: str) -> Iterator[Piece]:
        """The pieces without the white space at their ends; a placeholder is no part of any."""
        offset = 0
        for part in text.split(PLACEHOLDER):
            for start, end in LEVELS[self.level](part):
                piece = part[start:end]
                first = start + len(piece) - len(piece.lstrip())
                last = start + len(piece.rstrip())
                if first < last:
                    yield offset + first, offset + last
            offset += len(part) + len(PLACEHOLDER)


def detector_data(policy: Policy) -> str | None:
    """What the detectors of a policy were trained on, wherever in it they stand; None when it has none."""
    found = dict.fromkeys(one["trained_on"] for one in _detectors(policy.content()))
    return "; ".join(found) or None


def check_detector_data(policy: Policy, corpus: Callable[[], Iterable[Record]]) -> None:
    """Refuse detectors that learned from the very corpus: its routing would tell of it, unaccounted.

    Texts are compared, not files. Other overlaps are not seen: that the data are disjoint stays a condition.
    """
    learned = {source for one in _detectors(policy.content()) for source in one["sources"]}
    if not learned:
        return
    digest = TextDigest()
    for record in corpus():
        digest.add(record)
    if digest.hexdigest() in learned:
        raise ClaimRefused(
            expected="a detector trained on public or disjoint data",
            found="one that was trained on this corpus, at a price that nobody counted",
            way_out="train the detector on other text (tacit detector train --negatives ...)",
        )


def _detectors(content: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    if isinstance(content, dict):
        if "trained_on" in content:
            yield content
        for value in content.values():
            yield from _detectors(value)
    elif isinstance(content, list):
        for value in content:
            yield from _detectors(value)
