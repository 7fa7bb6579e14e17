"""Was this text in the training data? Scores from the probability a model gives it, and what the text alone reveals.

| score | what it is | from |
|---|---|---|
| loss | mean log-probability of the tokens that count | Yeom et al. 2018; the four papers' perplexity ranks alike |
| zlib | loss over the length of the text compressed by zlib | Carlini et al. 2021 |
| reference | loss minus the loss under a model that did not see the text | Carlini et al. 2021 |
| min-k | mean of the lowest share of standardized log-probabilities (Min-K%++) | Zhang et al. 2024, 2404.02936 |
| neighborhood | loss minus the mean loss of texts whose secrets are stand-ins | Mattern et al. 2023, 2305.18462 |

The higher, the more like a member. Candidates of different token lengths do not compare fairly by totals, so every
score is a mean; canaries of one template and one length are best.

`blind` is the baseline that never meets the model. If it distinguishes members from others, an attack that "finds
members" may be finding how the two kinds of text were made (S-DP's members began with a space, and that rule alone
scored 92.5 %). Members and others that come from one generator by coin flip leave nothing to find.

G1 (silent). Results contain ids and numbers, never a text. A score that is not a number is an error that names the id.
G2 (blind). Each candidate is scored by a classifier that has not seen its truth.
G3 (exact). Folds are fixed by the ids, so under fair coins the truths of a fold are exchangeable given the classifier,
   and the members in its better half are hypergeometric; the smallest of the folds' chances is multiplied by their
   number.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize, special, stats
from torch import Tensor

from tacit.audits.division import divided
from tacit.audits.statistics import Booleans, Floats, Judged, Rates, Scores, half_cut, judged, rates
from tacit.data.batches import TextBatch
from tacit.errors import AttackError
from tacit.models.language_model import Speaker

MIN_K_SHARE = 0.2
FOLDS = 5
_POSITIONS = 1 << 14  # padded positions in a pass
_NUMBERS = 1 << 26  # and logits, when whole distributions are needed
_HASHED = 256  # places for n-grams; two that share one cannot be distinguished, which costs power and no truth
_PENALTY = 1.0
_FLAGGED = 0.01


class Outspoken(Speaker, Protocol):
    """A Speaker that gives whole distributions; dropout must be off."""

    def logits(self, tokens: Tensor) -> Tensor:
        """(rows, time, vocabulary): unnormalized log-probabilities of what follows each position."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A candidate as the model reads it; tokens before `counted_from` are context, which is given and not scored."""

    id: str
    tokens: Sequence[int]
    counted_from: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.counted_from < len(self.tokens):
            raise AttackError(
                expected=f"a token to begin with and a token to score in {self.id}",
                found=f"{len(self.tokens)} tokens, counted from {self.counted_from}",
                way_out="begin with the end token, and leave empty candidates out",
            )


def loss_scores(speaker: Speaker, passages: Sequence[Passage]) -> Scores:
    """Mean log-probability: the negative logarithm of the perplexity."""
    return _scores(passages, lambda said: float(said.mean()), log_probabilities(speaker, passages))


def zlib_scores(speaker: Speaker, passages: Sequence[Passage], texts: Mapping[str, str]) -> Scores:
    """Mean log-probability over the bytes that zlib needs: what any compressor finds easy is not memorized."""
    losses = loss_scores(speaker, passages)
    unknown = sorted(losses.by_id.keys() - texts.keys())
    if unknown:
        raise AttackError("the text of every candidate", f"none of {unknown[0]}", "give the texts by id")
    sizes = {one: len(zlib.compress(texts[one].encode("utf-8", "replace"))) for one in losses.by_id}
    return Scores({one: value / sizes[one] for one, value in losses.by_id.items()})


def reference_scores(speaker: Speaker, reference: Speaker, passages: Sequence[Passage]) -> Scores:
    """How much more probable than under `reference`: a model with the same tokens that did not see the candidates."""
    check_reference(speaker, reference)
    return _difference(loss_scores(speaker, passages), loss_scores(reference, passages).by_id)


def check_reference(speaker: Speaker, reference: Speaker) -> None:
    """Refuse a model with another number of tokens."""
    if speaker.vocabulary_size != reference.vocabulary_size:
        raise AttackError(
            expected=f"a reference with {speaker.vocabulary_size} tokens",
            found=f"one with {reference.vocabulary_size}",
            way_out="take a reference with the same tokenizer, such as the model before training",
        )


