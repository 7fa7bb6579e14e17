"""Our own labeled set of sentences and short texts: `tests/support/labeled_pii/{dev,held_out}/*.txt`.

The guideline is in `labeled_pii/README.md`. Rules are written while looking at `dev`, never at `held_out`.

A line `== language case ...` opens an example, which runs to the next such line. `[[LABEL|text]]` is a secret; the
label may be followed by `:scheme` (the region of a phone number, the checksum of a number) and by `!` (the number fails
its checksum, deliberately). `{U+00A0}` is a character that nobody could see.

A label is a kind of `tacit.data.records`, or finer (`KINDS`):

- API keys and tokens (KEY), PINs and one-time codes (PIN) are PASSWORD: whoever has them gets in.
- Handles, user names and hashtags that name somebody (HASHTAG) are USERNAME.
- MAC, VIN, CRYPTO, COORDINATE, national, passport, license, account and medical record numbers are ID: a number that
  points to one person or thing. None of them needs a replacement or a price of its own; results by label show each.
- SSN is the social security number of the United States only, as in `tacit.data.records`; those of others are NATIONAL.
- Postal codes (POSTCODE) are ADDRESS.
- YEAR, TIME and MAYBE are neither secrets nor mistakes: years and clock times are off by default, and MAYBE is what two
  careful people would label differently.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from tacit.data.records import Record, Span

Half = Literal["dev", "held_out"]

FOLDER = Path(__file__).with_suffix("")
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl")
CASES = (
    "lower", "caps", "ocr", "typo", "breaks", "spaces", "zero_width", "full_width", "soft_hyphen", "hyphens",
    "entities", "tags", "spelled_out", "json", "log", "csv", "html", "code",
)  # fmt: skip
IGNORED = ("YEAR", "TIME", "MAYBE")
GROUPS = {
    "PERSON": ("PERSON",),
    "PLACE": ("GPE", "LOC", "FAC"),
    "ORG": ("ORG",),
    "ADDRESS": ("ADDRESS", "POSTCODE"),
    "AGE": ("AGE",),
    "DATE": ("DATE",),
    "PHONE": ("PHONE",),
    "EMAIL": ("EMAIL",),
    "URL": ("URL",),
    "IP": ("IP",),
    "CARD": ("CARD",),
    "IBAN": ("IBAN",),
    "SSN": ("SSN",),
    "NATIONAL": ("NATIONAL",),
    "ID": ("ID", "MRN", "PASSPORT", "LICENSE", "ACCOUNT"),
    "TECHNICAL": ("MAC", "COORDINATE", "VIN", "CRYPTO"),
    "ORDER": ("ORDER",),
    "TRACKING": ("TRACKING",),
    "USERNAME": ("USERNAME", "HASHTAG"),
    "PASSWORD": ("PASSWORD", "KEY", "PIN"),
}
"""What results are reported by, with its labels."""

KINDS = {label: label for labels in (*GROUPS.values(), IGNORED) for label in labels} | {
    "POSTCODE": "ADDRESS", "NATIONAL": "ID", "MRN": "ID", "PASSPORT": "ID", "LICENSE": "ID", "ACCOUNT": "ID",
    "MAC": "ID", "COORDINATE": "ID", "VIN": "ID", "CRYPTO": "ID", "HASHTAG": "USERNAME", "KEY": "PASSWORD",
    "PIN": "PASSWORD",
}  # fmt: skip
"""The kind of each label."""

_MARK = re.compile(r"\[\[([A-Z]+)(?::([A-Za-z_.0-9]+))?(!?)\|(.+?)\]\]", re.DOTALL)
_OPENING = re.compile(r"^== (.+)\n", re.MULTILINE)
_UNSEEN = re.compile(r"\{U\+([0-9A-F]{4,6})\}")


class Mark(NamedTuple):
    """Characters [start, end) of an example, as they are labeled."""

    start: int
    end: int
    label: str
    scheme: str
    fails: bool


@dataclass(frozen=True, slots=True)
class Example:
    """One text, its language, what makes it hard, and what is labeled in it."""

    id: str
    language: str
    cases: tuple[str, ...]
    text: str
    marks: tuple[Mark, ...]

    @property
    def record(self) -> Record:
        """The text with its secrets; what is neither secret nor mistake is left out."""
        return Record(self.id, self.text, spans=self._spans(ignored=False))

    @property
    def ignored(self) -> tuple[Span, ...]:
        """What a policy may mark or leave."""
        return self._spans(ignored=True)

    def _spans(self, ignored: bool) -> tuple[Span, ...]:
        chosen = (mark for mark in self.marks if (mark.label in IGNORED) == ignored)
        return tuple(Span(mark.start, mark.end, KINDS[mark.label]) for mark in chosen)


def parse(name: str, source: str) -> list[Example]:
    """The examples of one file."""
    _, *parts = _OPENING.split(source)
    found = []
    for number, (header, body) in enumerate(zip(parts[::2], parts[1::2], strict=True), start=1):
        language, *cases = header.split()
        text, marks = _unmarked(body.removesuffix("\n"))
        found.append(Example(f"{name}/{number}", language, tuple(cases), text, marks))
    return found


@cache
def examples(half: Half) -> tuple[Example, ...]:
    """All examples of one half, in the order of the files."""
    files = sorted((FOLDER / half).glob("*.txt"))
    parsed = (parse(f"{half}/{file.stem}", file.read_text(encoding="utf-8")) for file in files)
    return tuple(example for file in parsed for example in file)


def _unmarked(body: str) -> tuple[str, tuple[Mark, ...]]:
    text, marks, last = "", [], 0
    for match in _MARK.finditer(body):
        text += _seen(body[last : match.start()])
        start, last = len(text), match.end()
        text += _seen(match[4])
        marks.append(Mark(start, len(text), match[1], match[2] or "", bool(match[3])))
    return text + _seen(body[last:]), tuple(marks)


def _seen(source: str) -> str:
    return _UNSEEN.sub(lambda match: chr(int(match[1], 16)), source)
