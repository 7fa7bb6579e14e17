"""Policies made of word lists: strings that are secret, and common words that are not."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import ahocorasick_rs

from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.errors import PolicyError
from tacit.given import read_text, why
from tacit.policy.base import Policy

_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[^\W\d_](?:[\w'’-]*\w)?")


@dataclass(frozen=True)
class Dictionary(Policy):
    """Every occurrence of a listed string that stands as whole words.

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
        """A dictionary from a UTF-8 file with one entry a line; blank lines are skipped."""
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
        if len(haystack) == len(text):
            return resolve_overlaps(
                Span(start, end, self.kind) for _, start, end in hits if stands_alone(text, start, end)
            )
        offsets = _folded_offsets(text)
        places = ((offsets.get(start), offsets.get(end)) for _, start, end in hits)
        return resolve_overlaps(
            Span(start, end, self.kind)
            for start, end in places
            if start is not None and end is not None and stands_alone(text, start, end)
        )

    @cached_property
    def _automaton(self) -> ahocorasick_rs.AhoCorasick:
        patterns = {entry.casefold() for entry in self.entries} if self.ignore_case else set(self.entries)
        return ahocorasick_rs.AhoCorasick(sorted(patterns))

    @cached_property
    def _entries_hash(self) -> str:
        return _hash_of(self.entries)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: the automaton cannot be pickled and is built anew where it is needed."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class RareWords(Policy):
    """Every word that is not in a public list of common words, compared without regard to case."""

    common: frozenset[str]
    name: str

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The policy for a UTF-8 file with one common word a line; blank lines are skipped."""
        return cls(frozenset(word.strip().casefold() for word in read_words(path)), path.stem)

    @property
    def id(self) -> str:
        return f"rare-words:{self.name}"

    def content(self) -> Any:  # noqa: ANN401
        return {"rare-words": _hash_of(sorted(self.common)), "word": _WORD.pattern}

    def find(self, record: Record) -> tuple[Span, ...]:
        words = _WORD.finditer(record.text)
        return tuple(Span(*word.span(), "RARE") for word in words if word.group().casefold() not in self.common)


def read_words(path: Path) -> list[str]:
    """The non-blank lines of a word list."""
    try:
        words = [line for line in read_text(path).removeprefix("\ufeff").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(
            expected="a UTF-8 text file with one entry a line",
            found=f"{str(path)!r}, which cannot be read: {why(error)}",
            way_out="check the path, and that the file is UTF-8 text",
        ) from error
    if not words:
        raise PolicyError(
            expected="a text file with one entry a line",
            found=f"{str(path)!r}, which holds no entries",
            way_out="put at least one entry in the file",
        )
    return words


def without_surrogates(text: str) -> str:
    """The text with another character for each lone surrogate, which an automaton cannot read."""
    return _SURROGATE.sub("\ufffd", text)


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether [start, end) neither begins nor ends inside a word."""
    begins = start == 0 or not (_in_word(text[start - 1]) and _in_word(text[start]))
    return begins and (end == len(text) or not (_in_word(text[end - 1]) and _in_word(text[end])))


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _folded_offsets(text: str) -> dict[int, int]:
    """From offsets in the case-folded text to offsets in the text; offsets inside one character's folding are absent.

    Case folding works character by character and never deletes one, so the running sum of lengths is exact.
    """
    ends = accumulate((len(character.casefold()) for character in text), initial=0)
    return {folded: original for original, folded in enumerate(ends)}


def _hash_of(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()
