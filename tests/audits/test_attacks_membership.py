"""Membership scores against loops over tokens, on a model of pairs; and the baseline that never meets a model."""

import math
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tacit.audits.passages import (
    FOLDS,
    Blind,
    Passage,
    blind,
    features,
    loss_scores,
    min_k_scores,
    neighborhood_scores,
    reference_scores,
    zlib_scores,
)
from tacit.audits.statistics import Scores, half_cut, judged
from tacit.config.model_schema import LSTMConfig
from tacit.data.batches import TextBatch
from tacit.errors import AttackError
from tacit.models.language_model import losses_of
from tacit.models.lstm import LSTM
from tacit.papers.two_stage import two_stage

WORDS = 7


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """A Speaker whose next token depends on the last one: `table[a, b]` is the logit of b after a."""

    table: Tensor
    context: int = 100

    @property
    def vocabulary_size(self) -> int:
        return self.table.shape[1]

    def logits(self, tokens: Tensor) -> Tensor:
        return self.table[tokens]

    def log_probabilities(self, batch: TextBatch) -> Tensor:
        return -losses_of(self.logits(batch.inputs), batch).losses

    def begin(self, tokens: Tensor) -> NoReturn:
        raise NotImplementedError


def pairs(seed: int) -> Pairs:
    return Pairs(torch.randn(WORDS, WORDS, generator=torch.Generator().manual_seed(seed)) * 2)


def some_passages(count: int = 9, seed: int = 0) -> list[Passage]:
    """Of different lengths, with and without context."""
    rng = random.Random(seed)
    rows = [[rng.randrange(WORDS) for _ in range(rng.randint(3, 12))] for _ in range(count)]
    return [Passage(f"c{place}", row, 1 + place % 2) for place, row in enumerate(rows)]


def said(model: Pairs, passage: Passage) -> list[float]:
    """log p of each token that counts, one at a time."""
    found = []
    for place in range(passage.counted_from, len(passage.tokens)):
        row = model.table[passage.tokens[place - 1]].double()
        found.append(float(row[passage.tokens[place]] - row.exp().sum().log()))
    return found


def test_loss_by_loops() -> None:
    model, passages = pairs(1), some_passages()
    expected = {passage.id: float(np.mean(said(model, passage))) for passage in passages}
    assert loss_scores(model, passages).by_id == pytest.approx(expected, rel=1e-4)


def test_zlib_by_loops() -> None:
    model, passages = pairs(1), some_passages()
    texts = {passage.id: "ab" * place + str(place) for place, passage in enumerate(passages)}
    expected = {
        passage.id: float(np.mean(said(model, passage))) / len(zlib.compress(texts[passage.id].encode()))
        for passage in passages
    }
    assert zlib_scores(model, passages, texts).by_id == pytest.approx(expected, rel=1e-4)
    with pytest.raises(AttackError, match="none of c3"):
        zlib_scores(model, passages, {name: text for name, text in texts.items() if name != "c3"})


def test_reference_by_loops() -> None:
    model, other, passages = pairs(1), pairs(2), some_passages()
    expected = {one.id: float(np.mean(said(model, one)) - np.mean(said(other, one))) for one in passages}
    assert reference_scores(model, other, passages).by_id == pytest.approx(expected, rel=1e-4, abs=1e-5)
    with pytest.raises(AttackError, match="a reference with 7 tokens; found one with 3"):
        reference_scores(model, Pairs(torch.zeros(3, 3)), passages)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 1.0])
def test_min_k_by_loops(share: float) -> None:
    model, passages = pairs(1), some_passages()
    expected = {}
    for passage in passages:
        standard = []
        for place, log_probability in zip(
            range(passage.counted_from, len(passage.tokens)), said(model, passage), strict=True
        ):
            row = torch.log_softmax(model.table[passage.tokens[place - 1]].double(), dim=0)
            mean = sum(math.exp(one) * one for one in row.tolist())
            variance = sum(math.exp(one) * (one - mean) ** 2 for one in row.tolist())
            standard.append((log_probability - mean) / math.sqrt(variance))
        kept = sorted(standard)[: max(1, int(share * len(standard)))]
        expected[passage.id] = sum(kept) / len(kept)
    assert min_k_scores(model, passages, share).by_id == pytest.approx(expected, rel=1e-4)


