"""How long pricing takes, and how it compares with dp-accounting's own PLD accountant.

    python benchmarks/accounting.py

Prints one line a composition: epsilon and seconds of ours, and of dp-accounting at interval 1e-3 where it is asked.
"""

import time
from collections.abc import Callable
from functools import partial

from tacit.privacy.account import calibrate_noise, library_pld
from tacit.privacy.events import Composition, ExposedGaussian, Relation, SampledGaussian
from tacit.privacy.pld import PLD

DELTA = 8e-5


def timed(work: Callable[[Composition], float], composition: Composition) -> tuple[float, float]:
    """The result and the seconds it took."""
    start = time.perf_counter()
    return work(composition), time.perf_counter() - start


def ours(composition: Composition) -> float:
    """Epsilon by our PLD, which searches use, and figures of units with several records."""
    return PLD.profile(composition).epsilon(DELTA)


def theirs(composition: Composition) -> float:
    """Epsilon by dp-accounting."""
    return library_pld().profile(composition).epsilon(DELTA)


def sampled(noise: float, rate: float, steps: int, copies: int = 1) -> Composition:
    """One kind of sampled step under zero-out."""
    return ((SampledGaussian(noise, rate, copies, Relation.ZERO_OUT), steps),)


COMPOSITIONS: dict[str, Composition] = {
    "sigma .5, q .01, T 1e3": sampled(0.5, 0.01, 10**3),
    "sigma .5, q .01, T 1e5": sampled(0.5, 0.01, 10**5),
    "sigma .8, q .01, T 1e4": sampled(0.8, 0.01, 10**4),
    "sigma 1, q .01, T 1e5": sampled(1.0, 0.01, 10**5),
    "WikiText, 1 copy": sampled(0.5, 1 / 9996, 37 * 9996),
    "WikiText, 5 copies": sampled(0.5, 1 / 9996, 37 * 9996, 5),
    "WikiText, 50 copies": sampled(0.5, 1 / 9996, 37 * 9996, 50),
    "WikiText, batch exposed": ((ExposedGaussian(0.5, 1 / 9996, Relation.ZERO_OUT), 37 * 9996),),
    "sigma 1, q 1e-3, T 1e7": sampled(1.0, 1e-3, 10**7),
}
COMPARED = [name for name in COMPOSITIONS if "50 copies" not in name and "exposed" not in name]


def main() -> None:
    """Print the table."""
    print(f"{'composition':26} {'epsilon':>10} {'seconds':>8} {'dp-accounting':>14} {'seconds':>8}")
    for name, composition in COMPOSITIONS.items():
        epsilon, seconds = timed(ours, composition)
        line = f"{name:26} {epsilon:10.4f} {seconds:8.2f}"
        if name in COMPARED:
            epsilon, seconds = timed(theirs, composition)
            line += f" {epsilon:14.4f} {seconds:8.2f}"
        print(line)
    for copies in (1, 10, 50):
        start = time.perf_counter()
        noise = calibrate_noise(partial(million_steps, copies), 3.0, 1e-6)
        print(f"noise for epsilon 3, {copies:2} copies {noise:9.4f} {time.perf_counter() - start:8.2f}")


def million_steps(copies: int, noise: float) -> Composition:
    """A run of a million steps."""
    return sampled(noise, 1e-3, 10**6, copies)


if __name__ == "__main__":
    main()
