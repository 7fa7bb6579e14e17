"""Exposure: how high a canary ranks among all that it could have been (Carlini et al. 2019, 1802.08232).

    notation        here                                     paper
    |R|             space.size                               randomness space
    rank            1 + those above + half of those equal    rank, ties unsaid
    exposure        log2 |R| - log2 rank, in bits            definition 4
    draws           candidates sampled                       section 4.3 (sampling; skew-normal extrapolation)

A value that the model knows nothing of has each rank with the same probability: exposure x or more has probability
2^-x, 1.44 bits are to be expected, and one canary in a thousand shows ten. So an exposure means something only beside
those of values that were drawn alike and held out, or beside that probability.

Formal guarantees:

G1 (exact). `Method.EXACT` ranks the canary among all candidates, by the total log-probability of their whole texts, in
   the model's float32. Equal candidates share the middle of their ranks, so that a model which tells nothing apart
   exposes nothing but the middle; `ties` counts them.
G2 (sampled). `Method.SAMPLED` puts the canary among `draws` random candidates: log2((draws + 1) / rank among them). It
   cannot exceed log2(draws + 1).
G3 (extrapolated). `Method.EXTRAPOLATED` takes the tail of a skew-normal distribution fitted to the draws: an estimate,
   as good as the fit, whose standard error tells of the draws and not of the fit's form.
G4 (silent). A result names canaries by id and holds no value and no text.

The lower tail of a skew-normal distribution, for ranks in spaces too large to enumerate.

notation    here      density 2/scale phi(z) Phi(shape z),  z = (x - place) / scale
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import integrate, special, stats

from tacit.audits.candidates import AttackProgress, Space, Spelling, TokenTree, total_log_probabilities
from tacit.audits.statistics import Excess, Floats, IntegerCounts, Scores, excess_over_chance
from tacit.config.audit_schema import ExposureConfig
from tacit.config.setting import Method
from tacit.data.canaries import CanaryRecord
from tacit.errors import AttackError
from tacit.models.language_model import Speaker

_GROUPS = 10
_SMALL = 1e-4  # below it the library's distribution function loses digits


@dataclass(frozen=True, slots=True)
class SkewNormal:
    """A skew-normal distribution."""

    shape: float
    place: float
    scale: float

    @classmethod
    def fitted(cls, values: Floats) -> "SkewNormal":
        """The one of greatest likelihood."""
        if not np.isfinite(values).all() or np.ptp(values) == 0:
            raise AttackError(
                expected="candidates of different, finite log-probabilities, to fit a distribution to",
                found="equal or infinite ones",
                way_out="use the sampled method",
            )
        return cls(*(float(number) for number in stats.skewnorm.fit(values)))

    def surprises(self, values: Floats) -> Floats:
        """In bits: minus the log of the probability of a value as low or lower."""
        return np.array([abs(self._log_tail((value - self.place) / self.scale)) / math.log(2) for value in values])

    def distance(self, values: Floats) -> float:
        """The largest gap between its distribution function and that of `values` (Kolmogorov and Smirnov)."""
        fitted = stats.skewnorm(self.shape, self.place, self.scale)
        return float(stats.kstest(values, fitted.cdf).statistic)

    def _log_tail(self, z: float) -> float:
        share = float(stats.skewnorm.cdf(z, self.shape))
        if share > _SMALL:
            return math.log(min(share, 1.0))
        # The density is log-concave, so below z it falls at least as fast as at z: integrate in units of that slope.
        here = self._log_density(z)
        unit = 1 / self._slope(z)
        area, _ = integrate.quad(lambda t: math.exp(self._log_density(z - unit * t) - here), 0, np.inf)
        return here + math.log(unit * area)

    def _log_density(self, z: float) -> float:
        return math.log(2 / math.sqrt(2 * math.pi)) - z * z / 2 + float(special.log_ndtr(self.shape * z))

    def _slope(self, z: float) -> float:
        """The derivative of the log-density; phi(y) / Phi(y) through the scaled error function."""
        y = self.shape * z
        hazard = math.sqrt(2 / math.pi) / float(special.erfcx(-y / math.sqrt(2)))
        return -z + self.shape * hazard


def jackknife(fit: SkewNormal, sample: Floats, values: Floats) -> Floats:
    """The standard errors of `fit.surprises(values)`: the fit is made again without each tenth of its sample."""
    again = np.array(
        [
            SkewNormal.fitted(np.delete(sample, slice(group, None, _GROUPS))).surprises(values)
            for group in range(_GROUPS)
        ]
    )
    spread: Floats = np.sqrt((_GROUPS - 1) * again.var(axis=0))
    return spread


@dataclass(frozen=True, slots=True)
class Exposure:
    """Of one value. rank: the middle one, where known; ties: other candidates that are as probable.

    chance: how probable so high a rank is, at most, for a uniform value that the model knows nothing of (equal
    candidates counted as above it); none where the rank is extrapolated.
    """

    bits: float
    standard_error: float
    rank: float | None
    ties: int
    chance: float | None


@dataclass(frozen=True, slots=True)
class CanaryExposure:
    """Of one canary, and of its twin that was never planted."""

    id: str
    inside: bool
    own: Exposure
    twin: Exposure


@dataclass(frozen=True, slots=True)
class ExposureResult:
    """`dataclasses.asdict` of it is JSON. fit_distance: the largest gap between the fit and the draws, as shares.

    excess: canaries inside against all values held out; none when no canary is inside. best_chance: of the best canary
    inside, times their number: a p-value that needs no values held out, but values drawn uniformly.
    """

    method: Method
    space: int
    draws: int | None
    fit_distance: float | None
    canaries: tuple[CanaryExposure, ...]
    excess: Excess | None
    best_chance: float | None


@dataclass(frozen=True, slots=True)
class ValueExposures:
    """Of some values of one space, in their order, and how they were found."""

    method: Method
    draws: int | None
    fit_distance: float | None
    exposures: tuple[Exposure, ...]


def value_exposures(
    speaker: Speaker,
    space: Space,
    values: Sequence[str],
    spelling: Spelling,
    settings: ExposureConfig,
    generator: np.random.Generator,
    progress: AttackProgress | None = None,
) -> ValueExposures:
    """The exposure of every value, which must be one of the space; `generator` draws candidates where not all rank."""
    method = settings.method_for(space.size)
    if method is Method.EXACT:
        tree = TokenTree.of(spelling.of_space(space), spelling.opening)
        totals = total_log_probabilities(speaker, tree, settings.memory, progress)
        numbers = [space.number(value) for value in values]
        own = totals[[number for number in numbers if number is not None]]
        return ValueExposures(method, None, None, tuple(exact_exposures(totals, own)))
    drawn = [*values, *space.sample(settings.draws, generator)]
    tree = TokenTree.of(spelling.of_values(space, drawn), spelling.opening)
    totals = total_log_probabilities(speaker, tree, settings.memory, progress)
    own, others = totals[: len(values)], totals[len(values) :]
    if method is Method.SAMPLED:
        return ValueExposures(method, settings.draws, None, tuple(sampled_exposures(others, own)))
    fit = SkewNormal.fitted(-others)
    exposures = tuple(extrapolated_exposures(fit, others, own))
    return ValueExposures(method, settings.draws, fit.distance(-others), exposures)


def measure_exposure(
    speaker: Speaker,
    space: Space,
    canaries: Sequence[CanaryRecord],
    spelling: Spelling,
    settings: ExposureConfig,
    generator: np.random.Generator,
    progress: AttackProgress | None = None,
) -> ExposureResult:
    """The exposure of every canary and of its twin; `generator` draws candidates where not all are ranked."""
    _check(space, canaries)
    values = [value for canary in canaries for value in (canary.value, canary.twin_value)]
    found = value_exposures(speaker, space, values, spelling, settings, generator, progress)
    return ExposureResult(
        method=found.method,
        space=space.size,
        draws=found.draws,
        fit_distance=found.fit_distance,
        canaries=(measured := _joined(canaries, found.exposures)),
        excess=_excess(measured),
        best_chance=_best_chance(measured),
    )


def twin_margins(speaker: Speaker, space: Space, canaries: Sequence[CanaryRecord], spelling: Spelling) -> Scores:
    """By id, how much more probable each canary's text is than its twin's."""
    _check(space, canaries)
    values = [value for canary in canaries for value in (canary.value, canary.twin_value)]
    tree = TokenTree.of(spelling.of_values(space, values), spelling.opening)
    totals = total_log_probabilities(speaker, tree)
    return Scores.of([canary.id for canary in canaries], totals[::2] - totals[1::2])


def own_scores(speaker: Speaker, space: Space, canaries: Sequence[CanaryRecord], spelling: Spelling) -> Scores:
    """By id, how probable each canary's text is: all share one template, so nothing else needs to be taken off."""
    _check(space, canaries)
    tree = TokenTree.of(spelling.of_values(space, [canary.value for canary in canaries]), spelling.opening)
    return Scores.of([canary.id for canary in canaries], total_log_probabilities(speaker, tree))


