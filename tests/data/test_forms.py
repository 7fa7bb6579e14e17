"""What is counted of the form of secrets, the noise, and what is invented from it."""

import math
import re
from collections import Counter
from random import Random

import numpy as np
import pytest

from tacit.data import forms
from tacit.data.forms import Cell, Forms, Inventor, Secret, learn, symbols_of, usual_contexts, vector

ONE = 2**30
CHARACTERS = "0123456789abcXYZ -/.é"


def some_secrets(chance: Random) -> list[Secret]:
    """Secrets of several kinds and contexts, also long ones and equal ones."""
    made = []
    for _ in range(chance.randint(1, 12)):
        text = "".join(chance.choices(CHARACTERS, k=chance.choice((1, 4, 30))))
        made.append(Secret(chance.choice("AB"), chance.choice("xyz"), text))
    return made + made[: chance.randint(0, 3)]


def added(records: list[list[Secret]], contexts: dict[str, list[str]]) -> dict[Cell, int]:
    total: Counter[Cell] = Counter()
    for record in records:
        total.update(vector(record, contexts))
    return dict(total)


def learned(records: list[list[Secret]], noise: float, seed: int = 0) -> Forms:
    contexts = usual_contexts(((one.kind, one.context) for record in records for one in record), noise)
    return learn(added(records, contexts), contexts, noise, Random(seed))


def _naive(secrets: list[Secret], contexts: dict[str, list[str]]) -> dict[Cell, float]:
    """The oracle: one secret, one root and one symbol at a time, in floats."""
    total: dict[Cell, float] = {}
    for kind, context, text in secrets:
        if kind not in contexts:
            continue
        cells = []
        for root in [kind, *([f"{kind}\t{context}"] if context in contexts[kind] else [])]:
            names = ["", "", *(symbol for symbol, _ in symbols_of(text)), "end"]
            cells += [(f"{root}\n{at}\n{names[at]}\n{names[at + 1]}", names[at + 2]) for at in range(len(names) - 2)]
            for symbol, run in symbols_of(text):
                if not run.isascii() or not run.isalnum():
                    continue
                where = [f"{symbol} {at}" if run.isdecimal() else symbol[0] for at in range(len(run))]
                cells += [(f"{root}\n{where[at]}\n{run[:at][-2:]}", run[at]) for at in range(len(run))]
        norm = float(np.linalg.norm(list(Counter(cells).values())))
        for cell in cells:
            total[cell] = total.get(cell, 0.0) + 1 / norm
    whole = max(1.0, float(np.linalg.norm(list(total.values()))))
    return {cell: value / whole for cell, value in total.items()}


def test_symbols_are_runs_and_signs() -> None:
    assert [symbol for symbol, _ in symbols_of("AB-12th é")] == ["u2", "-", "d2", "l2", " ", "other"]
    assert [symbol for symbol, _ in symbols_of("1" * 15)] == ["d12", "d3"]
    assert len(symbols_of("a1" * 50)) == forms.MOST_SYMBOLS


def test_a_record_is_one_vector_of_norm_one_at_most_and_that_of_the_oracle() -> None:
    contexts = {"A": ["x", "y"], "B": []}
    for seed in range(200):
        secrets = some_secrets(Random(seed))
        found, expected = vector(secrets, contexts), _naive(secrets, contexts)
        assert sum(value**2 for value in found.values()) <= ONE**2  # whole numbers: exactly
        assert found.keys() == expected.keys()
        assert all(abs(found[cell] / ONE - value) < 1e-8 for cell, value in expected.items())


def test_kinds_cut_one_by_one_would_be_found() -> None:
    """The negative control: a record with every kind, each cut to a norm of 1 by itself."""
    contexts: dict[str, list[str]] = {kind: [] for kind in "ABCD"}
    secrets = [Secret(kind, "x", "123") for kind in "ABCD"]
    apart = [vector([secret], contexts) for secret in secrets]
    assert sum(value**2 for one in apart for value in one.values()) > 3.9 * ONE**2
    assert sum(value**2 for value in vector(secrets, contexts).values()) <= ONE**2


def test_kinds_and_contexts_are_chosen_by_public_numbers() -> None:
    spans = [("A", "in")] * 90 + [("A", "on")] * 30 + [("B", "in")] * 79
    assert usual_contexts(spans, 2.0) == {"A": ["in"]}
    assert vector([Secret("B", "in", "1")], {"A": ["in"]}) == {}


