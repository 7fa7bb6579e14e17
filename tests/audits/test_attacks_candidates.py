"""Spaces of candidates, their tokens and their tree, against one candidate at a time."""

import json
from functools import cache

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, trainers

from tacit.audits.candidates import Spelling, TokenTree, listed
from tacit.config.audit_schema import Slot
from tacit.data.tokenizer import UNKNOWN, HuggingFace, Tokenizer, byte_tokenizer, train_bpe
from tacit.errors import AttackError, PrepareError

WORDS = ("oak", "oaks", "sake", "é", "12")
TEXTS = [f"My ID is {number % 100} and {number} is: {number}." for number in range(0, 1000, 7)]


@cache
def tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return byte_tokenizer()
    if name == "bpe":
        return train_bpe([*TEXTS * 3, *WORDS], 340, UNKNOWN)
    bare = tokenizers.Tokenizer(models.BPE())  # no words: it merges over everything, and drops what it does not know
    bare.normalizer = normalizers.Lowercase()
    bare.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    return Tokenizer(HuggingFace(json.loads(bare.to_str())), UNKNOWN)


TEMPLATES = [
    "{2 digits}",
    "My ID is {2 digits}",
    "ID: {2 digits}.",
    "a{digit}",
    "is {letter} 12",
    "{2 words}",
    "is {word}",
]
spaces = st.one_of(
    st.builds(Slot.of, st.sampled_from([*TEMPLATES, "  {digit}  1", "é {2 words} é", "is\n {digit}"]), st.just(WORDS)),
    st.builds(
        listed,
        st.text("is 1é\n", max_size=5),
        st.lists(st.text("1 2soaké'", max_size=4), min_size=2, max_size=9, unique=True).map(tuple),
        st.text(" s1.", max_size=4),
    ),
)
names = st.sampled_from(["bytes", "bpe", "no words"])


def one_by_one(space: Slot, spelling: Spelling) -> list[list[int]]:
    """What training would read, candidate by candidate."""
    encode = spelling.tokenizer.encode
    if spelling.apart:
        return [encode(space.before) + encode(value) + encode(space.after) for value in space.values()]
    return [encode(space.before + value + space.after) for value in space.values()]


@given(space=spaces, name=names, apart=st.booleans())
@settings(deadline=None)
def test_g1_tokens_are_those_of_the_whole_text(space: Slot, name: str, apart: bool) -> None:
    spelling = Spelling.as_trained(tokenizer(name), apart)
    rows = spelling.of_space(space)
    assert [[token - 1 for token in row if token] for row in rows.tolist()] == one_by_one(space, spelling)
    assert np.array_equal(spelling.of_values(space, space.values()), rows)


def test_g1_a_merge_across_the_slots_border_stays_a_merge() -> None:
    slot, bpe = Slot.of("My ID is {2 digits}"), tokenizer("bpe")
    whole, apart = (Spelling.as_trained(bpe, marked).of_space(slot) for marked in (False, True))
    merged = [bpe.decode([token - 1]) for token in np.unique(whole).tolist() if token]
    assert any(text.startswith(" ") and text.strip().isdigit() for text in merged)
    assert apart.shape != whole.shape or not np.array_equal(apart, whole)


@given(space=spaces, name=names, apart=st.booleans())
@settings(deadline=None)
def test_g2_the_tree_holds_every_candidate_once_and_neighbors_share_most(space: Slot, name: str, apart: bool) -> None:
    spelling = Spelling.as_trained(tokenizer(name), apart)
    tree = TokenTree.of(spelling.of_space(space), spelling.opening)
    assert sorted(tree.order.tolist()) == list(range(space.size))
    spelled = one_by_one(space, spelling)
    held = [
        [*tree.stem, *(row[:length] - 1).tolist()]
        for row, length in zip(tree.rows.astype(int), tree.lengths, strict=True)
    ]
    assert held == [[*spelling.opening, *spelled[number]] for number in tree.order]
    assert held == sorted(held)
    rows = tree.rows.tolist()
    for before, row, shared in zip(rows, rows[1:], tree.shared[1:], strict=False):
        assert before[:shared] == row[:shared]
        assert shared == len(row) or before[shared] != row[shared]
    assert tree.longest == max(map(len, held))
    assert tree.largest_token == max(token for row in held for token in row)


@given(space=spaces, seed=st.integers(0, 99))
def test_numbers_and_samples_are_those_of_the_values(space: Slot, seed: int) -> None:
    values = list(space.values())
    assert len(values) == len(set(values)) == space.size
    assert [space.number(value) for value in values] == list(range(space.size))
    assert space.number("no such value") is None
    assert set(space.sample(20, np.random.default_rng(seed))) <= set(values)


def test_values_that_look_like_others_have_no_number() -> None:
    slot = Slot.of("{2 words}", WORDS)
    assert [slot.number(value) for value in ("oak", "oak oak oak", "oak  oak", "oakoak", "")] == [None] * 5
    assert Slot.of("{3 digits}").number("12a") is None


def test_a_space_beyond_64_bits_has_numbers_and_samples() -> None:
    slot = Slot.of("{40 letters}")
    assert slot.number("z" * 40) == slot.size - 1 == 26**40 - 1
    assert all(slot.number(value) is not None for value in slot.sample(3, np.random.default_rng(1)))


def test_a_million_byte_candidates_are_spelled_without_a_loop_over_them() -> None:
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    tree = TokenTree.of(spelling.of_space(Slot.of("My ID is {6 digits}!")), spelling.opening)
    assert tree.rows.shape == (1_000_000, 7)
    assert bytes(tree.stem[1:]) == b"My ID is "
    assert np.array_equal(tree.order, np.arange(1_000_000))
    assert bytes((tree.rows[341_752] - 1).tolist()) == b"341752!"
    assert np.count_nonzero(tree.shared == 0) == 10
    assert np.count_nonzero(tree.shared <= 4) == 100_000


@pytest.mark.parametrize("space", [listed("a", ("b",)), listed("a", ()), Slot.of("{word}", ("oak",))])
def test_a_space_of_one_is_refused(space: Slot) -> None:
    spelling = Spelling.as_trained(byte_tokenizer(), marked=False)
    with pytest.raises(AttackError, match="two candidates"):
        TokenTree.of(spelling.of_space(space), spelling.opening)


def test_what_means_nothing_is_refused_and_quotes_no_value() -> None:
    with pytest.raises(AttackError, match="different") as caught:
        listed("", ("hunter2", "hunter2"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(AttackError, match="begin with"):
        Spelling(byte_tokenizer(), ())
    with pytest.raises(PrepareError, match="one slot"):
        Slot.of("no slot")