def exact_exposures(totals: Floats, own: Floats) -> list[Exposure]:
    """Of values with total log-probabilities `own` among all candidates' `totals`, which hold them too."""
    above, equal = _above_and_equal(totals, own)
    size, exposures = len(totals), []
    for higher, as_high in zip(above.tolist(), equal.tolist(), strict=True):
        rank = 1 + higher + (as_high - 1) / 2
        chance = (higher + as_high) / size
        exposures.append(Exposure(math.log2(size) - math.log2(rank), 0.0, rank, as_high - 1, chance))
    return exposures


def sampled_exposures(others: Floats, own: Floats) -> list[Exposure]:
    """Of values with total log-probabilities `own` among those of a uniform sample."""
    draws, exposures = len(others), []
    for above, equal in zip(*(counts.tolist() for counts in _above_and_equal(others, own)), strict=True):
        share = (1 + above + equal / 2) / (draws + 1)
        error = math.sqrt(max(1 - share, 0.0) / (share * draws)) / math.log(2)  # the delta method
        chance = (1 + above + equal) / (draws + 1)
        exposures.append(Exposure(-math.log2(share), error, None, equal, chance))
    return exposures


def extrapolated_exposures(fit: SkewNormal, others: Floats, own: Floats) -> list[Exposure]:
    """Of values with total log-probabilities `own`, by a fit to minus `others`."""
    bits = fit.surprises(-own)
    errors = jackknife(fit, -others, -own)
    _, equal = _above_and_equal(others, own)
    return [
        Exposure(float(bit), float(error), None, int(ties), None)
        for bit, error, ties in zip(bits, errors, equal, strict=True)
    ]


