"""Policies that follow from a text's shape, from its annotation or from word lists."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import ahocorasick_rs

from tacit.common.files import read_text, why
from tacit.data.records import Record, Span, resolve_overlaps, spans_fault, stands_alone, without_surrogates
from tacit.errors import PolicyError
from tacit.policies.expressions import Expression
from tacit.policies.normalize import normalization_digest, normalize
from tacit.policies.policy import Policy

_TOKEN_WITH_DIGIT = re.compile(r"(?<!\S)[^\s\d]*+\d\S*+")
_WORD = re.compile(r"[^\W\d_](?:[\w'’-]*\w)?")


@dataclass(frozen=True)
class Digits(Policy):
    """Every white-space token that contains a digit: the policy of S-DP for WikiText-2 (Shi et al. 2022, section 5)."""

    id = "digits"
    public = True

    def content(self) -> Any:  # noqa: ANN401
        return {"digits": _TOKEN_WITH_DIGIT.pattern}

    def find(self, record: Record) -> tuple[Span, ...]:
        return tuple(Span(*match.span(), "DIGITS") for match in _TOKEN_WITH_DIGIT.finditer(record.text))


@dataclass(frozen=True)
class Capitals(Policy):
    """Every word with a letter that is not in lower case; scripts without case are found whole."""

    id = "any-capital"
    public = True

    def content(self) -> Any:  # noqa: ANN401
        return {"any-capital": _WORD.pattern, "reading": normalization_digest()}

    def find(self, record: Record) -> tuple[Span, ...]:
        reading = normalize(record.text)
        return reading.back(
            Span(*word.span(), "CAPITAL")
            for word in _WORD.finditer(reading.text)
            if any(character.isalpha() and not character.islower() for character in word.group())
        )


class _Compiled(Policy):
    """A policy with an automaton, which cannot be pickled and is built anew where it is needed."""

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Regex(_Compiled):
    """Every match of a regular expression that is not empty: the syntax of Python's `re`, searched in linear time."""

    pattern: str
    kind: str

    def __post_init__(self) -> None:
        _ = self._expression  # checked now

    @cached_property
    def _expression(self) -> Expression:
        return Expression(self.pattern)

    @property
    def id(self) -> str:
        return f"regex:{self.kind}"

    def content(self) -> Any:  # noqa: ANN401
        return {"regex": self.pattern, "kind": self.kind, "google-re2": version("google-re2")}

    def find(self, record: Record) -> tuple[Span, ...]:
        return resolve_overlaps(Span(start, end, self.kind) for start, end in self._expression.places(record.text))


@dataclass(frozen=True)
class Gold(Policy):
    """The spans the record came with."""

    id = "gold"
    public = True

    def content(self) -> Any:  # noqa: ANN401
        return {"gold": "the record's own spans"}

    def find(self, record: Record) -> tuple[Span, ...]:
        if record.spans is None:
            raise PolicyError(
                expected="records that came with spans, which the policy `gold` repeats",
                found="one without annotation",
                way_out="choose a policy that looks for secrets, such as `pii`, or annotate the corpus",
            )
        spans = resolve_overlaps(record.spans)
        if fault := spans_fault(spans, len(record.text)):
            raise PolicyError(
                expected="spans inside the text of their record",
                found=fault,
                way_out="correct the annotation of this record",
            )
        return spans


@dataclass(frozen=True)
class Everything(Policy):
    """The whole text of every record."""

    id = "everything"
    public = True

    def content(self) -> Any:  # noqa: ANN401
        return {"everything": "the whole text"}

    def find(self, record: Record) -> tuple[Span, ...]:
        return (Span(0, len(record.text), "TEXT"),) if record.text else ()


