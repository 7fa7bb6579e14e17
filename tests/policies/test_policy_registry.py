"""From definitions to policies, and every way to get one wrong."""

from pathlib import Path

import pytest

from tacit.data.records import Record, Span
from tacit.errors import ConfigError, PolicyError, TacitError
from tacit.policies.conservative import conservative
from tacit.policies.patterns import Capitals, Dictionary, Digits, Everything, Gold, RareWords, Regex
from tacit.policies.pii.policy import Pii
from tacit.policies.policy import Definition, Forgetful, Widened
from tacit.policies.registry import build_policy, parse_policy


@pytest.fixture
def names(tmp_path: Path) -> Path:
    (tmp_path / "names.txt").write_text("Ann Lee\n")
    return tmp_path


def test_every_definition_builds_what_it_says(names: Path) -> None:
    listed = Dictionary.of(["Ann Lee"], "NAME", "names")
    rows: list[tuple[Definition, object]] = [
        ("digits", Digits()),
        ("any-digit", Digits()),
        ("any-capital", Capitals()),
        ("pii", Pii()),
        ("gold", Gold()),
        ("everything", Everything()),
        ("conservative", conservative(None)),
        ({"conservative": "names.txt"}, conservative(names / "names.txt")),
        ({"any": ["digits", "pii", "gold"]}, Digits() | Pii() | Gold()),
        ({"all": ["digits", "pii"]}, Digits() & Pii()),
        ({"without": ["pii", "digits"]}, Pii() - Digits()),
        ({"regex": "a+", "kind": "X"}, Regex("a+", "X")),
        ({"regex": "a+"}, Regex("a+", "PATTERN")),
        ({"dictionary": "names.txt"}, Dictionary.of(["Ann Lee"], "LISTED", "names")),
        ({"regex": {"pattern": "a+", "kind": "X"}}, Regex("a+", "X")),
        ({"dictionary": "names.txt", "kind": "NAME"}, listed),
        ({"dictionary": {"file": "names.txt", "kind": "NAME"}}, listed),
        (
            {"dictionary": "names.txt", "kind": "N", "ignore_case": False},
            Dictionary.of(["Ann Lee"], "N", "names", False),
        ),
        ({"rare-words": "names.txt"}, RareWords(frozenset({"ann lee"}), "names")),
        ({"widened": {"policy": "digits", "to": "sentence"}}, Widened(Digits(), "sentence")),
        ({"widened": {"any": ["digits", "pii"]}, "to": "turn"}, Widened(Digits() | Pii(), "turn")),
        ({"forgetful": {"policy": "pii", "miss_rate": 0.1, "seed": 4}}, Forgetful(Pii(), 0.1, 4)),
        ({"forgetful": {"policy": "pii", "miss_rate": 1}}, Forgetful(Pii(), 1.0, 0)),
        ({"pii": {"kinds": ["PHONE", "NAME"]}}, Pii(("NAME", "PHONE"))),
        ({"pii": ["PHONE"]}, Pii(("PHONE",))),
    ]
    for definition, policy in rows:
        assert build_policy(definition, names) == policy, definition


@pytest.mark.parametrize(
    ("definition", "hint"),
    [
        ("digit", "did you mean .*digits"),
        ({"regx": "a"}, "did you mean regex"),
        ({"regex": "(", "kind": "X"}, "at character 0"),
        ({"regex": "", "kind": "X"}, "not empty"),
        ({"regex": "a", "kind": "X", "flags": 2}, "flags"),
        ({"regex": {"pattern": "a", "knd": "X"}}, "did you mean kind"),
        ({"regex": {"pattern": "a", "kind": "X"}, "kind": "Y"}, "both under and beside"),
        ({"any": ["digits"], "all": ["pii"]}, "side by side"),
        ({"any": []}, "a list of policies"),
        ({"any": "digits"}, "a list of policies"),
        ({"any": ["digits", "pi"]}, "pii"),
        ({"without": ["digits"]}, "two policies"),
        ({"widened": {"policy": "digits", "to": "paragraph"}}, "sentence"),
        ({"widened": "digits"}, "`to`"),
        ({"forgetful": {"policy": "digits", "miss_rate": 2}}, "between 0 and 1"),
        ({"forgetful": {"policy": "digits", "miss_rate": "x"}}, "a number"),
        ({"forgetful": {"policy": "digits", "miss_rate": 0.1, "seed": 1.5}}, "a whole number"),
        ({"forgetful": {"policy": "digits", "miss_rate": True}}, "a number"),
        ({"pii": {"kinds": ["PHON"]}}, "did you mean PHONE"),
        ({"pii": {"kinds": []}}, "at least one"),
        ({"pii": {"kinds": "PHONE"}}, "a list of texts"),
        ({"dictionary": "nowhere.txt", "kind": "X"}, "cannot be read"),
        ({"dictionary": 5, "kind": "X"}, "text"),
        ({}, "a policy"),
        (None, "a policy"),
        (7, "a policy"),
        (["digits"], "a policy"),
    ],
)
def test_wrong_definitions_are_refused_with_the_way_out(definition: Definition, hint: str) -> None:
    with pytest.raises(TacitError, match=hint) as caught:
        build_policy(definition)
    assert isinstance(caught.value, PolicyError | ConfigError)
    assert caught.value.way_out


def test_parse_policy_takes_names_with_commas() -> None:
    assert parse_policy("digits") == Digits()
    assert parse_policy("digits, pii") == Digits() | Pii()
    for wrong in ("", "digits,", "digits,,pii", "digits pii"):
        with pytest.raises(ConfigError):
            parse_policy(wrong)


def test_parse_policy_takes_a_yaml_file_with_paths_beside_it(names: Path) -> None:
    path = names / "mine.yaml"
    path.write_text("policy:\n  any:\n    - digits\n    - {dictionary: names.txt, kind: NAME}\n")
    text = "I met ann lee in 1999."
    assert parse_policy(str(path)).find(Record("r", text)) == (Span(6, 13, "NAME"), Span(17, 22, "DIGITS"))


@pytest.mark.parametrize("content", ["", "digits", "polisy: digits", "policy: [", "policy:", None])
def test_parse_policy_refuses_other_files(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "policy.yml"
    if content is not None:
        path.write_text(content)
    with pytest.raises((ConfigError, PolicyError)):
        parse_policy(str(path))


def test_each_name_is_offered_once() -> None:
    with pytest.raises(ConfigError, match=r"did you mean pii or presidio\?"):
        parse_policy("piii")


def test_a_key_without_its_fields() -> None:
    with pytest.raises(PolicyError, match="`regex` with its fields: pattern, kind"):
        parse_policy("regex")


@pytest.mark.parametrize("text", ["policy: &a {any: [*a]}", "policy: " + "[" * 5000])
def test_a_definition_without_end(tmp_path: Path, text: str) -> None:
    file = tmp_path / "endless.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        parse_policy(str(file))
