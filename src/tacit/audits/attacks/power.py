"""Power: what this audit could have found. Finding nothing means something only beside that.

Two figures for the canaries of a run. What an ideal attacker would show with as many (`tacit.audits.ideal`): a smaller
leak is invisible to everybody. And a positive control: a copy of the model reads the planted canaries a few more times,
without noise, and the same attack is made on it. If it finds nothing there, it would have found nothing anywhere.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch.nn import functional

from tacit.audits.attacks.epsilon import PlanBound, figure_for, plan_bounds
from tacit.audits.division import make_equal
from tacit.audits.findings import About, Attack, Column, Finding
from tacit.audits.ideal import least_shown
from tacit.audits.passages import Outspoken
from tacit.audits.target import Target
from tacit.common.charts import Table
from tacit.common.formatting import number, percent
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import AuditConfig
from tacit.data.batches import TextBatch
from tacit.privacy.events import Relation

_PASSES = 16
_ROWS = 32
_SMALL_MODEL = 20_000_000  # weights: a small one is taught by longer steps
_RATES = (1e-2, 1e-4)


def control_bounds(target: Target, config: AuditConfig, observe: Observer) -> tuple[PlanBound, ...]:
    """The bounds of a model like the target's that has read the planted canaries without protection."""
    with _taught(target, observe):
        return plan_bounds(target, config)


@contextmanager
def _taught(target: Target, observe: Observer) -> Iterator[None]:
    """The target's model after exact steps on the planted canaries; its own weights are back in place afterwards."""
    module = target.learner.module
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    rows = _planted_rows(target)
    movable = [weight for weight in module.parameters() if weight.is_floating_point()]
    rate = _RATES[sum(weight.numel() for weight in movable) > _SMALL_MODEL]
    needed = [weight.requires_grad for weight in movable]
    try:
        for weight in movable:
            weight.requires_grad_(True)
        optimizer = torch.optim.Adam(movable, lr=rate)
        for done in range(_PASSES):
            for start in range(0, len(rows), _ROWS):
                _step(cast(Outspoken, target.learner), rows[start : start + _ROWS], optimizer)
            observe(Progress("power", done + 1, _PASSES))
        make_equal(movable)
        yield
    finally:
        module.load_state_dict(weights)
        for weight, before in zip(movable, needed, strict=True):
            weight.requires_grad_(before)
            weight.grad = None


def _planted_rows(target: Target) -> list[list[int]]:
    """The tokens of every canary that is inside, as training had them; what opens them is not learned."""
    found = []
    for planted in target.planted:
        spelling = target.spelling(planted)
        values = [canary.value for canary in planted.canaries if canary.inside]
        spelled = spelling.of_values(planted.plan.slot, values).astype(int).tolist() if values else []
        found += [[*spelling.opening, *(token - 1 for token in row if token)] for row in spelled]
    return found


def _step(learner: Outspoken, rows: Sequence[Sequence[int]], optimizer: torch.optim.Optimizer) -> None:
    batch = TextBatch.of_rows(rows, [[1.0] * (len(row) - 1) for row in rows])
    with torch.enable_grad():
        scores = learner.logits(batch.inputs)
        losses = functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten(), reduction="none")
        loss = (losses * (batch.weights != 0).flatten()).sum() / len(rows)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def power_finding(found: Sequence[PlanBound], control: Sequence[PlanBound], about: About = About.CANARIES) -> Finding:
    """What was shown, beside what could have been."""
    confidence = found[0].bound.confidence
    least = [_least(one) for one in found]
    best, shown = max(one.bound.epsilon for one in control), max(one.bound.epsilon for one in found)
    rows = tuple(
        (
            one.template,
            _count(one),
            _at_least(one),
            number(limit) if math.isfinite(limit) else "nothing",
            _at_least(two),
        )
        for one, two, limit in zip(found, control, least, strict=True)
    )
    title = f"what these canaries could have shown: epsilon, with {percent(confidence)} confidence"
    heads = ("canaries", "n", "shown", "least that an ideal attacker shows", "shown after exact steps on them")
    return Finding(
        "power",
        about,
        sentence=_sentence(shown, min(least), best, confidence),
        warning="" if best > 0 else _POWERLESS,
        tables=(Table(heads, rows, title=title),),
        figures={
            "epsilon of the positive control": best,
            **({"least epsilon that can be shown": min(least)} if math.isfinite(min(least)) else {}),
        },
    )


_POWERLESS = (
    "The attack shows nothing even on a copy of the model that read the canaries without protection: that it shows "
    "nothing here means nothing. Plant more canaries."
)


def _sentence(shown: float, least: float, best: float, confidence: float) -> str:
    found = "No canary gave anything away" if shown == 0 else f"Canaries show a leak of epsilon {number(shown)} or more"
    if not math.isfinite(least):
        return f"{found}; these are too few canaries to show any leak."
    return (
        f"{found}; as many canaries show a leak of epsilon {number(least)} or more to an ideal attacker, with "
        f"{percent(confidence)} confidence. On a copy of this model that read them without protection, this attack "
        f"showed {number(best)}."
    )


def _least(one: PlanBound) -> float:
    bound, pairs = one.bound, one.measured.relation is Relation.REPLACE
    return least_shown(bound.guesses[0].canaries, bound.delta, bound.confidence, pairs)


def _count(one: PlanBound) -> str:
    return f"{one.bound.guesses[0].canaries:,}"


def _at_least(one: PlanBound) -> str:
    return f"{one.bound.epsilon:.3f}"


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding | None:
    found = plan_bounds(target, config)
    if not found:
        return None
    comparable = [one for one in found if figure_for(target.guarantee, one.measured) is not None] or list(found)
    chosen = {(one.template, one.measured) for one in comparable}
    control = [one for one in control_bounds(target, config, observe) if (one.template, one.measured) in chosen]
    about = About.CANARIES if target.keeps_duplicates else About.TRAINING_RECORDS
    return power_finding(comparable, control, about)


POWER = Attack(
    "power",
    _run,
    (
        Column("epsilon of the positive control", least=0.0, in_tables=False),
        Column("least epsilon that can be shown", least=0.0, in_tables=False),
    ),
)