def test_min_k_with_impossible_tokens_and_with_certainty() -> None:
    """A probability of 0 weighs nothing in the mean; a model that is certain has no deviation, and still a score."""
    table = torch.zeros(3, 3)
    table[:, 2] = -torch.inf
    scores = min_k_scores(Pairs(table), [Passage("a", [0, 1, 0])])
    assert scores.by_id == {"a": pytest.approx(0.0, abs=1e-6)}
    table[:, 1] = -torch.inf
    assert math.isfinite(min_k_scores(Pairs(table), [Passage("a", [1, 0, 0])]).by_id["a"])
    for share in (0.0, 1.1):
        with pytest.raises(AttackError, match="share"):
            min_k_scores(Pairs(table), [Passage("a", [0, 1])], share)


def test_min_k_refuses_a_model_whose_dropout_is_on() -> None:
    torch.manual_seed(0)
    model = LSTM.new(LSTMConfig(vocabulary_size=WORDS, embedding_size=8, hidden_size=8, dropout=0.5))
    passages = some_passages()
    model.module.train()
    with pytest.raises(AttackError, match="dropout is on"):
        min_k_scores(model, passages)
    model.module.eval()
    assert len(min_k_scores(model, passages).by_id) == len(passages)


def test_neighborhood_by_loops() -> None:
    model, passages = pairs(1), some_passages()
    around = {one.id: [replace(other, id="x") for other in some_passages(3, seed)] for seed, one in enumerate(passages)}
    expected = {
        one.id: float(np.mean(said(model, one)) - np.mean([np.mean(said(model, other)) for other in around[one.id]]))
        for one in passages
    }
    assert neighborhood_scores(model, passages, around).by_id == pytest.approx(expected, rel=1e-4, abs=1e-5)
    with pytest.raises(AttackError, match="none for c2"):
        neighborhood_scores(model, passages, {**around, "c2": []})


Score = Callable[[Pairs, list[Passage]], Scores]


def _zlib(model: Pairs, passages: list[Passage]) -> Scores:
    return zlib_scores(model, passages, {passage.id: passage.id for passage in passages})


def _reference(model: Pairs, passages: list[Passage]) -> Scores:
    return reference_scores(model, pairs(9), passages)


def _neighborhood(model: Pairs, passages: list[Passage]) -> Scores:
    return neighborhood_scores(model, passages, {one.id: some_passages(2) for one in passages})


EVERY: list[Score] = [loss_scores, _zlib, _reference, min_k_scores, _neighborhood]


@pytest.mark.parametrize("score", EVERY)
def test_every_score_is_joined_by_id(score: Score) -> None:
    """Shuffling, and who else is in the batch, change nothing; a repeated id is an error."""
    model, passages = pairs(1), some_passages(40)
    whole = score(model, passages)
    shuffled = score(model, random.Random(1).sample(passages, len(passages)))
    assert shuffled.by_id == pytest.approx(whole.by_id, rel=1e-4)
    alone = score(model, passages[7:8])
    assert alone.by_id["c7"] == pytest.approx(whole.by_id["c7"], rel=1e-4)
    with pytest.raises(AttackError, match="c3 again"):
        score(model, [*passages, passages[3]])


@pytest.mark.parametrize("score", EVERY)
def test_a_score_that_is_no_number_names_the_id(score: Score) -> None:
    model, passages = pairs(1), [Passage("fine", [0, 1, 2]), Passage("odd one", [0, 6, 1])]
    model.table[6] = math.nan
    with pytest.raises(AttackError, match="odd one"):
        score(model, passages)


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(AttackError, match="a token to score in x"):
        Passage("x", [0])
    with pytest.raises(AttackError, match="a token to score in x"):
        Passage("x", [0, 1, 2], 3)
    with pytest.raises(AttackError, match="at least one candidate"):
        loss_scores(pairs(1), [])
    with pytest.raises(AttackError, match="6 in long"):
        loss_scores(replace(pairs(1), context=4), [Passage("long", [0] * 6), Passage("short", [0, 1])])


