"""A person's regular expression in linear time: the syntax and alphabet of Python's `re`, found by RE2.

Python's own engine tries out alternatives and can take years for `(a+)+$`. RE2 never goes back, but knows word
characters and word boundaries of ASCII only, which would cut `José` short. So every class that depends on the alphabet
is written out as Python understands it, and in other text every word boundary is marked with a character of its own.

G1 (same). In texts of less than `SEEN` bytes the matches are those of `re.finditer`, but for `$` before a final line
   feed, where matches of both places are found.
G2 (linear). However long the text, no match is looked for further than twice `SEEN` bytes ahead.
"""

import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from tacit.errors import PolicyError

SEEN = 10_000
_BOUNDARY = "\uffff"  # no character: it is in no text that means something
_SURROGATE = re.compile("[\ud800-\udfff\uffff]")
_GROUP = r"\((?:\?(?:P?<\w+>|[a-zA-Z]*(?:-[a-zA-Z]+)?[:)]))?(?!\?)"
_CLASS = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_ESCAPE = r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)"
_REPEAT = r"[*+?]|\{\d*(?:,\d*)?\}"

_TOKEN = re.compile(
    rf"(?P<group>{_GROUP})|(?P<comment>\(\?#[^)]*\))|(?P<set>{_CLASS})|(?P<escape>{_ESCAPE})|(?P<repeat>{_REPEAT})"
    r"|(?P<mark>[)|^$])|(?P<dot>\.)|(?P<character>.)",
    re.DOTALL,
)

_DEPENDS_ON_ALPHABET = re.compile(r"\\[wWdDsSuUN]|.\[")  # an inner bracket would be a class of POSIX


class Expression:
    """A regular expression that was checked; `places` finds it in a text."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        _check_syntax(pattern)
        self._tokens = [(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(pattern)]
        self._boundaries = _BOUNDARY * self._tokens.count(("escape", r"\b"))  # one for each that may be met at a place
        self._both_ends = ("mark", "$") in self._tokens
        if ("escape", r"\B") in self._tokens:
            raise _refused(pattern, r"\B")
        self._plain = _Compiled(pattern, "".join(_written(*token, marked=False) for token in self._tokens))
        self._marked = self._plain
        if self._boundaries:
            if any(kind == "group" and re.match(r"\(\?[a-z]*s", token) for kind, token in self._tokens):
                raise _refused(pattern, r"the flag s together with \b")
            self._marked = _Compiled(pattern, "".join(_written(*token, marked=True) for token in self._tokens))

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of every match that is not empty, in order."""
        yield from self._places(text)
        if self._both_ends and text.endswith("\n"):
            yield from self._places(text[:-1])

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        if text.isascii():
            yield from self._plain.places(text.encode())
            return
        clean = _SURROGATE.sub("\ufffd", text)
        marked = re.sub(r"\b", self._boundaries, clean) if self._boundaries else clean
        data = marked.encode()
        spans = np.array(list(self._marked.places(data)), dtype=np.int64).reshape(-1, 2)
        yield from ((start, end) for start, end in _characters_before(data)[spans].tolist() if end > start)


