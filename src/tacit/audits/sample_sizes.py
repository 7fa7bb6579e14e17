"""Rates with the number they are a share of; one of too few is not printed, but how many are missing is."""

from tacit.audits.statistics import MeasuredRate, Rates

ENOUGH = 50
"""On each side, or groups: with fewer, a 95 % interval of a share is wider than 28 points."""


FEWEST_FOR_THOUSANDTHS = 1000
"""Others that a rate at 0.1 % false alarms needs: one of them is already more."""


def shown(rate: MeasuredRate, count: int) -> str:
    """In per cent, with its interval and its number: `61.2 (57-66), n 500`; a dash where `count` is too small."""
    return dash(count) if count < ENOUGH else f"{measured(rate)}, n {count:,}"


def measured(rate: MeasuredRate) -> str:
    """In per cent, with its interval."""
    return f"{100 * rate.value:.1f} ({100 * rate.interval.low:.0f}-{100 * rate.interval.high:.0f})"


def dash(count: int) -> str:
    """What is printed instead of a rate of so few."""
    return f"– ({ENOUGH - count} too few)"


def smaller_side(rates: Rates) -> int:
    """How many candidates the smaller side has."""
    return min(rates.members, rates.others)