def min_k_scores(speaker: Outspoken, passages: Sequence[Passage], share: float = MIN_K_SHARE) -> Scores:
    """Min-K%++: (log p - mean) / deviation over the vocabulary at each place, then the mean of the lowest `share`."""
    if not 0 < share <= 1:
        raise AttackError("a share above 0 and at most 1", str(share), f"the paper's is {MIN_K_SHARE}")

    def lowest(said: Floats) -> float:
        kept = np.sort(said)[: max(1, int(share * len(said)))]
        return math.nan if np.isnan(said).any() else float(kept.mean())  # sorting hides NaN

    return _scores(passages, lowest, _standardized(speaker, passages))


def neighborhood_scores(
    speaker: Speaker, passages: Sequence[Passage], neighbors: Mapping[str, Sequence[Passage]]
) -> Scores:
    """Loss minus the mean loss of each candidate's neighbors, which differ from it in their secrets alone."""
    without = [passage.id for passage in passages if not neighbors.get(passage.id)]
    if without:
        raise AttackError(
            "a neighbor for every candidate", f"none for {without[0]}", "make some with CandidateRows.surrogates"
        )
    own = loss_scores(speaker, passages)
    around = {
        passage.id: [replace(one, id=f"{passage.id}/{number}") for number, one in enumerate(neighbors[passage.id])]
        for passage in passages
    }
    losses = loss_scores(speaker, [one for some in around.values() for one in some]).by_id
    return _difference(own, {name: float(np.mean([losses[one.id] for one in some])) for name, some in around.items()})


def _scores(
    passages: Sequence[Passage], score: Callable[[Floats], float], said: Iterator[tuple[int, Floats]]
) -> Scores:
    values = np.full(len(passages), np.nan)
    for place, numbers in said:
        values[place] = score(numbers)
    return Scores.of([passage.id for passage in passages], values.tolist())


