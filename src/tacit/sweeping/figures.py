"""The figures of one finished run as plain JSON: utility, claim and attacks; no secret, no place, no time.

Equal release folders give equal figures. What is no number (not a number, infinite) is null.
"""

import math
from pathlib import Path
from typing import Any

from tacit.audit.rates import Rates
from tacit.audit.results import Audit, CanaryFinding, MembershipFinding
from tacit.guarantee import Guarantee
from tacit.run import ReleaseFile, Run
from tacit.sweeping.stated import Counts
from tacit.utility import LabelQuality, Quality, Utility

Figures = dict[str, Any]


def figures(folder: Path, words: Counts | None, tokens: Counts | None, *, attacks: bool) -> Figures:
    """Of the run in `folder`. words, tokens: of its held-out text, where they were counted. attacks: with its audit."""
    run = Run.view(folder)
    guarantee = run.read_json(Guarantee, ReleaseFile.GUARANTEE)
    utility = run.read_json(Utility, ReleaseFile.UTILITY)
    return {
        "mechanism": guarantee.mechanism,
        "claim": _claim(guarantee),
        "utility": _labels(utility.labels) if utility.labels is not None else _utility(utility, words, tokens),
        "attacks": _attacks(run.read_json(Audit, ReleaseFile.AUDIT)) if attacks else None,
    }


def number(value: float | None) -> float | None:
    """`value`, where JSON can say it."""
    return value if value is not None and math.isfinite(value) else None


def _claim(guarantee: Guarantee) -> Figures:
    published = guarantee.published
    return {
        "figures": [
            {"neighbours": str(one.neighbours), "epsilon": number(one.epsilon), "delta": one.delta}
            for one in guarantee.figures
        ],
        "published": None if published is None else {"epsilon": number(published.epsilon), "delta": published.delta},
    }


def _utility(utility: Utility, words: Counts | None, tokens: Counts | None) -> Figures:
    parts = {"overall": utility.overall, "public": utility.public, "private": utility.private}
    return {
        "tokens": {
            name: {
                "count": part.tokens,
                "nats": number(part.nats),
                "perplexity": number(part.perplexity),
                "accuracy": number(part.accuracy),
            }
            for name, part in parts.items()
        },
        "characters": utility.characters,
        "nats_a_character": number(utility.nats_a_character),
        "words": _per(parts, words),
        "normalised": _per(parts, tokens),
    }


def _per(parts: dict[str, Quality], counts: Counts | None) -> Figures | None:
    """Perplexities a unit that was counted: total nats over how many there are."""
    if counts is None:
        return None
    found = {"overall": counts.overall, "public": counts.public, "private": counts.private}
    return {
        name: {
            "count": found[name],
            "perplexity": number(math.exp(min(part.nats / found[name], 700.0))) if found[name] else None,
        }
        for name, part in parts.items()
    }


def _labels(labels: LabelQuality) -> Figures:
    rates = {
        "overall": labels.overall,
        "with_secrets": labels.with_secrets,
        "without_secrets": labels.without_secrets,
        "commonest": labels.commonest,
    }
    return {
        "labels": {
            name: {"errors": rate.errors, "records": rate.records, "error_rate": number(rate.share)}
            for name, rate in rates.items()
        }
    }


def _attacks(found: Audit) -> Figures:
    return {
        "verdict": str(found.verdict.finding),
        "canaries": [_canaries(one) for one in found.canaries],
        "blind": None
        if found.blind is None
        else {"accuracy": number(found.blind.rates.cut.accuracy.value), "flagged": found.blind.flagged},
        "membership": [_membership(one) for one in found.membership],
        "extraction": None
        if found.extraction is None
        else {
            side: {"greedy": one.greedy.count, "sampled": one.sampled.count, "of": one.greedy.of}
            for side, one in (("trained", found.extraction.trained), ("held_out", found.extraction.held_out))
        },
        "bounds": [
            {
                "measured": str(one.measured),
                "epsilon": number(one.bound.epsilon),
                "delta": one.bound.delta,
                "verdict": str(one.verdict.finding),
            }
            for one in found.bounds
        ],
    }


def _canaries(finding: CanaryFinding) -> Figures:
    excess = finding.exposure.excess
    shared = {"template": finding.template, "known": finding.known, "repetitions": finding.repetitions}
    if excess is None:
        return {**shared, "inside": 0}
    return {
        **shared,
        "inside": excess.inside,
        "median": number(excess.median_inside),
        "median_held_out": number(excess.median_held_out),
        "best": number(excess.best_inside),
        "best_held_out": number(excess.best_held_out),
        "p": number(excess.p_all),
    }


def _membership(finding: MembershipFinding) -> Figures:
    groups = None if finding.groups is None else {"size": finding.group_size, **_rates(finding.groups)}
    return {"attack": finding.attack, **_rates(finding.rates), "groups": groups}


def _rates(rates: Rates) -> Figures:
    return {
        "candidates": rates.members + rates.others,
        "auc": number(rates.auc.value),
        "accuracy": number(rates.cut.accuracy.value),
        "chance": number(rates.cut.chance),
    }
