"""Policies that follow from a text's shape or annotation: digits, capitals, expressions, gold spans, everything."""

import re
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

from tacit.corpus.record import Record, Span, resolve_overlaps, spans_fault
from tacit.errors import PolicyError
from tacit.policy.base import Policy
from tacit.policy.expressions import Expression

_TOKEN_WITH_DIGIT = re.compile(r"(?<!\S)[^\s\d]*+\d\S*+")
_WORD = re.compile(r"[^\W\d_](?:[\w'’-]*\w)?")


@dataclass(frozen=True)
class Digits(Policy):
    """Every white-space token that holds a digit: the policy of S-DP for WikiText-2 (Shi et al. 2022, section 5)."""

    @property
    def id(self) -> str:
        return "digits"

    @property
    def public(self) -> bool:
        return True

    def content(self) -> Any:  # noqa: ANN401
        return {"digits": _TOKEN_WITH_DIGIT.pattern}

    def find(self, record: Record) -> tuple[Span, ...]:
        return tuple(Span(*match.span(), "DIGITS") for match in _TOKEN_WITH_DIGIT.finditer(record.text))


@dataclass(frozen=True)
class Capitals(Policy):
    """Every word with a letter that is not in lower case; scripts without case are found whole."""

    @property
    def id(self) -> str:
        return "any-capital"

    @property
    def public(self) -> bool:
        return True

    def content(self) -> Any:  # noqa: ANN401
        return {"any-capital": _WORD.pattern}

    def find(self, record: Record) -> tuple[Span, ...]:
        words = _WORD.finditer(record.text)
        return tuple(Span(*word.span(), "CAPITAL") for word in words if not _all_lower(word.group()))


@dataclass(frozen=True)
class Regex(Policy):
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

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: RE2's automaton cannot be pickled and is built anew where it is needed."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Gold(Policy):
    """The spans the record came with."""

    @property
    def id(self) -> str:
        return "gold"

    @property
    def public(self) -> bool:
        return True

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
        fault = spans_fault(spans, len(record.text))
        if fault:
            raise PolicyError(
                expected="spans inside the text of their record",
                found=fault,
                way_out="correct the annotation of this record",
            )
        return spans


@dataclass(frozen=True)
class Everything(Policy):
    """The whole text of every record."""

    @property
    def id(self) -> str:
        return "everything"

    @property
    def public(self) -> bool:
        return True

    def content(self) -> Any:  # noqa: ANN401
        return {"everything": "the whole text"}

    def find(self, record: Record) -> tuple[Span, ...]:
        return (Span(0, len(record.text), "TEXT"),) if record.text else ()


def _all_lower(word: str) -> bool:
    return all(character.islower() or not character.isalpha() for character in word)
