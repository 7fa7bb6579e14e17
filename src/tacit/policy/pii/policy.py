"""The policy `pii`: personal data in English text, told by shape and by the words around it."""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any

from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.errors import ConfigError
from tacit.policy.base import Policy
from tacit.policy.pii.addresses import find_addresses
from tacit.policy.pii.codes import Announcements, find_codes
from tacit.policy.pii.names import find_names
from tacit.policy.pii.shapes import find_dates, find_shapes
from tacit.policy.pii.words import covers, find_cues, fold

KINDS = (
    "ADDRESS", "CARD", "DATE", "EMAIL", "IBAN", "ID", "IP", "NAME", "ORDER", "PHONE", "SSN", "TRACKING", "URL"
)  # fmt: skip
"""Every kind of personal data this policy tells apart."""

_NUMBER = re.compile(r"\d+")
_NUMBERS = frozenset({"CARD", "PHONE", "SSN"})
_DECIDING = ("addresses", "codes", "mentions", "names", "policy", "shapes", "words")
"""The modules whose text decides what is found: a list of patterns would forget one."""


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

    @property
    def public(self) -> bool:
        return True

    def content(self) -> Any:  # noqa: ANN401
        return {
            "pii": self.kinds,
            "source": _source_digest(),
            "libraries": {name: version(name) for name in ("phonenumbers", "usaddress")},
        }

    def find(self, record: Record) -> tuple[Span, ...]:
        spans = _find_all(record.text)
        return spans if self.kinds == KINDS else tuple(span for span in spans if span.kind in self.kinds)


@cache
def _source_digest() -> str:
    folder = resources.files("tacit.policy.pii")
    return hashlib.sha256(b"".join(folder.joinpath(f"{name}.py").read_bytes() for name in _DECIDING)).hexdigest()


def _find_all(text: str) -> tuple[Span, ...]:
    folded = fold(text)
    cues = find_cues(folded)
    announcements = Announcements(text, folded, cues)
    numbers = [match.start() for match in _NUMBER.finditer(text)]
    addresses = resolve_overlaps(find_addresses(text, folded, numbers))
    shaped = [*find_shapes(text, folded, numbers), *find_dates(text, folded, cues)]
    shaped = [_announced(span, announcements) for span in shaped if not covers(addresses, span.start, span.end)]
    found = resolve_overlaps((*shaped, *addresses))
    codes = find_codes(text, numbers, announcements, found)
    names = find_names(text, folded, cues, addresses)
    return resolve_overlaps((*found, *codes, *names))


def _announced(span: Span, announcements: Announcements) -> Span:
    """The span with the kind that the words around a number tell, which is surer than its shape."""
    if span.kind not in _NUMBERS:
        return span
    announced = announcements.after(span.end) or announcements.before(span.start)
    if announced and (announced[1] or span.kind != "PHONE"):
        return span._replace(kind=announced[0])
    return span
