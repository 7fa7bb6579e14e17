"""The lower tail of a skew-normal distribution, for ranks in spaces too large to enumerate.

notation    here      density 2/scale phi(z) Phi(shape z),  z = (x - place) / scale
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import integrate, special, stats

from tacit.errors import AttackError

Floats = npt.NDArray[np.float64]

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
