"""The page of one run: a pure function of its released files.

G1 (pure). Equal folders give equal pages: no clock, no randomness, no path of the machine.
G2 (hostile text). Every string is escaped; the page runs only its own script, named by its hash, and loads nothing.
G3 (bounded). However much the files contain, a page stays small: texts are cut, and long lists say how much was left
   out.
"""

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import yaml

from tacit.audits.findings import Highlight
from tacit.common.formatting import number, percent, rounded_up, short, shortened, text
from tacit.common.serialize import dotted, map_strings
from tacit.policies.marking import Inside
from tacit.privacy.guarantee import ACCESSES, SETTING
from tacit.privacy.noisy_utility import Estimate
from tacit.privacy.tradeoff import best_guess
from tacit.reports.claim_charts import (
    allowed_chart,
    average_case_chart,
    policy_chart,
    profile_chart,
    spending_chart,
    timeline_chart,
    utility_chart,
)
from tacit.reports.drawing import COLORS, render
from tacit.reports.finished_run import Finished

_LONGEST_SETTINGS = 20_000
_MOST_CHARTS = 12  # of a finding
_MOST_KINDS = 40


def tiles(run: Finished) -> list[Highlight]:
    """The few numbers of a run that people look at first, each with what to compare it with."""
    figure = run.headline
    price = Highlight("Epsilon", "none", "no guarantee is claimed")
    if figure is not None:
        detail = f"at delta {rounded_up(figure.delta, 3)}, for {figure.neighbors}"
        price = Highlight("Epsilon", rounded_up(figure.epsilon, 4), detail)
    attacked = [one for finding in run.findings for one in finding.highlights]
    return [price, _worth(run), *(attacked if run.audit else [Highlight("Attacks", "none", "not audited")])]


def _worth(run: Finished) -> Highlight:
    utility, released = run.utility, run.released
    if utility is None and released.classifies:
        return _estimated("Test error rate", released.error_rate, percent)
    if utility is None:
        return _estimated("Perplexity", released.perplexity, number)
    if utility.labels is not None:
        detail = f"always the commonest class: {percent(utility.labels.commonest.share)}"
        return Highlight("Test error rate", percent(utility.labels.overall.share), detail)
    public, private = (number(one.perplexity) for one in (utility.public, utility.private))
    detail = f"on public tokens {public}, on private ones {private}"
    return Highlight("Perplexity", number(utility.overall.perplexity), detail)


def _estimated(name: str, estimate: Estimate, written: Callable[[float], str]) -> Highlight:
    ends = f"between {written(estimate.low)} and {written(estimate.high)}"
    return Highlight(name, written(estimate.value), f"{ends}: noise hides single held-out records")


def settings_yaml(config: dict[str, Any]) -> str:
    """The settings that were given, as YAML; only the last part of a path is shown."""
    given = {name: value for name, value in config.items() if value not in (None, {}, [])}
    written = yaml.safe_dump(without_folders(given), sort_keys=False, allow_unicode=True, width=100)
    return "\n".join(text(line) for line in shortened(written, _LONGEST_SETTINGS).splitlines())


def flat_settings(config: dict[str, Any]) -> dict[str, str]:
    return {name: text(value)[:80] for name, value in dotted(without_folders(config)).items() if value != {}}


def without_folders(value: Any) -> Any:  # noqa: ANN401
    """`value` with only the last part of every absolute path."""
    return map_strings(value, lambda path: PurePath(path).name if path.startswith("/") else path)


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
    """The whole HTML page; with `inside`, one for your organization only, with at most `most` training records."""
    kinds = () if inside is None else inside.kinds
    claim_charts = (
        None if run.headline is None else allowed_chart(run.headline),
        profile_chart(run.guarantee.figures),
        average_case_chart([run], {run.at: ("amplified", 0)}),
    )
    return render(
        "run.html.jinja",
        run=run,
        sections=SECTIONS if inside is None else (("sample", "Sample"), *SECTIONS),
        inside=inside,
        sample=() if inside is None else inside.excerpts[:most],
        kinds=kinds[:_MOST_KINDS],
        more_kinds=max(0, len(kinds) - _MOST_KINDS),
        colors={short(kind): at % COLORS for at, (kind, _) in enumerate(kinds)},
        policy_card=None if run.measured is None else policy_chart(run.measured),
        tiles=tiles(run),
        best_guess=best_guess,
        claim_charts=list(filter(None, claim_charts)),
        utility=utility_chart(run),
        ledger_charts=list(filter(None, (timeline_chart(run), spending_chart(run)))),
        most_charts=_MOST_CHARTS,
        settings=settings_yaml(run.config),
        research=run.config.get("mode") == "research",
        setting=SETTING,
        accesses=ACCESSES,
    )
