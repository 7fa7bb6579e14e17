"""The outline of a text, in which a sign of a finding is one search for a few bytes.

Digits are `0`, capitals `A`, small letters `a`; what is not ASCII is `?`, but for digits of any script. Offsets are
those of the text. A costly finder runs only where the outline has its sign, which every match of its pattern has.
"""

import re
import string
from collections.abc import Iterable

_CLASSES = (("0", string.digits), ("A", string.ascii_uppercase), ("a", string.ascii_lowercase))
_TO_CLASS = bytes.maketrans(
    "".join(members for _, members in _CLASSES).encode(),
    "".join(one * len(members) for one, members in _CLASSES).encode(),
)
_OTHERS = re.compile("[^\x00-\x7f]+")
_TO_SOLID = bytes.maketrans(b"0Aa-", b"www:")


def outline(text: str) -> bytes:
    """One byte per character."""
    if text.isascii():
        return text.encode().translate(_TO_CLASS)
    digits = {ord(one): "0" for one in set("".join(_OTHERS.findall(text))) if one.isdecimal()}
    plain = text.translate(digits) if digits else text
    return plain.encode("ascii", "replace").translate(_TO_CLASS)


def solid(outlined: bytes) -> bytes:
    """The outline with `w` for letters and digits alike, and `:` for hyphens."""
    return outlined.translate(_TO_SOLID)


def is_followed(look: bytes, places: Iterable[tuple[int, int, str]], by: tuple[bytes, ...]) -> bool:
    """Whether one of these is behind one of the places."""
    return any(look.startswith(by, end) for _, end, _ in places)
