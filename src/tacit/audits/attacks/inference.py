"""Inference (Lukas et al. 2023, 2302.00539): which of 100 values was in this place? The most probable one is guessed.

The attacker knows the text before a secret and 100 values of its kind and form: the one that was there, and 99 of
people whose records were held out. Chance is 1 %. The same is done with places of held-out records, which the model
never read: what is right there is right by context alone.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.audits.attacks.extraction import ExtractedShare
from tacit.audits.candidates import AttackProgress, TokenTree, padded, part_progress, total_log_probabilities
from tacit.audits.division import divided
from tacit.audits.findings import Attack, Column, Finding, Highlight
from tacit.audits.sample_sizes import ENOUGH, dash
from tacit.audits.target import Target
from tacit.audits.values import Place, alike, single_owner_places
from tacit.common.charts import Table
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig
from tacit.models.language_model import Speaker

AMONG = 100
FEW_VALUES = (
    f"Inference was not tried: it takes {AMONG} marked values of one kind and form that held-out people alone have. "
    "Raise held_out."
)


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """Places whose own value was the most probable of `among`; of both sides."""

    among: int
    trained: ExtractedShare
    held_out: ExtractedShare


def inference(target: Target, config: AuditConfig, observe: Observer, among: int = AMONG) -> InferenceResult | None:
    """None where the training side has no place with enough other values."""
    rng = random.Random(config.seed)
    own, others = single_owner_places(target.members, target.held_out)
    pools = alike(others)
    sides = [_chosen(places, pools, among, config.secrets, rng) for places in (own, others)]
    if not sides[0]:
        return None
    reports = part_progress(observe, "inference", [len(side) for side in sides])
    shares = [_right(target.learner, side, report) for side, report in zip(sides, reports, strict=True)]
    return InferenceResult(among, *shares)


_Choice = tuple[Place, list[Place]]


def _chosen(
    places: Sequence[Place], pools: dict[tuple[str, str], list[Place]], among: int, most: int, rng: random.Random
) -> list[_Choice]:
    """Places with as many other values as are needed, drawn for each."""
    found: list[_Choice] = []
    for place in rng.sample(places, len(places)):
        pool = [other for other in pools.get(place.look, []) if other.tokens != place.tokens]
        if len(pool) >= among - 1 and len(found) < most:
            found.append((place, rng.sample(pool, among - 1)))
    return found


def _right(speaker: Speaker, chosen: Sequence[_Choice], progress: AttackProgress) -> ExtractedShare:
    """How often the own value is more probable than all others; ties are no success."""
    right = np.zeros(1, dtype=np.int64)

    def attempt(choice: _Choice) -> None:
        place, others = choice
        totals = total_log_probabilities(
            speaker, TokenTree.of(padded([one.tokens for one in (place, *others)]), place.prompt)
        )
        right[0] += bool(totals[0] > totals[1:].max())

    divided(chosen, [1] * len(chosen), attempt, [right], progress)
    return ExtractedShare(int(right[0]), len(chosen))


def inference_finding(found: InferenceResult) -> Finding:
    """How often the true value is chosen among many."""
    own, other, chance = found.trained, found.held_out, f"{100 / found.among:.3g} %"
    title = f"inference: the value that was there, chosen among {found.among}, with 95 % intervals"
    cells = tuple(str(share) if share.of >= ENOUGH else dash(share.of) for share in (own, other))
    table = Table(("trained on", "held out", "chance"), ((*cells, chance),), title=title)
    if own.of < ENOUGH:
        return Finding("inference", tables=(table,))
    detail = f"values chosen among {found.among}; held out {other.count:,} of {other.of:,}; chance {chance}"
    figures = {"inferred": own.share} | ({"inferred, held out": other.share} if other.of >= ENOUGH else {})
    highlight = Highlight("Inferred", f"{own.count:,} of {own.of:,}", detail)
    return Finding("inference", tables=(table,), highlights=(highlight,), figures=figures)


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    found = inference(target, config, observe)
    return Finding("inference", hint=FEW_VALUES) if found is None else inference_finding(found)


INFERENCE = Attack(
    "inference",
    _run,
    (Column("inferred", "Values inferred among 100", least=0.0, chance=1 / AMONG), Column("inferred, held out")),
)
