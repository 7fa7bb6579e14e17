"""The baseline that never meets the model: do the texts alone distinguish members from others?

If so, an attack that "finds members" may be finding how the two kinds of text were made (S-DP's members began with a
space, and that rule alone scored 92.5 %). Members and others that come from one generator by coin flip leave nothing
to find.

G1. Each candidate is scored by a classifier that has not seen its truth.
G2. The chance is exact: folds are fixed by the ids, so under fair coins the truths of a fold are exchangeable given the
    classifier, and the members in its better half are hypergeometric; the smallest of the folds' chances is multiplied
    by their number.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from tacit.audits.statistics import Cut, Floats, Scores, half_cut, judged
from tacit.errors import AttackError

FOLDS = 5
_HASHED = 256  # places for n-grams; two that share one cannot be distinguished, which costs power and no truth
_PENALTY = 1.0


@dataclass(frozen=True, slots=True)
class Blind:
    """What text alone gives away. When `flagged`, no attack on these candidates means anything."""

    scores: Scores
    cut: Cut
    chance: float
    flagged: bool


def blind(texts: Mapping[str, str], inside: Mapping[str, bool], level: float = 0.01) -> Blind:
    """Cross-validated logistic regression on features of the texts, flagged when its chance is below `level`."""
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
        log_odds = _fitted(table[~held], truth[~held], table[held])
        ranks[held] = stats.rankdata(log_odds) / (held.sum() + 1)
        chances.append(_chance(log_odds, truth[held]))
    chance = min(1.0, FOLDS * min(chances))
    scores = Scores.of(ids, ranks)
    return Blind(scores, half_cut(judged(scores, inside)), chance, chance < level)


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


def _fitted(table: Floats, truth: npt.NDArray[np.bool_], asked: Floats) -> Floats:
    """Log-odds of `asked` under a ridge-penalised logistic regression; without its intercept, which ranks nobody."""
    centre, scale = table.mean(axis=0), table.std(axis=0)
    varies = scale > 1e-12
    if not varies.any() or truth.all() or not truth.any():
        return np.zeros(len(asked))
    known, unknown = ((rows[:, varies] - centre[varies]) / scale[varies] for rows in (table, asked))
    signs = np.where(truth, 1.0, -1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = signs * (known @ weights[1:] + weights[0])
        value = float(-special.log_expit(margins).sum() + _PENALTY * (weights[1:] @ weights[1:]) / 2)
        pull = -signs * special.expit(-margins)
        return value, np.append(pull.sum(), known.T @ pull + _PENALTY * weights[1:])

    weights = optimize.minimize(loss, np.zeros(known.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return np.asarray(unknown @ weights[1:], dtype=np.float64)


def _chance(log_odds: Floats, truth: npt.NDArray[np.bool_]) -> float:
    if truth.all() or not truth.any():
        return 1.0
    names = [str(place) for place in range(len(truth))]
    known = dict(zip(names, (bool(one) for one in truth), strict=True))
    return half_cut(judged(Scores.of(names, log_odds), known)).chance
