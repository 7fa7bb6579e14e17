"""The policy `pii`: personal data in English text, told by shape and by the words around it."""

import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.errors import ConfigError
from tacit.policy import pii_addresses, pii_codes, pii_mentions, pii_names, pii_shapes
from tacit.policy.base import Policy
from tacit.policy.pii_words import CODE_CUES, PERSON_CUES, WORD_LISTS, covers, find_cues, fold

KINDS = (
    "ADDRESS", "CARD", "DATE", "EMAIL", "IBAN", "ID", "IP", "NAME", "ORDER", "PHONE", "SSN", "TRACKING", "URL"
)  # fmt: skip
"""Every kind of personal data this policy tells apart."""

_NUMBER = re.compile(r"\d+")
_NUMBERS = frozenset({"CARD", "PHONE", "SSN"})
_DETECTORS = (pii_shapes, pii_addresses, pii_codes, pii_names, pii_mentions)
_RULES = 1
"""Raised when the code, and not a pattern or a word list, changes what is found."""


@dataclass(frozen=True)
class Pii(Policy):
    """Personal data of the chosen kinds.

    All kinds are always looked for, and the chosen ones returned, so that the kind of a finding does not depend on
    which others were asked for.

    G1. Time is linear in the length of the text, whatever the text.
    G2. `Pii(kinds)` finds exactly the spans of `Pii()` whose kind is among `kinds`.
    """

    kinds: tuple[str, ...] = KINDS

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigError.unknown_name("kind of personal data", kind, KINDS)
        if not self.kinds:
            raise ConfigError(
                expected="at least one kind of personal data",
                found="none",
                way_out=f"choose among {', '.join(KINDS)}",
            )
        object.__setattr__(self, "kinds", tuple(sorted(set(self.kinds))))

    @property
    def id(self) -> str:
        return "pii" if self.kinds == KINDS else f"pii:{'+'.join(self.kinds)}"

    def content(self) -> Any:  # noqa: ANN401
        return {
            "pii": self.kinds,
            "rules": _RULES,
            "patterns": [pattern for module in _DETECTORS for pattern in module.SOURCES],
            "cues": [CODE_CUES, PERSON_CUES],
            "words": [sorted(group) for group in WORD_LISTS],
            "libraries": {name: version(name) for name in ("phonenumbers", "usaddress")},
        }

    def find(self, record: Record) -> tuple[Span, ...]:
        spans = _find_all(record.text)
        return spans if self.kinds == KINDS else tuple(span for span in spans if span.kind in self.kinds)


def _find_all(text: str) -> tuple[Span, ...]:
    folded = fold(text)
    cues = find_cues(folded)
    announcements = pii_codes.Announcements(text, folded, cues)
    numbers = [match.start() for match in _NUMBER.finditer(text)]
    addresses = resolve_overlaps(pii_addresses.find_addresses(text, folded, numbers))
    shaped = [*pii_shapes.find_shapes(text, folded, numbers), *pii_shapes.find_dates(text, folded, cues)]
    shaped = [_announced(span, announcements) for span in shaped if not covers(addresses, span.start, span.end)]
    found = resolve_overlaps((*shaped, *addresses))
    codes = pii_codes.find_codes(text, numbers, announcements, found)
    names = pii_names.find_names(text, folded, cues, addresses)
    return resolve_overlaps((*found, *codes, *names))


def _announced(span: Span, announcements: pii_codes.Announcements) -> Span:
    """The span with the kind that the words around a number tell, which is surer than its shape."""
    if span.kind not in _NUMBERS:
        return span
    announced = announcements.after(span.end) or announcements.before(span.start)
    if announced and (announced[1] or span.kind != "PHONE"):
        return span._replace(kind=announced[0])
    return span