def _above_and_equal(totals: Floats, own: Floats) -> tuple[IntegerCounts, IntegerCounts]:
    rising = np.sort(totals)
    left, right = np.searchsorted(rising, own, side="left"), np.searchsorted(rising, own, side="right")
    return len(rising) - right, right - left


def _joined(canaries: Sequence[CanaryRecord], exposures: Sequence[Exposure]) -> tuple[CanaryExposure, ...]:
    pairs = zip(canaries, exposures[::2], exposures[1::2], strict=True)
    return tuple(CanaryExposure(canary.id, canary.inside, own, twin) for canary, own, twin in pairs)


def _excess(measured: Sequence[CanaryExposure]) -> Excess | None:
    inside = [canary.own.bits for canary in measured if canary.inside]
    outside = [canary.own.bits for canary in measured if not canary.inside]
    held_out = [*outside, *(canary.twin.bits for canary in measured)]
    return excess_over_chance(inside, held_out) if inside else None


def _best_chance(measured: Sequence[CanaryExposure]) -> float | None:
    chances = [canary.own.chance for canary in measured if canary.inside and canary.own.chance is not None]
    return min(1.0, len(chances) * min(chances)) if chances else None


def _check(space: Space, canaries: Sequence[CanaryRecord]) -> None:
    if not canaries:
        raise AttackError("at least one canary", "none", "plant canaries before training")
    if space.size < 2:
        raise AttackError(
            expected="at least two candidates",
            found=f"a space of {space.size}",
            way_out="a rank among one says nothing: name what else the secret could have been",
        )
    for canary in canaries:
        for value, text in ((canary.value, canary.text), (canary.twin_value, canary.twin_text)):
            if space.number(value) is None or text != space.before + value + space.after:
                raise AttackError(
                    expected="canaries whose texts are among the candidates",
                    found=f"{canary.id}, which is not",
                    way_out="use the template and the words that the canaries were drawn with",
                )