def test_a_model_that_has_seen_the_members_gives_them_away() -> None:
    """The whole way: coin-flipped candidates from one generator, a small LSTM trained on those inside."""
    torch.manual_seed(3)
    rng = random.Random(3)
    texts = {f"c{place}": "".join(rng.choice("012345") for _ in range(8)) for place in range(80)}
    inside = {name: rng.random() < 0.5 for name in texts}
    passages = [Passage(name, [6, *map(int, text)]) for name, text in texts.items()]
    model = LSTM.new(LSTMConfig(vocabulary_size=WORDS, embedding_size=24, hidden_size=48, dropout=0.0))
    before = loss_scores(model, passages)
    batch = TextBatch.of_rows([passage.tokens for passage in passages if inside[passage.id]])
    optimizer = torch.optim.Adam(model.module.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        torch.autograd.backward(model.token_losses(batch).mean)
        optimizer.step()
    model.module.eval()
    for scores in (loss_scores(model, passages), min_k_scores(model, passages, 0.5)):
        assert half_cut(judged(scores, inside)).chance < 1e-6
    assert half_cut(judged(before, inside)).chance > 1e-3
    assert not blind(texts, inside).flagged


def test_two_stages_are_right_about_noise() -> None:
    """The flaw, shown: scores that know nothing look perfect once the truth has picked whom to score."""
    generator = np.random.default_rng(0)
    names = [str(place) for place in range(1000)]
    inside = {name: place < 500 for place, name in enumerate(names)}
    noise = Scores.of(names, generator.normal(size=1000))
    fresh = Scores.of(names, generator.normal(size=1000))
    assert half_cut(judged(noise, inside)).accuracy.value < 0.56
    assert two_stage(noise, noise, inside).accuracy.value == 1
    assert two_stage(noise, fresh, inside).accuracy.value < 0.65
    assert two_stage(noise, noise, inside).candidates == 300
    with pytest.raises(AttackError, match="keep more"):
        two_stage(noise, noise, inside, 0.0)


# The blind baseline.


def _numbers(count: int, generator: np.random.Generator, lead: str = "") -> dict[str, str]:
    return {f"c{place}": lead + "".join(map(str, generator.integers(0, 10, 9))) for place in range(count)}


@pytest.mark.statistical
def test_candidates_of_one_generator_are_not_flagged() -> None:
    """G3: a chance below .05 in at most 5 % of repetitions; false alarm: 1e-6."""
    generator, repetitions = np.random.default_rng(1), 40
    low = 0
    for _ in range(repetitions):
        texts = _numbers(100, generator)
        found = blind(texts, {name: bool(generator.random() < 0.5) for name in texts})
        low += found.chance < 0.05
    assert low <= stats.binom.isf(1e-6, repetitions, 0.05)


def test_the_chance_is_that_of_the_luckiest_fold_times_their_number() -> None:
    """G3, by loops: a fold is every fifth id in the order of checksums."""
    generator = np.random.default_rng(5)
    texts = _numbers(103, generator)
    inside = {name: bool(generator.random() < 0.5) for name in texts}
    found = blind(texts, inside)
    order = sorted(texts, key=lambda name: zlib.crc32(name.encode()))
    folds = [order[start::FOLDS] for start in range(FOLDS)]
    chances = [half_cut(judged(found.scores.only(fold), {one: inside[one] for one in fold})).chance for fold in folds]
    assert found.chance == pytest.approx(min(1.0, FOLDS * min(chances)))
    assert found.chance < 1


@pytest.mark.parametrize("flaw", ["first character", "length", "digits"])
def test_flaws_of_the_candidates_are_flagged(flaw: str) -> None:
    """Controls: S-DP's members began with a space (93.7 %) and its non-members did not (8.8 %)."""
    generator = np.random.default_rng(2)
    texts, inside = {}, {}
    for name, text in _numbers(400, generator).items():
        member = inside[name] = bool(generator.random() < 0.5)
        if flaw == "first character":
            texts[name] = (" " if generator.random() < (0.937 if member else 0.088) else "") + text
        elif flaw == "length":
            texts[name] = text[: 9 if member else generator.integers(6, 10)]
        else:
            texts[name] = text if not member else text.replace("7", "1")
    found = blind(texts, inside)
    assert found.flagged
    assert found.rates.cut.accuracy.value > 0.65


def test_blind_scores_do_not_know_the_truth_of_whom_they_score() -> None:
    """G2: turning one candidate's truth does not move its own score."""
    generator = np.random.default_rng(3)
    texts = _numbers(60, generator)
    inside = {name: bool(generator.random() < 0.5) for name in texts}

    def rank(truth: bool) -> Blind:
        return blind(texts, {**inside, "c5": truth})

    assert rank(True).scores.by_id["c5"] == rank(False).scores.by_id["c5"]


def test_blind_is_joined_by_id_and_takes_any_text() -> None:
    generator = np.random.default_rng(4)
    texts = {**_numbers(30, generator), "empty": "", "odd": "\ud800 ünï", "long": "a" * 500}
    inside = {name: place % 2 == 0 for place, name in enumerate(texts)}
    backwards = dict(reversed(texts.items()))
    assert blind(texts, inside) == blind(backwards, inside)
    assert np.isfinite(features("")).all()
    same = blind(dict.fromkeys(texts, "same"), inside)
    assert (same.flagged, same.chance) == (False, 1.0)
    with pytest.raises(AttackError, match="at least 10 candidates"):
        blind({"a": "x"}, {"a": True})
    with pytest.raises(AttackError, match="33 texts and 32 truths"):
        blind(texts, {name: truth for name, truth in inside.items() if name != "odd"})
