"""S-DP's two-stage attack (appendix A.5), beside the same recipe on random scores: it measures nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tacit.audits.findings import Attack, Column, Finding
from tacit.audits.passages import loss_scores
from tacit.audits.statistics import Cut, Scores, half_cut, judged
from tacit.audits.target import Target
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig
from tacit.errors import AttackError


@dataclass(frozen=True, slots=True)
class TwoStageResult:
    """No measurement: the truth chooses whom the second stage attacks. of_noise: the accuracy on random scores."""

    candidates: int
    accuracy: float
    of_noise: float


def two_stage(first: Scores, second: Scores, inside: Mapping[str, bool], keep: float = 0.3) -> Cut:
    """S-DP, appendix A.5: attack all, keep those it was most right about, attack those again. Measures nothing.

    Who was predicted well is known from the truth alone, so an attacker cannot take the first stage. Scores that know
    nothing are right about every candidate they are kept for: with `first` = `second` the result is 100 % on pure
    noise. It is here so that the papers' figures can be reproduced; its `chance` means nothing.
    """
    everyone = judged(first, inside)
    side = round(keep * min(len(everyone.members), len(everyone.others)))
    if side < 1:
        raise AttackError("a member and another to keep, or more", f"{side} of {len(everyone)}", "keep more")
    order = [everyone.ids[place] for place in np.argsort(-everyone.values, kind="stable")]
    kept = [one for one in order if inside[one]][:side] + [one for one in order if not inside[one]][-side:]
    return half_cut(judged(second.only(kept), {one: inside[one] for one in kept}))


def measure_two_stage(target: Target, config: AuditConfig) -> TwoStageResult | None:
    """By loss; None where a side has too few candidates."""
    candidates = target.candidates(config)
    if candidates is None:
        return None
    inside = candidates.inside
    drawn = np.random.default_rng(config.seed).random(len(inside)).tolist()
    noise = Scores(dict(zip(inside, drawn, strict=True)))
    attacked = loss_scores(target.learner, candidates.passages)
    cut, of_noise = two_stage(attacked, attacked, inside), two_stage(noise, noise, inside)
    return TwoStageResult(cut.candidates, cut.accuracy.value, of_noise.accuracy.value)


def two_stage_finding(found: TwoStageResult) -> Finding:
    """The figure with what it is worth."""
    sentence = (
        f"The two-stage attack of S-DP (appendix A.5) is right about {found.accuracy:.1%} of {found.candidates:,}, and "
        f"with random scores about {found.of_noise:.1%}: the truth chose whom it keeps, so it measures nothing."
    )
    figures = {"two-stage membership": found.accuracy, "two-stage membership of random scores": found.of_noise}
    return Finding("two-stage", sentence=sentence, figures=figures)


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding | None:
    found = measure_two_stage(target, config)
    return None if found is None else two_stage_finding(found)


TWO_STAGE = Attack(
    "two-stage",
    _run,
    tuple(
        Column(f"two-stage membership{whose}", f"Two-stage membership{whose} accuracy", chance=0.5, in_tables=False)
        for whose in ("", " of random scores")
    ),
)
