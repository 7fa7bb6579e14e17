"""Approximate duplicates: what they find, what they get wrong, and that no claim is made on them."""

from pathlib import Path
from typing import Any

import pytest

from tacit.corpus.record import Record
from tacit.corpus.simulate import simulate
from tacit.corpus.write import write_jsonl
from tacit.errors import ClaimRefused
from tacit.experiment import train
from tacit.policy.patterns import Digits
from tacit.prepare import Duplicates, Key, PrepareSettings, PublicText, Routing, prepare
from tacit.prepare.approximate import BloomSeen, NearSeen
from tacit.settings import Experiment
from tacit.tokenizer import byte_tokenizer


def text(content: str) -> Key:
    return Key(PublicText((content,), ()))


def test_bloom_knows_every_text_again_and_takes_few_new_ones_for_old() -> None:
    """False alarm: 2,000 new texts among 2,000 have a wrong answer with probability below 1e-30."""
    seen = BloomSeen()
    assert all(seen.add(text(f"text {number}")) for number in range(2000))
    assert not any(seen.add(text(f"text {number}")) for number in range(2000))


LONG = "the train to the coast leaves at nine from the fourth platform and arrives well before noon every single day"


def test_near_knows_a_text_with_one_word_changed_and_not_another_one() -> None:
    seen = NearSeen()
    words = (LONG + " " + LONG.upper()).split()
    assert seen.add(text(" ".join(words)))
    assert not seen.add(text(" ".join([*words[:-1], "week"])))
    assert seen.add(text(" ".join(reversed(words))))
    assert seen.add(text(""))
    assert not seen.add(text(""))


@pytest.mark.parametrize(
    ("duplicates", "rows"), [("keep", 5), ("exact", 3), ("doubtful", 4), ("bloom", 3), ("near", 2)]
)
def test_rows_that_are_left_out(duplicates: Duplicates, rows: int, tmp_path: Path) -> None:
    twice = LONG + " " + LONG.upper()
    texts = (twice, twice, f"{twice} 7", f"{twice} 8", "something else")
    records = [Record(f"r{number}", content) for number, content in enumerate(texts)]
    settings = PrepareSettings(512, duplicates)
    store = prepare(
        records, Digits(), byte_tokenizer(), tmp_path / "store", settings, lambda n: Routing(doubtful=n in (0, 1, 4))
    )
    assert len(store) == rows


@pytest.mark.parametrize("duplicates", ["bloom", "near"])
def test_they_are_refused_under_a_claim_and_allowed_without(duplicates: Any, tmp_path: Path) -> None:  # noqa: ANN401
    write_jsonl(simulate("customersim", 30), tmp_path / "corpus.jsonl")
    common = {"corpus": str(tmp_path / "corpus.jsonl"), "policy": "gold", "held_out": 0.2, "duplicates": duplicates}
    claim = {"mechanism": "redaction", "public_epochs": 1}
    with pytest.raises(ClaimRefused, match="doubtful or exact or keep"):
        train(Experiment(plan=claim, max_tokens=64, **common), tmp_path / "claim", lambda _: None)
    train(Experiment(plan={**claim, "mechanism": "plain"}, max_tokens=64, **common), tmp_path / "run", lambda _: None)
