"""Addresses that begin with a house, a flat or a plot and its number, as in South Asia, Africa and Singapore.

`House 9, Street 4, Sector G-10/2`, `Blk 231 Ang Mo Kio Ave 3 #08-1127`. The capitalized words and numbers behind it
belong to the address.
"""

import re
from collections.abc import Iterator, Sequence

from tacit.data.records import Span
from tacit.policies.pii.blocks import CAPITAL
from tacit.policies.pii.cues import phrases
from tacit.policies.pii.phrases import Hit

UNIT_SIGNS = phrases(
    "house|flat|plot|stand|blk|block|purok|villa|shop|door|erf|h.no|h no|h. no|house no|flat no|plot no"
)
"""Words before the number of a house, flat or plot."""

_REST = re.compile(
    r"\.?[ ]?(?:[Nn]o\.?[ ])?#?(?=[A-Za-z/-]{0,4}\d)[\w/-]{1,10}"
    rf"(?:,?[ ](?:{CAPITAL}[\w.'’/-]{{0,25}}|#?\d[\w/-]{{0,8}}|of|opp\.?|near|behind)(?![\w:])){{1,10}}"
)
_NUMBER_REACH = 9


def find_units(text: str, look: bytes, signs: Sequence[Hit]) -> Iterator[Span]:
    """Addresses from the word before a house's number on; `look` is the outline. Findings may overlap."""
    for start, end, _ in signs:
        if b"0" in look[end : end + _NUMBER_REACH] and (rest := _REST.match(text, end)):
            yield Span(start, start + len(text[start : rest.end()].rstrip(" .,'’-")), "ADDRESS")