def _standardized(speaker: Outspoken, passages: Sequence[Passage]) -> Iterator[tuple[int, Floats]]:
    """The same, minus the mean and over the deviation of the log-probabilities that the model gave to any token."""

    def standardized(batch: TextBatch) -> Tensor:
        with torch.no_grad():
            every = torch.log_softmax(speaker.logits(batch.inputs).double(), dim=-1)
        said = every.gather(-1, batch.targets[..., None])[..., 0]
        _refuse_dropout(said, speaker.log_probabilities(batch), batch)
        chances = every.exp()
        some = torch.where(chances > 0, every, 0.0)  # 0 log 0 = 0
        mean = (chances * some).sum(dim=-1)
        variance = (chances * (some - mean[..., None]) ** 2).sum(dim=-1)
        return (said - mean) / variance.clamp_min(1e-12).sqrt()

    return _of_each(speaker, passages, max(1, _NUMBERS // speaker.vocabulary_size), standardized)


def _refuse_dropout(said: Tensor, expected: Tensor, batch: TextBatch) -> None:
    counted = batch.weights != 0
    if not torch.allclose(said[counted], expected[counted].double(), rtol=1e-3, atol=1e-3, equal_nan=True):
        raise AttackError(
            expected="logits that agree with the model's own log-probabilities",
            found="others, as from a model whose dropout is on",
            way_out="call module.eval() before the attack",
        )


def _difference(these: Scores, those: Mapping[str, float]) -> Scores:
    return Scores({one: value - those[one] for one, value in these.by_id.items()})


def log_probabilities(speaker: Speaker, passages: Sequence[Passage]) -> Iterator[tuple[int, Floats]]:
    """The log-probability of every token that counts, with the place of its passage; in any order."""
    return _of_each(speaker, passages, _POSITIONS, speaker.log_probabilities)


def _of_each(
    speaker: Speaker, passages: Sequence[Passage], positions: int, numbers: Callable[[TextBatch], Tensor]
) -> Iterator[tuple[int, Floats]]:
    """What `numbers` gives for each token that counts; passes are divided among the processes of the audit."""
    parts = list(_whole(speaker, passages).micro_batches(positions))
    ends = np.cumsum([0, *(len(one.tokens) - one.counted_from for one in passages)])
    found = np.zeros(ends[-1])

    def score(part: tuple[Tensor, TextBatch]) -> None:
        for place, own in _counted(*part, numbers(part[1])):
            found[ends[place] : ends[place + 1]] = own

    divided(parts, [batch.inputs.numel() for _, batch in parts], score, [found])
    return ((place, found[ends[place] : ends[place + 1]]) for place in range(len(passages)))


def _whole(speaker: Speaker, passages: Sequence[Passage]) -> TextBatch:
    if not passages:
        raise AttackError("at least one candidate", "none", "give the candidates to score")
    longest = max(passages, key=lambda passage: len(passage.tokens))
    if len(longest.tokens) - 1 > speaker.context:
        raise AttackError(
            expected=f"candidates of at most {speaker.context + 1} tokens, which the model can read",
            found=f"{len(longest.tokens)} in {longest.id}",
            way_out="cut candidates as the records of training were cut",
        )
    counted = [[float(place >= one.counted_from) for place in range(1, len(one.tokens))] for one in passages]
    return TextBatch.of_rows([one.tokens for one in passages], counted)


def _counted(index: Tensor, batch: TextBatch, numbers: Tensor) -> Iterator[tuple[int, Floats]]:
    table, scored = numbers.double().cpu().numpy(), batch.weights.cpu().numpy() != 0
    for row, place in enumerate(index.tolist()):
        yield place, table[row][scored[row]]


@dataclass(frozen=True, slots=True)
class Blind:
    """What text alone reveals. When `flagged`, no attack on these candidates means anything."""

    scores: Scores
    rates: Rates
    chance: float
    flagged: bool


def blind(texts: Mapping[str, str], inside: Mapping[str, bool], confidence: float = 0.95) -> Blind:
    """Cross-validated logistic regression on features of the texts, flagged when its chance is below 1 %."""
    ids = sorted(texts)
    if len(ids) < 2 * FOLDS or texts.keys() != inside.keys():
        raise AttackError(
            expected=f"at least {2 * FOLDS} candidates, each with a text and a truth",
            found=f"{len(texts)} texts and {len(inside)} truths",
            way_out="make more candidates: from one generator, inside by coin flip",
        )
    table = np.stack([features(texts[one]) for one in ids])
    truth = np.array([bool(inside[one]) for one in ids])
    fold_of = _folds(ids)
    ranks, chances = np.zeros(len(ids)), []
    for fold in range(FOLDS):
        held = fold_of == fold
        log_odds, known = _fitted(table[~held], truth[~held], table[held]), truth[held]
        ranks[held] = stats.rankdata(log_odds) / (held.sum() + 1)
        if known.any() and not known.all():
            chances.append(half_cut(Judged(tuple(compress(ids, held)), log_odds, known)).chance)
    chance = min(1.0, FOLDS * min(chances, default=1.0))
    scores = Scores.of(ids, ranks)
    return Blind(scores, rates(judged(scores, inside), confidence), chance, chance < _FLAGGED)


def features(text: str) -> Floats:
    """Length, digits, capitals, spaces, the first and the last character, and hashed 1- to 3-grams of characters."""
    counts = np.zeros(_HASHED)
    for size in (1, 2, 3):
        for start in range(len(text) - size + 1):
            counts[_place(f"{size}{text[start : start + size]}")] += 1
    ends = np.zeros(2 * 64)
    if text:
        ends[_place(text[0]) % 64] = 1
        ends[64 + _place(text[-1]) % 64] = 1
    kinds = [sum(test(character) for character in text) for test in (str.isdigit, str.isupper, str.isspace)]
    shape = [len(text), len(text.encode("utf-8", "replace")), *kinds, float(text[:1].isspace())]
    return np.concatenate((np.log1p(counts), ends, np.log1p(np.array(shape, dtype=np.float64))))


def _place(gram: str) -> int:
    return zlib.crc32(gram.encode("utf-8", "replace")) % _HASHED


def _folds(ids: list[str]) -> npt.NDArray[np.int64]:
    """A fold for each id, by the id alone."""
    order = sorted(range(len(ids)), key=lambda place: (zlib.crc32(ids[place].encode("utf-8", "replace")), ids[place]))
    folds = np.empty(len(ids), dtype=np.int64)
    folds[order] = np.arange(len(ids)) % FOLDS
    return folds


def _fitted(table: Floats, truth: Booleans, asked: Floats) -> Floats:
    """Log-odds of `asked` under a ridge-penalised logistic regression; without its intercept, which ranks nobody."""
    center, scale = table.mean(axis=0), table.std(axis=0)
    varies = scale > 1e-12
    if not varies.any() or truth.all() or not truth.any():
        return np.zeros(len(asked))
    known, unknown = ((rows[:, varies] - center[varies]) / scale[varies] for rows in (table, asked))
    signs = np.where(truth, 1.0, -1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = signs * (known @ weights[1:] + weights[0])
        value = float(-special.log_expit(margins).sum() + _PENALTY * (weights[1:] @ weights[1:]) / 2)
        pull = -signs * special.expit(-margins)
        return value, np.append(pull.sum(), known.T @ pull + _PENALTY * weights[1:])

    weights = optimize.minimize(loss, np.zeros(known.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return np.asarray(unknown @ weights[1:], dtype=np.float64)
