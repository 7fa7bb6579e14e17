"""Years and clock times, which are looked for only when they are asked for: most are no secret."""

import re
from collections.abc import Collection, Iterator

from tacit.data.records import Span

TIMES = ("TIME", "YEAR")
"""Kinds that are off by default."""

_YEAR = re.compile(r"(?<![\w$€£.,/:+-])(?:(?:1[5-9]|20)\d{2}(?:s(?!\w))?|['’]\d{2}s?)(?![\w%€°]|[.,:/-]\d)")
_CLOCK = r"(?:[01]?\d|2[0-4])"
TIME = re.compile(
    rf"(?<![\w$€£.,:/-])(?:{_CLOCK}:[0-5]\d(?::[0-5]\d(?:\.\d{{1,6}})?)?(?:[ ]?[ap]\.?m(?:\.|(?!\w)))?"
    rf"|{_CLOCK}(?:\.[0-5]\d)?[ ]?(?:[ap]\.?m(?:\.|(?!\w))|uhr(?!\w)|o'clock)"
    rf"|{_CLOCK}[ ]?h(?:[ ]?[0-5]\d)?(?!\w))(?![:\d])",
    re.IGNORECASE,
)


def find_times(text: str, kinds: Collection[str]) -> Iterator[Span]:
    """Years, and times of the day; dates and ages are not among them."""
    for kind, pattern in zip(TIMES, (TIME, _YEAR), strict=True):
        if kind in kinds:
            yield from (Span(*match.span(), kind) for match in pattern.finditer(text))
