"""What a policy is, a pure function from one record to the spans of its secrets; and policies made of policies."""

import hashlib
import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tacit.data.records import Range, Record, Span, in_messages, resolve_overlaps, sentences, turns, turns_of
from tacit.errors import ConfigError, PolicyError

Definition = str | dict[str, Any]
"""What a person writes in YAML to get a policy: a name, or one key with its argument."""


def hash_of(content: Any) -> str:  # noqa: ANN401  (any JSON value)
    """SHA-256 of JSON in its canonical form."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def nested(content: Any) -> Iterator[Any]:  # noqa: ANN401
    """A JSON value and all values inside it."""
    yield content
    inside = content.values() if isinstance(content, dict) else content if isinstance(content, list | tuple) else ()
    for value in inside:
        yield from nested(value)


class Policy(ABC):
    """Says which characters of a record are secret.

    G1 (pure). `find` gives the same spans for the same record, in every process and on every day.
    G2 (local). `find` looks at nothing but the record it is given.
    G3 (tidy). Spans are sorted, disjoint, non-empty and inside the text.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """A short readable name, such as `digits` or `(pii | dictionary:names)`."""

    @abstractmethod
    def content(self) -> Any:  # noqa: ANN401  (any JSON value)
        """All that decides what `find` returns, as JSON: patterns, word lists, versions of libraries, parts."""

    @abstractmethod
    def find(self, record: Record) -> tuple[Span, ...]:
        """The secret spans of `record`."""

    def marks(self, record: Record) -> tuple[Span, ...]:
        """What is marked: what `find` finds, of a chat in the contents of its messages alone, cut where they end."""
        return in_messages(record, self.find(record))

    @property
    def public(self) -> bool:
        """Whether `content` has nothing but what comes with tacit: a hash of a person's words would give them away."""
        return False

    def learned_from(self) -> Iterable[tuple[str, frozenset[int]]]:
        """Digest and sketch of each source that a model behind this policy is known to have learned from."""
        return ()

    @property
    def hash(self) -> str:
        """SHA-256 of `content()`: two policies with one hash behave alike."""
        return hash_of(self.content())

    def __or__(self, other: "Policy") -> "Either":
        return Either(self, other)

    def __and__(self, other: "Policy") -> "Both":
        return Both(self, other)

    def __sub__(self, other: "Policy") -> "Without":
        return Without(self, other)


@dataclass(frozen=True)
class _OfTwo(Policy):
    """What follows from the findings of two policies."""

    left: Policy
    right: Policy
    _sign: ClassVar[str]
    _key: ClassVar[str]

    @property
    def id(self) -> str:
        return f"({self.left.id} {self._sign} {self.right.id})"

    @property
    def public(self) -> bool:
        return self.left.public and self.right.public

    def content(self) -> Any:  # noqa: ANN401
        return {self._key: [self.left.content(), self.right.content()]}


class Either(_OfTwo):
    """What `left` or `right` finds.

    G1. The characters found are the union of the characters found by both. Overlapping spans melt into one; spans
        that only touch stay apart.
    G2. `right` decides the kind: a melted span has that of the longest span that `right` found in it (the earlier one
        when equal). Where `right` found nothing, the spans of `left` stay as they are.

    So the policy with the most specific kinds is named last: in `names | pii` a tracking number that a tagger takes
    for an organization is a tracking number.
    """

    _sign, _key = "|", "either"

    def content(self) -> Any:  # noqa: ANN401
        return super().content() | {"kinds": "right"}

    def find(self, record: Record) -> tuple[Span, ...]:
        return melted(self.left.find(record), self.right.find(record))


class Both(_OfTwo):
    """What `left` and `right` both find, with the kinds of `left`.

    G1. The characters found are the intersection. A span of `left` yields one span for each unbroken run of its
        characters that `right` found too.
    """

    _sign, _key = "&", "both"

    def find(self, record: Record) -> tuple[Span, ...]:
        return _inside(self.left.find(record), _runs(self.right.find(record)))


class Without(_OfTwo):
    """What `left` finds and `right` does not, with the kinds of `left`.

    G1. The characters found are the difference. A span of `left` yields one span for each unbroken run of its
        characters that `right` did not find.
    """

    _sign, _key = "-", "without"

    def find(self, record: Record) -> tuple[Span, ...]:
        return difference(self.left.find(record), self.right.find(record), len(record.text))


def _whole(text: str) -> list[Range]:
    return [(0, len(text))] if text else []


PIECES: dict[str, Callable[[str], list[Range]]] = {"sentence": sentences, "turn": turns, "record": _whole}


@dataclass(frozen=True)
class Widened(Policy):
    """Every sentence, turn or record in which `policy` finds anything, from its first to its last visible character.

    G1. Every character that `policy` finds is found.
    G2. A piece without a finding of `policy` is left alone; of a piece with one, at most the white space at its two
        ends stays outside. A finding that crosses from one piece into the next joins them into one span.
    G3. The kind is that of the first finding in the piece.
    """

    policy: Policy
    to: str

    def __post_init__(self) -> None:
        if self.to not in PIECES:
            raise ConfigError.unknown_name("piece of text to widen to", self.to, PIECES)

    @property
    def id(self) -> str:
        return f"widened({self.policy.id}, {self.to})"

    @property
    def public(self) -> bool:
        return self.policy.public

    def content(self) -> Any:  # noqa: ANN401
        return {"widened": self.policy.content(), "to": self.to}

    def find(self, record: Record) -> tuple[Span, ...]:
        found = self.policy.find(record)
        if not found:
            return ()
        pieces = turns_of(record) if self.to == "turn" else PIECES[self.to](record.text)
        starts = [start for start, _ in pieces]
        parts = [visible(record.text, piece) for piece in pieces]
        widened: list[Span] = []
        for span in found:
            start = min(span.start, parts[bisect_right(starts, span.start) - 1][0])
            end = max(span.end, parts[bisect_right(starts, span.end - 1) - 1][1])
            if widened and start < widened[-1].end:
                widened[-1] = widened[-1]._replace(end=max(end, widened[-1].end))
            else:
                widened.append(Span(start, end, span.kind))
        return tuple(widened)


