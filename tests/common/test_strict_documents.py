"""YAML and JSON of people: what could be misread is refused in one sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.common.serialize import LARGEST_YAML, NotStrict, parse_json, parse_yaml, read_yaml
from tacit.config.load import load_config
from tacit.errors import ConfigError
from tacit.mechanisms.build import read_plan_file
from tacit.policies.registry import parse_policy
from tacit.sweeps.recipe import read_recipe

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)
MISREAD = {
    "duplicate": ("plan: {mechanism: selective, mechanism: plain}", "'mechanism' twice in line 1"),
    "duplicate at the top": ("corpus: a\nplan: 1\ncorpus: b", "'corpus' twice in line 3"),
    "duplicate in quotes": ("a: 1\n'a': 2", "twice"),
    "number as key": ("plan: {1: x}", "not text"),
    "truth as key": ("on: x", "not text"),
    "list as key": ("? [a, b]\n: x", "not text"),
    "digits": (f"seed: {'9' * 5000}", "thousands of digits"),
    "65 bits": (f"seed: {2**64}", "64 bits"),
    "not a number": ("a: .nan", "nan"),
    "octal": ("order: 0123", "base 8"),
    "sexagesimal": ("at: 12:30", "base 8 or 60"),
    "NUL": ("a: b\0c", "character"),
    "escaped NUL": (r'a: "b\0c"', "NUL"),
    "half a pair": (r'a: "\ud800"', "surrogate"),
    "deep": ("a: " + "[" * 5000, "levels of nesting"),
    "deep mappings": ("{a: " * 5000, "levels of nesting"),
    "bomb": (BOMB, "aliases written out"),
    "self": ("a: &a [*a]", "part of"),
    "merge with itself": ("a: &a {<<: *a}", "part of"),
    "tag": ("a: !!python/object/apply:os.system [ls]", "tag"),
    "binary": ("a: !!binary aGk=", "tag"),
    "two documents": ("a: 1\n---\nb: 2", "line"),
    "syntax": ("a: [1, 2", "line"),
    "too large": ("a: " + "x" * LARGEST_YAML, "bytes"),
}
READERS: dict[str, Callable[[Path], object]] = {
    "plan": read_plan_file,
    "settings": lambda file: load_config(file),
    "recipe": read_recipe,
    "policy": lambda file: parse_policy(str(file)),
}


@pytest.mark.parametrize("case", MISREAD)
@pytest.mark.parametrize("reader", READERS)
def test_what_could_be_misread_is_refused_wherever_yaml_is_read(case: str, reader: str, tmp_path: Path) -> None:
    """Catches a reader of YAML that lets the last of two equal keys win, or ends in a traceback."""
    text, expected = MISREAD[case]
    file = tmp_path / "file.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        READERS[reader](file)
    assert expected in caught.value.found
    assert len(str(caught.value)) < 600


def test_what_is_clear_is_read() -> None:
    text = "base: &base {a: 1, b: 2.5}\nother: {<<: *base, b: x}\nlist: [*base]\n"
    text += "day: 2024-01-31\nwhen: 2024-01-31 10:00:00\n"
    assert parse_yaml(text) == {
        "base": {"a": 1, "b": 2.5},
        "other": {"a": 1, "b": "x"},
        "day": "2024-01-31",
        "when": "2024-01-31 10:00:00",
        "list": [{"a": 1, "b": 2.5}],
    }
    assert parse_yaml("") is None
    assert parse_yaml("é: 😀") == {"é": "😀"}


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[" * 100_000, '{"a": ' * 100_000, "9" * 5000, "NaN", "", "{"])
def test_json_that_could_be_misread_is_a_value_error(text: str) -> None:
    """Catches a RecursionError, which no handler of broken JSON expects."""
    with pytest.raises(ValueError):  # noqa: PT011
        parse_json(text)


def test_a_file_that_is_not_there_or_not_utf8_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_yaml(tmp_path / "latin.yaml")


def test_errors_in_yaml_do_not_take_long() -> None:
    """Catches quadratic time: each of these has almost a megabyte."""
    for text in ("- " * 400_000, "? " * 400_000, "&a " * 300_000, "'" * 900_001, "a: b: " * 100_000, "[" * 900_000):
        with pytest.raises(NotStrict) as caught:
            parse_yaml(text)
        assert len(str(caught.value)) < 300
