"""The page of one run: a pure function of its released files.

G1 (pure). Equal folders give equal pages: no clock, no chance, no path of the machine.
G2 (hostile text). Every string is escaped; the page runs its own script alone, named by its hash, and loads nothing.
G3 (bounded). However much a file says, a page stays small: texts are cut, and long lists say how much was left out.

The few numbers of a run that people look at first, each with what it has to be held against.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from tacit.common.charts import Chart
from tacit.common.formatting import ceiling, number, percent, rounded_up, short, shortened, text
from tacit.policies.marking import Inside
from tacit.privacy.certificate import ACCESSES, SETTING
from tacit.privacy.noisy_utility import Estimate
from tacit.privacy.tradeoff import best_guess
from tacit.reports.average_case_chart import average_case_chart
from tacit.reports.claim_charts import (
    allowed_chart,
    policy_chart,
    profile_chart,
    spending_chart,
    timeline_chart,
    utility_chart,
)
from tacit.reports.drawing import COLOURS
from tacit.reports.environment import script, script_policy, template
from tacit.reports.finished_run import Finished

_LONGEST_SETTINGS = 20_000


@dataclass(frozen=True, slots=True)
class Tile:
    """A number with its name and what it means."""

    name: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class FactMeaning:
    """A figure in words."""

    unit: str
    epsilon: str
    delta: str
    guess: str


def tiles(run: Finished) -> list[Tile]:
    """What stands at the top of a page."""
    attacked = [Tile(one.name, one.value, one.detail) for finding in run.findings for one in finding.highlights]
    return [_price(run), *_worth(run), *(attacked if run.audit else [Tile("Attacks", "none", "not audited")])]


def _price(run: Finished) -> Tile:
    figure = run.headline
    if figure is None:
        return Tile("Epsilon", "none", "no guarantee is claimed")
    return Tile(
        "Epsilon", rounded_up(figure.epsilon, 4), f"at delta {rounded_up(figure.delta, 3)}, for {figure.neighbors}"
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


def meanings(run: Finished) -> list[FactMeaning]:
    """Each figure of the claim, and how often a guess can be right."""
    return [
        FactMeaning(
            str(figure.neighbors),
            rounded_up(figure.epsilon, 4),
            rounded_up(figure.delta, 3),
            ceiling(best_guess(figure)),
        )
        for figure in run.guarantee.figures
    ]


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


_MOST_CHARTS = 12  # of a finding
_MOST_KINDS = 40

SECTIONS = (
    ("protected", "Protected"),
    ("secret", "Policy"),
    ("utility", "Utility"),
    ("ledger", "Ledger"),
    ("attacks", "Attacks"),
    ("again", "Settings"),
    ("certificate", "Certificate"),
)


def run_page(run: Finished, inside: Inside | None = None, most: int = 0) -> str:
    """The whole HTML page; with `inside`, one that must stay inside your organization, with at most so many records."""
    allowed = allowed_chart(run.headline) if run.headline is not None else None
    page = template("run.html.jinja").render(
        run=run,
        policy=script_policy(),
        script=script(),
        sections=SECTIONS if inside is None else (("sample", "Sample"), *SECTIONS),
        inside=inside,
        sample=() if inside is None else inside.excerpts[:most],
        kinds=() if inside is None else inside.kinds[:_MOST_KINDS],
        more_kinds=0 if inside is None else max(0, len(inside.kinds) - _MOST_KINDS),
        colours={} if inside is None else {short(kind): at % COLOURS for at, (kind, _) in enumerate(inside.kinds)},
        policy_card=None if run.measured is None else policy_chart(run.measured),
        tiles=tiles(run),
        meanings=meanings(run),
        claim_charts=_present(
            allowed, profile_chart(run.guarantee.figures), average_case_chart([run], {run.at: ("amplified", 0)})
        ),
        utility=utility_chart(run),
        ledger_charts=_present(timeline_chart(run), spending_chart(run)),
        most_charts=_MOST_CHARTS,
        settings=settings_yaml(run.config),
        research=run.config.get("mode") == "research",
        setting=SETTING,
        accesses=ACCESSES,
    )
    return page.lstrip()


def _present(*charts: Chart | None) -> list[Chart]:
    return [chart for chart in charts if chart is not None]