@pytest.mark.parametrize("wrong", [False, True])
def test_noise_has_the_deviation_that_is_priced(wrong: bool) -> None:
    """20,000 coordinates: the variance is off by more than 7 % with probability 3e-12 (chi-square).

    The negative control is a deviation of sigma squared.
    """
    sigma = 3.0
    release = forms._Release({}, sigma**2 if wrong else sigma, Random(5))
    numbers = np.array([release["place", str(at)] for at in range(20_000)])
    assert (abs(numbers.var() / sigma**2 - 1) < 0.07) != wrong
    if not wrong:
        assert abs(numbers.mean()) < 7 * sigma / math.sqrt(20_000)
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.05
        assert np.array_equal(numbers * ONE, np.round(numbers * ONE)), "a multiple of the grid"
        assert [release["place", str(at)] for at in range(20_000)] == numbers.tolist(), "drawn once"


def _orders(count: int) -> list[list[Secret]]:
    chance = Random(3)
    texts = (f"{chance.choice('KM')}{chance.choice('AB')}-{chance.randint(0, 9999):04}" for _ in range(count))
    return [[Secret("ORDER", chance.choice(("order", "for")), text)] for text in texts]


def test_forms_of_many_come_out_and_the_secret_of_one_does_not() -> None:
    """The canary is of another form; nothing of it is in 3,000 that were invented."""
    canary = "zebra_9137_quux"
    inventor = Inventor(learned([*_orders(3000), [Secret("ORDER", "order", canary)]], 4.0))
    drawn = [inventor.draw("ORDER", "order", Random(f"draw {at}")) for at in range(3000)]
    fitting = [text for text in drawn if re.fullmatch(r"[KM][AB]-\d{4}", text)]
    assert len(fitting) > 0.9 * len(drawn)
    assert len(set(fitting)) > 1500, "no table of a few"
    assert not any(part in text for text in drawn for part in ("zeb", "_9137", "quux"))


def test_a_value_that_a_third_has_does_come_out() -> None:
    """The other side of the canary: what is frequent is learned whole."""
    chance = Random(4)
    rows = [
        [Secret("YEAR", "in", "2009" if chance.random() < 0.3 else str(chance.randint(1000, 9999)))]
        for _ in range(3000)
    ]
    inventor = Inventor(learned(rows, 4.0))
    assert 0.1 < sum(inventor.draw("YEAR", "in", Random(f"{at}")) == "2009" for at in range(1000)) / 1000 < 0.5


def test_a_context_has_its_own_form() -> None:
    chance = Random(6)
    rows = [
        [Secret("D", "in", str(chance.randint(1900, 2020))), Secret("D", "May", str(chance.randint(10, 31)))]
        for _ in range(3000)
    ]
    inventor = Inventor(learned(rows, 4.0))
    for context, length in (("in", 4), ("May", 2)):
        drawn = [inventor.draw("D", context, Random(f"{at}")) for at in range(500)]
        assert sum(len(text) == length for text in drawn) > 0.9 * len(drawn)


def test_a_kind_with_few_spans_is_not_known() -> None:
    few = learned(_orders(100), 4.0)
    assert few == Forms({}, {})
    assert not Inventor(few).knows("ORDER")
    assert Inventor(learned(_orders(2000), 4.0)).knows("ORDER")


def test_what_is_drawn_is_as_likely_as_stated_and_the_same_for_one_stream() -> None:
    inventor = Inventor(learned(_orders(3000), 4.0))
    drawn = Counter(inventor.draw("ORDER", "for", Random(f"{at}")) for at in range(4000))
    assert inventor.draw("ORDER", "for", Random(7)) == inventor.draw("ORDER", "for", Random(7))
    common = Counter({text[:2]: 0 for text in drawn})
    for text, count in drawn.items():
        common[text[:2]] += count
    text, _ = drawn.most_common(1)[0]
    assert 0 < inventor.probability("ORDER", "for", text) < 0.1
    assert inventor.probability("ORDER", "for", "zebra") == 0
    assert all(0.15 < common[start] / 4000 < 0.35 for start in ("KA", "KB", "MA", "MB"))
