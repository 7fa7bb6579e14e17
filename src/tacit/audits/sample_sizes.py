"""Rates with the number they are a share of; one of too few is not printed, but how many are missing is."""

from tacit.audits.statistics import MeasuredRate, Rates

ENOUGH = 50
"""On each side, or groups: with fewer, a 95 % interval of a share is wider than 28 points."""


def shown(rate: MeasuredRate, count: int) -> str:
    """In per cent, with its interval and its number: `61.2 (57-66), n 500`; a dash where `count` is too small."""
    if count < ENOUGH:
        return dash(count)
    return f"{100 * rate.value:.1f} ({100 * rate.interval.low:.0f}-{100 * rate.interval.high:.0f}), n {count:,}"


def dash(count: int) -> str:
    """What is printed instead of a rate of so few."""
    return f"– ({ENOUGH - count} too few)"


def enough(rates: Rates) -> bool:
    """Whether both sides have enough candidates."""
    return min(rates.members, rates.others) >= ENOUGH
