"""The few numbers of a run that people look at first, each with what it has to be held against."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from tacit.noisy_utility import Estimate
from tacit.report.promises import best_guess
from tacit.report.runs import Finished
from tacit.report.words import ceiling, number, percent, shortened, text
from tacit.rounding import rounded_up

_LONGEST_SETTINGS = 20_000


@dataclass(frozen=True, slots=True)
class Tile:
    """A number with its name and what it means."""

    name: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class Meaning:
    """A figure in words."""

    unit: str
    epsilon: str
    delta: str
    guess: str


@dataclass(frozen=True, slots=True)
class Exposed:
    """Exposures in bits: medians over planted values and over those that were held out; and the highest planted."""

    planted: float
    held_out: float
    highest: float


def tiles(run: Finished) -> list[Tile]:
    """What stands at the top of a page."""
    return [_price(run), *_worth(run), *_attacked(run)]


def _price(run: Finished) -> Tile:
    figure = run.headline
    if figure is None:
        return Tile("Epsilon", "none", "no guarantee is claimed")
    return Tile(
        "Epsilon", rounded_up(figure.epsilon, 4), f"at delta {rounded_up(figure.delta, 3)}, for {figure.neighbours}"
    )


def _worth(run: Finished) -> Iterator[Tile]:
    utility, released = run.utility, run.released
    if utility is None and released.classifies:
        yield Tile("Test error rate", percent(released.error_rate.value), _within(released.error_rate, percent))
        return
    if utility is None:
        yield Tile("Perplexity", number(released.perplexity.value), _within(released.perplexity, number))
        return
    if utility.labels is not None:
        dull = percent(utility.labels.commonest.share)
        yield Tile("Test error rate", percent(utility.labels.overall.share), f"always the commonest class: {dull}")
        return
    public, private = (number(one.perplexity) for one in (utility.public, utility.private))
    yield Tile(
        "Perplexity", number(utility.overall.perplexity), f"on public tokens {public}, on private ones {private}"
    )


def _within(estimate: Estimate, words: Callable[[float], str]) -> str:
    return f"between {words(estimate.low)} and {words(estimate.high)}: noise hides single held-out records"


def perplexity(run: Finished) -> float | None:
    """Overall: exact inside, otherwise as released; none for a classifier."""
    if run.released.classifies:
        return None
    return run.released.perplexity.value if run.utility is None else run.utility.overall.perplexity


def public_perplexity(run: Finished) -> float | None:
    """On public tokens, which is known inside alone."""
    return None if run.utility is None or run.released.classifies else run.utility.public.perplexity


def private_perplexity(run: Finished) -> float | None:
    """On private tokens, which is known inside alone."""
    return None if run.utility is None or run.released.classifies else run.utility.private.perplexity


def error_rate(run: Finished) -> float | None:
    """Of a classifier: exact inside, otherwise as released."""
    if not run.released.classifies:
        return None
    exact = None if run.utility is None else run.utility.labels
    return run.released.error_rate.value if exact is None else exact.overall.share


def _attacked(run: Finished) -> Iterator[Tile]:
    if run.audit is None:
        yield Tile("Attacks", "none", "not audited")
        return
    for known, canaries in ((True, "canaries"), (False, "canaries that the policy was not told of")):
        exposed = exposure(run, known)
        if exposed is not None:
            against = f"bits, median; never planted {number(exposed.held_out)}"
            yield Tile(f"Exposure of {canaries}", number(exposed.planted), against)
    accuracy = membership_accuracy(run)
    if accuracy is not None:
        blind = (
            ""
            if run.audit.blind is None
            else f"; without the model {percent(run.audit.blind.rates.cut.accuracy.value)}"
        )
        yield Tile("Membership told", percent(accuracy), f"best attack; chance is 50 %{blind}")
    if run.audit.extraction is not None:
        share = run.audit.extraction.trained.greedy
        held_out = run.audit.extraction.held_out.greedy
        detail = f"secrets word for word; held out {held_out.count:,} of {held_out.of:,}"
        yield Tile("Extracted", f"{share.count:,} of {share.of:,}", detail)


def meanings(run: Finished) -> list[Meaning]:
    """Each figure of the claim, and how often a guess can be right."""
    return [
        Meaning(
            str(figure.neighbours),
            rounded_up(figure.epsilon, 4),
            rounded_up(figure.delta, 3),
            ceiling(best_guess(figure)),
        )
        for figure in run.guarantee.figures
    ]


def exposure(run: Finished, known: bool = True) -> Exposed | None:
    """Of the canaries that the policy was told of, or was not, those that were repeated most."""
    if run.audit is None:
        return None
    meant = [one for one in run.audit.canaries if one.known is known]
    most = max((one.repetitions for one in meant), default=1)
    findings = [one for one in meant if one.repetitions == most]
    planted = [one.own.bits for finding in findings for one in finding.exposure.canaries if one.inside]
    held_out = [one.twin.bits for finding in findings for one in finding.exposure.canaries]
    if not planted:
        return None
    return Exposed(statistics.median(planted), statistics.median(held_out), max(planted))


def membership_accuracy(run: Finished) -> float | None:
    """The accuracy of the best attack; none where none was made."""
    if run.audit is None:
        return None
    return max((one.rates.cut.accuracy.value for one in run.audit.membership), default=None)


def settings_yaml(config: dict[str, Any]) -> str:
    """The settings that were not left alone, as YAML; a path of somebody's machine is cut to its last part."""
    given = {word: value for word, value in config.items() if value not in (None, {}, [])}
    written = yaml.safe_dump(_without_paths(given), sort_keys=False, allow_unicode=True, width=100)
    return "\n".join(text(line) for line in shortened(written, _LONGEST_SETTINGS).splitlines())


def flat_settings(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Every setting under its dotted name."""
    found: dict[str, str] = {}
    for word, value in config.items():
        if isinstance(value, dict):
            found |= flat_settings(value, f"{prefix}{word}.")
        else:
            found[f"{prefix}{word}"] = text(_without_paths(value))[:80]
    return found


def _without_paths(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {word: _without_paths(inner) for word, inner in value.items()}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value]
    return PurePath(value).name if isinstance(value, str) and value.startswith("/") else value
