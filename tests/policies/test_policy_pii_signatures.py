"""What `pii` does not try: finders at numbers that do not concern them, and patterns whose rare string is not there."""

from collections import defaultdict
from itertools import permutations
from random import Random

import pytest

from labeled_pii import examples
from tacit.data.records import Range, Record, Span
from tacit.policies.pii import policy
from tacit.policies.pii.outline import outline
from tacit.policies.pii.phrases import Phrases, Strings
from tacit.policies.pii.policy import Pii, _numbers, _strings
from tacit.policies.pii.signatures import _CONCERNS, Chosen, choose
from tacit.simulation.simulate import simulate

_PIECES = (
    "1",
    "20",
    "345",
    "2019",
    "55123",
    "00",
    " ",
    ", ",
    "\n",
    "-",
    "/",
    ".",
    "(",
    ":",
    "A",
    "Ab",
    "b ",
    "é",
    "٣",
    "O",
)


def _texts() -> list[str]:
    rng = Random(3)
    made = ["".join(rng.choices(_PIECES, k=rng.randint(3, 30))) for _ in range(800)]
    return [*made, *(record.text for record in simulate("customersim", 40, seed=9)), *_labeled()]


def _labeled() -> list[str]:
    return [example.text for example in examples("dev")]


def _everything(look: bytes, numbers: list[Range]) -> Chosen:
    """The slow twin: every finder is tried at every number, but for two whose sign is part of what they find."""
    every: Chosen = defaultdict(list, dict.fromkeys([*_CONCERNS, "any"], numbers))
    return every | {name: choose(look, numbers)[name] for name in ("phone", "serial")}


def test_finders_find_nothing_at_numbers_that_do_not_concern_them(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = _texts()
    found = [Pii().find(Record("r", text)) for text in texts]
    monkeypatch.setattr(policy, "choose", _everything)
    assert found == [Pii().find(Record("r", text)) for text in texts]


def test_a_finder_that_is_not_told_of_its_numbers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the numbers of one finder, something is missed."""
    texts = _texts()
    found = [Pii().find(Record("r", text)) for text in texts]

    def without(look: bytes, numbers: list[Range]) -> Chosen:
        chosen = choose(look, numbers)
        chosen.pop("date", None)
        return chosen

    monkeypatch.setattr(policy, "choose", without)
    assert found != [Pii().find(Record("r", text)) for text in texts]


def test_few_finders_are_tried_at_a_number() -> None:
    look = outline("The total of order 81 is 250 dollars.")
    chosen = choose(look, _numbers(look))
    assert chosen["any"] == [(19, 21), (25, 28)]
    assert not any(chosen[name] for name in ("date", "iban", "ip", "phone", "postal code", "serial", "zip"))


def test_rare_strings_are_seen_wherever_they_are() -> None:
    """Strings are looked for from left to right: one that begins inside of another one is not seen there at once."""
    strings = _strings()
    for first, second in permutations(strings._strings, 2):
        texts = [first + second[length:] for length in range(len(second)) if first.endswith(second[:length])]
        for text in [*texts, f"a {first} {second}"]:
            assert strings.seen(text) == {one for one in strings._strings if one in text}


def test_rare_strings_are_seen_once() -> None:
    assert Strings(["--", "u/", "tie"]).seen("parties -- and u/me --") == {"--", "u/", "tie"}
    assert Strings(["--"]).seen("nothing") == frozenset()


def test_longer_phrases_hide_those_inside_them_in_some_groups_only() -> None:
    phrases = Phrases({"a": ["code", "zip code"], "b": ["zip"], "c": ["zip", "code"]}, longest=("a", "b"))
    found = phrases.find("a zip code, a code")
    assert found["a"] == [(2, 10, "zip code"), (14, 18, "code")]
    assert found["b"] == []
    assert found["c"] == [(2, 5, "zip"), (6, 10, "code"), (14, 18, "code")]


def test_what_is_read_beside_a_number_is_enough() -> None:
    """Catches a sign that is longer than what the finders are told of the text around a number."""
    assert Pii().find(Record("r", "Passport 12AB34567.")) == (Span(9, 18, "ID"),)