class _Compiled:
    """What RE2 makes of an expression; what it does not support is refused."""

    def __init__(self, pattern: str, written: str) -> None:
        import re2

        options = re2.Options()
        options.log_errors = False
        try:
            self._first = re2.compile(written.encode(), options)
            options.longest_match = True
            self._longest = re2.compile(written.encode(), options)
        except re2.error as error:
            detail = error.args[0] if error.args else ""
            said = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
            raise _refused(pattern, said) from None

    def places(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Places in bytes of matches that are not empty; each search sees at most twice SEEN bytes."""
        at, size = 0, len(data)
        while at < size:
            end = _character_start(data, min(size, at + 2 * SEEN))
            match = self._first.search(data, at, end)
            if match is None:
                at = _character_start(data, at + SEEN)
                continue
            if match.start() >= at + SEEN and end < size:
                at = match.start()
                continue
            if match.end() == match.start():  # `re` then looks for one there that is not empty
                match = self._longest.match(data, match.start(), end)
            if match.end() > match.start():
                yield match.start(), match.end()
            at = max(match.end(), _character_start(data, match.start() + 1))


def _check_syntax(pattern: str) -> None:
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of brackets inside of classes
            re.compile(pattern)
    except re.error as error:
        place = "" if error.pos is None else f" at character {error.pos}"
        raise PolicyError(
            expected="a regular expression",
            found=f"{_shown(pattern)}, wrong{place}: {error.msg}",
            way_out="correct the expression there; the syntax is that of Python's `re`",
        ) from error
    except (RecursionError, OverflowError) as error:
        raise _refused(pattern, "groups nested too deeply, or numbers too large") from error
    if _SURROGATE.search(pattern):
        raise _refused(pattern, "half a surrogate pair, which no text has")


def _written(kind: str, token: str, marked: bool) -> str:
    """One token of Python's syntax in RE2's; with `marked`, a boundary is a character that others may follow."""
    if kind == "comment":
        return ""
    if kind == "escape" and token == r"\b":
        return f"{_BOUNDARY}" if marked else token
    if kind == "escape" and token in (r"\A", r"\Z"):
        return token.replace("Z", "z") if not marked else f"{_BOUNDARY}*\\z" if token == r"\Z" else token
    if kind == "mark" and token == "$" and marked:
        return f"{_BOUNDARY}*$"
    if kind in ("group", "mark", "repeat"):
        return token
    atom = _atom(kind, token, marked)
    return f"(?:{_BOUNDARY}*{atom})" if marked else atom


def _atom(kind: str, token: str, marked: bool) -> str:
    if kind == "dot":
        return f"[^\n{_BOUNDARY}]" if marked else token
    if kind == "set":
        if _DEPENDS_ON_ALPHABET.search(token):
            return _members(token)
        token = re.sub(r"^(\[\^?)\]", r"\1\]", token)
        return token.replace("[^", f"[^{_BOUNDARY}", 1) if marked and token.startswith("[^") else token
    if kind == "escape":
        if token[1] in "wWdDsS":
            return _members(token)
        if token[1] in "uU":
            return f"\\x{{{token[2:]}}}"
    return token


@cache
def _members(one: str) -> str:
    """The characters that a class of Python's `re` has, as a class of RE2."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        codes = np.array([ord(character) for character in re.findall(one, _every_character())])
    if not codes.size:
        return "[^\\x{0}-\\x{10ffff}]"
    breaks = np.flatnonzero(np.diff(codes) > 1)
    starts, ends = codes[np.r_[0, breaks + 1]], codes[np.r_[breaks, codes.size - 1]]
    return "[" + "".join(f"\\x{{{start:x}}}-\\x{{{end:x}}}" for start, end in zip(starts, ends, strict=True)) + "]"


@cache
def _every_character() -> str:
    return _SURROGATE.sub("", "".join(map(chr, range(0x110000))))


def _refused(pattern: str, what: str) -> PolicyError:
    return PolicyError(
        expected="a regular expression that can be searched for in linear time",
        found=f"{_shown(pattern)}: {what[:120]}",
        way_out="write it without references to groups, looking ahead or behind, atomic groups, \\B and (?x); no"
        " repetition may exceed 1000",
    )


def _shown(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else f"{pattern[:80]}...")


def _character_start(data: bytes, at: int) -> int:
    """The next place that is not inside a character."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


def _characters_before(data: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each place in UTF-8 how many characters are before it, boundaries not counted."""
    raw = np.frombuffer(data, dtype=np.uint8)
    starts = (raw & 0xC0) != 0x80
    boundary = np.zeros(len(raw), dtype=bool)
    boundary[:-2] = (raw[:-2] == 0xEF) & (raw[1:-1] == 0xBF) & (raw[2:] == 0xBF)
    return np.concatenate([[0], np.cumsum(starts & ~boundary)])
