"""The policy of a detector: every sentence, turn or record it flags is marked whole."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from tacit.corpus.read import read
from tacit.corpus.record import Record, Span
from tacit.errors import ClaimRefused, ConfigError
from tacit.policy.algebra import PIECES, Piece
from tacit.policy.alpha_context import WithAlphaContext
from tacit.policy.base import Policy
from tacit.policy.detector.encoder import Encoder, libraries
from tacit.policy.detector.folder import Detector, TextDigest, read_detector, text_key
from tacit.policy.stability import PLACEHOLDER

KIND = "SENSITIVE"
_MOST_SHARED = 3
_MOST_SHARE = 0.01


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
            for start, end in PIECES[self.level](part):
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
    """Refuse detectors, and models of alpha-contexts, that learned from the corpus: their marks would tell of it.

    G1 (same). The same texts in the same order are refused, whatever file they are in.
    G2 (shared). So is a corpus that shares texts with a source, in any order: more than 3 of the (at most 1,000) texts
        in the source's sketch, or more than 1 % of them. Texts of less than 40 characters do not count.
    G3 (runs). The sources of a model in a run folder are the corpora that its private settings name, where those files
        are still there.

    Other overlaps are not seen: that the data are disjoint stays a condition.
    """
    learned = [source for part in _parts(policy) for source in _sources(part)]
    if not learned:
        return
    digest = TextDigest()
    shared: list[set[int]] = [set() for _ in learned]
    for record in corpus():
        digest.add(record)
        key = text_key(record.text)
        for keys, (_, sketch) in zip(shared, learned, strict=True):
            if key in sketch:
                keys.add(key)
    whole = digest.hexdigest()
    if any(
        whole == known or len(keys) > min(_MOST_SHARED, _MOST_SHARE * len(sketch))
        for keys, (known, sketch) in zip(shared, learned, strict=True)
    ):
        raise ClaimRefused(
            expected="a detector, or a model of an alpha-context, trained on public or disjoint data",
            found="one that was trained on texts of this corpus, at a price that nobody counted",
            way_out="train it on other text (tacit detector train --negatives ...)",
        )


def _sources(policy: Policy) -> Iterator[tuple[str, frozenset[int]]]:
    """The digest and the sketch of each source that a policy's own detector or model is known to have learned from."""
    if isinstance(policy, Detected):
        detector = policy.detector
        empty = ((),) * (len(detector.sources) - len(detector.sketches))
        sketches: tuple[tuple[int, ...], ...] = (*detector.sketches, *empty)
        yield from zip(detector.sources, map(frozenset, sketches), strict=True)
    elif isinstance(policy, WithAlphaContext):
        for corpus in policy.learned_from():
            digest = TextDigest()
            for record in read(corpus):
                digest.add(record)
            yield digest.hexdigest(), frozenset(digest.sketch())


def _parts(policy: Policy) -> Iterator[Policy]:
    """A policy and all that it is made of."""
    yield policy
    inside = [getattr(policy, one.name) for one in fields(policy)] if is_dataclass(policy) else vars(policy).values()
    for value in inside:
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, Policy):
                yield from _parts(one)


def _detectors(content: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """What detectors, and models of alpha-contexts, say of their data."""
    if isinstance(content, dict):
        if "trained_on" in content:
            yield content
        for value in content.values():
            yield from _detectors(value)
    elif isinstance(content, list):
        for value in content:
            yield from _detectors(value)