@dataclass(frozen=True)
class InRoles(Policy):
    """What `policy` finds in the messages of some roles; it reads the whole chat.

    G1. A span is the part of a finding of `policy` in one message of these roles.
    G2. A record that is no chat is refused: in a text without roles, nothing would be secret.
    """

    of: tuple[str, ...]
    policy: Policy

    @property
    def id(self) -> str:
        return f"roles({self.policy.id}, {' '.join(self.of)})"

    @property
    def public(self) -> bool:
        return self.policy.public

    def content(self) -> Any:  # noqa: ANN401
        return {"roles": sorted(set(self.of)), "policy": self.policy.content()}

    def find(self, record: Record) -> tuple[Span, ...]:
        if record.messages is None:
            raise PolicyError(
                expected="chats: records with messages, whose roles the policy asks for",
                found="a text without roles",
                way_out="give each record `messages`, or leave `roles` out of the policy",
            )
        chosen = tuple(message for message in record.messages if message.role in self.of)
        return in_messages(replace(record, messages=chosen), self.policy.find(record))


_HASH_RANGE = 2**64


@dataclass(frozen=True)
class Forgetful(Policy):
    """`policy` with a blind spot: it misses a chosen share of the secrets, always the same ones.

    For experiments with imperfect policies. Whether a secret is missed depends on the seed, its kind and its text
    (white space squeezed, case folded) and on nothing else, so that a value is missed wherever it occurs or
    nowhere. `miss_rate` is therefore a share of distinct values, in expectation, not of occurrences.

    G1. Every span found is a span of `policy`.
    G2. Two spans of one kind whose texts are equal up to case and white space are both found or both missed.
    G3. For one seed, what is missed at a miss rate is also missed at every higher one.
    """

    policy: Policy
    miss_rate: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.miss_rate <= 1:
            raise PolicyError(
                expected="a miss rate between 0 and 1",
                found=repr(self.miss_rate),
                way_out="give the share of secrets to miss, such as 0.1",
            )

    @property
    def id(self) -> str:
        return f"forgetful({self.policy.id}, {self.miss_rate:g}, seed {self.seed})"

    @property
    def public(self) -> bool:
        return self.policy.public

    def content(self) -> Any:  # noqa: ANN401
        return {"forgetful": self.policy.content(), "miss_rate": self.miss_rate, "seed": self.seed}

    def find(self, record: Record) -> tuple[Span, ...]:
        return tuple(span for span in self.policy.find(record) if not self._misses(span, record.text))

    def _misses(self, span: Span, text: str) -> bool:
        value = " ".join(text[span.start : span.end].split()).casefold()
        key = "\0".join((str(self.seed), span.kind, value)).encode("utf-8", "surrogatepass")
        draw = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
        return draw < self.miss_rate * _HASH_RANGE


def melted(found: tuple[Span, ...], told: tuple[Span, ...]) -> tuple[Span, ...]:
    """The characters of both as spans, each with the kind of the longest of the spans `told` inside it."""
    spans = []
    at = 0
    for span in resolve_overlaps(found + told):
        first = at
        while at < len(told) and told[at].start < span.end:
            at += 1
        inside = told[first:at]
        kind = max(inside, key=lambda one: one.end - one.start).kind if inside else span.kind
        spans.append(span._replace(kind=kind))
    return tuple(spans)


def _runs(spans: Sequence[Span]) -> list[Range]:
    """The unbroken runs of found characters: touching spans joined, kinds forgotten."""
    runs: list[Range] = []
    for span in spans:
        if runs and span.start == runs[-1][1]:
            runs[-1] = (runs[-1][0], span.end)
        else:
            runs.append((span.start, span.end))
    return runs


def difference(spans: Sequence[Span], others: Sequence[Span], length: int) -> tuple[Span, ...]:
    """The parts of `spans` outside `others`, in a text of this length; both are sorted and disjoint."""
    borders = [0, *(end for run in _runs(others) for end in run), length]
    gaps = [(start, end) for start, end in zip(borders[::2], borders[1::2], strict=True) if start < end]
    return _inside(spans, gaps)


def _inside(spans: Sequence[Span], runs: Sequence[Range]) -> tuple[Span, ...]:
    return tuple(Span(start, end, spans[at].kind) for at, start, end in overlaps(spans, runs))


def overlaps(spans: Sequence[Span], others: Sequence[Span] | Sequence[Range]) -> Iterator[tuple[int, int, int]]:
    """The place of each of `spans` with the ends of each part of it inside `others`; both are sorted and disjoint."""
    first = 0
    for place, span in enumerate(spans):
        while first < len(others) and others[first][1] <= span.start:
            first += 1
        at = first
        while at < len(others) and others[at][0] < span.end:
            yield place, max(others[at][0], span.start), min(others[at][1], span.end)
            at += 1


def visible(text: str, piece: Range) -> Range:
    """The piece without the white space at its ends."""
    start, end = piece
    return end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip())