@dataclass(frozen=True)
class Dictionary(_Compiled):
    """Every occurrence of a listed string as whole words.

    One automaton finds all entries in one pass, however many there are (Aho and Corasick 1975). An entry that
    begins or ends with a letter, digit or underscore matches only where the text does not continue the word there.

    G1. The characters found are those of all whole-word occurrences of all entries; overlapping ones melt.
    G2. With `ignore_case`, `text[i:j]` is an occurrence when its case folding equals that of an entry, also where
        folding changes the length of the text.
    """

    entries: tuple[str, ...]
    kind: str
    name: str
    ignore_case: bool = True

    def __post_init__(self) -> None:
        if not self.entries or not all(self.entries):
            raise PolicyError(
                expected="at least one entry, none of them empty",
                found=f"{len(self.entries)} entries, {sum(not entry for entry in self.entries)} of them empty",
                way_out="list the strings that are secret",
            )

    @classmethod
    def of(cls, entries: Iterable[str], kind: str, name: str = "", ignore_case: bool = True) -> Self:
        """A dictionary of any strings: blanks around them and repetitions are dropped."""
        stripped = {entry.strip() for entry in entries}
        return cls(tuple(sorted(stripped - {""})), kind, name or kind, ignore_case)

    @classmethod
    def from_file(cls, path: Path, kind: str, ignore_case: bool = True) -> Self:
        """A dictionary from a UTF-8 file with one entry per line; blank lines are skipped."""
        return cls.of(read_words(path), kind, path.stem, ignore_case)

    @property
    def id(self) -> str:
        return f"dictionary:{self.name}"

    def content(self) -> Any:  # noqa: ANN401
        return {"dictionary": self._entries_hash, "kind": self.kind, "ignore_case": self.ignore_case}

    def find(self, record: Record) -> tuple[Span, ...]:
        text = record.text
        haystack = text.casefold() if self.ignore_case else text
        hits = self._automaton.find_matches_as_indexes(without_surrogates(haystack), overlapping=True)
        places = [(start, end) for _, start, end in hits]
        if len(haystack) != len(text):
            offsets = _folded_offsets(text)
            places = [(offsets[start], offsets[end]) for start, end in places if {start, end} <= offsets.keys()]
        return resolve_overlaps(Span(*place, self.kind) for place in places if stands_alone(text, *place))

    @cached_property
    def _automaton(self) -> ahocorasick_rs.AhoCorasick:
        patterns = {entry.casefold() for entry in self.entries} if self.ignore_case else set(self.entries)
        return ahocorasick_rs.AhoCorasick(sorted(patterns))

    @cached_property
    def _entries_hash(self) -> str:
        return _hash_of(self.entries)


@dataclass(frozen=True)
class RareWords(Policy):
    """Every word that is not in a public list of common words, compared without regard to case."""

    common: frozenset[str] = field(repr=False)
    name: str

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The policy for a UTF-8 file with one common word per line; blank lines are skipped."""
        return cls(frozenset(word.strip().casefold() for word in read_words(path)), path.stem)

    @property
    def id(self) -> str:
        return f"rare-words:{self.name}"

    def content(self) -> Any:  # noqa: ANN401
        reading = normalization_digest()
        return {"rare-words": _hash_of(sorted(self.common)), "word": _WORD.pattern, "reading": reading}

    def find(self, record: Record) -> tuple[Span, ...]:
        reading = normalize(record.text)
        words = _WORD.finditer(reading.text)
        return reading.back(Span(*word.span(), "RARE") for word in words if word.group().casefold() not in self.common)


def read_words(path: Path) -> list[str]:
    """The non-blank lines of a word list."""
    try:
        words = [line for line in read_text(path).removeprefix("\ufeff").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(
            expected="a UTF-8 text file with one entry per line",
            found=f"{str(path)!r}, which cannot be read: {why(error)}",
            way_out="check the path, and that the file is UTF-8 text",
        ) from error
    if not words:
        raise PolicyError(
            expected="a text file with one entry per line",
            found=f"{str(path)!r}, which has no entries",
            way_out="put at least one entry in the file",
        )
    return words


def _folded_offsets(text: str) -> dict[int, int]:
    """From offsets in the case-folded text to offsets in the text; offsets inside one character's folding are absent.

    Case folding works character by character and never deletes one, so the running sum of lengths is exact.
    """
    ends = accumulate((len(character.casefold()) for character in text), initial=0)
    return {folded: original for original, folded in enumerate(ends)}


def _hash_of(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()
