"""Hostile bytes and values, and ways to put them into what was whole."""

import random
from typing import Any

TOKENS = (
    *(b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"9" * 5000, b"[" * 3000, b"{" * 50, b'"', b"NaN", b"1e999", b"-1", b"\r"),
    *(b"\\ud800", "\u2028".encode(), "😀é中".encode(), b"\n\n\n", b",,,", b"'", b"2024-01-01", b"!!python/x", b"&a *a"),
    *(b"null", b"true", b"0", b" ", b"\t", b"x" * 20_000, b"}", b"]", b": ", b"#", b"\x1a", b"(a+)+$", b"../../"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 2**70, 1e308, 1e-320, float("nan"), float("inf"), 0.5, "", " "),
    *("x", "x" * 5000, "\0", "é", "2024-01-01", "../x", "/dev/null", "\ud800", [], {}, [1], ["a", "a"], {"a": 1}),
    *([[[[[[[[]]]]]]]], {"text": "a"}, "gold", "pii", "nan", "1e9", "9" * 400, ".", "/", "a,b", "{}", "\u2028", "<b>"),
)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """`data` with something wrong in it."""
    copy = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(copy) + 1)
        match rng.randrange(6):
            case 0:
                copy = copy[:at]
            case 1:
                copy[at:at] = rng.choice(TOKENS)
            case 2:
                del copy[at : at + rng.choice([1, 4, 100])]
            case 3:
                copy[at:at] = copy[: rng.randrange(len(copy) + 1)]
            case 4 if at < len(copy):
                copy[at] ^= 1 << rng.randrange(8)
            case _:
                copy[at : at + 4] = rng.randbytes(4)
    return bytes(copy)


def changed(rng: random.Random, value: Any) -> Any:  # noqa: ANN401
    """A JSON value with one place changed, wherever it is."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                return {other: value[other] for other in value if other != key}
            case 1:
                return {**value, rng.choice(["x", "", "text", "corpus", "\0"]): rng.choice(VALUES)}
            case _:
                return {**value, key: changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], changed(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.3:
        return value * rng.choice([-1, 2, 10, 1e6]) + rng.choice([0, 1, -1])
    return rng.choice(VALUES)
