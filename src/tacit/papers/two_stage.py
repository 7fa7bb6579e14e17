"""S-DP's two-stage attack (appendix A.5), beside the same recipe on random scores: it measures nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tacit.audits.attacks.secrets import as_candidates, value_margins
from tacit.audits.findings import Attack, Column, Finding
from tacit.audits.passages import loss_scores
from tacit.audits.statistics import Cut, Scores, half_cut, judged
from tacit.audits.target import Target
from tacit.audits.values import value_pairs
from tacit.common.progress import Observer
from tacit.config.audit_schema import FEWEST, AuditConfig
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
    """Of records, by loss; None where a side has too few candidates."""
    candidates = target.candidates(config)
    if candidates is None:
        return None
    return _beside_noise(loss_scores(target.learner, candidates.passages), candidates.inside, config.seed)


def two_stage_of_values(target: Target, config: AuditConfig) -> TwoStageResult | None:
    """Of the values of secrets, as the paper attacks them; None where there are too few."""
    pairs = value_pairs(target.members, target.held_out, config.secrets, config.seed)
    if len(pairs) < FEWEST:
        return None
    scores, inside, _ = as_candidates(pairs, value_margins(target.learner, pairs))
    return _beside_noise(scores, inside, config.seed)


def _beside_noise(attacked: Scores, inside: Mapping[str, bool], seed: int) -> TwoStageResult:
    drawn = np.random.default_rng(seed).random(len(inside)).tolist()
    noise = Scores(dict(zip(inside, drawn, strict=True)))
    cut, of_noise = two_stage(attacked, attacked, inside), two_stage(noise, noise, inside)
    return TwoStageResult(cut.candidates, cut.accuracy.value, of_noise.accuracy.value)


def two_stage_finding(records: TwoStageResult | None, values: TwoStageResult | None) -> Finding | None:
    """The figures with what they are worth."""
    parts: list[str] = []
    figures: dict[str, float] = {}
    for found, of, name in ((records, "records", "membership"), (values, "values of secrets", "membership of secrets")):
        if found is not None:
            parts.append(
                f"{found.accuracy:.1%} of {found.candidates:,} {of}, and with random scores about {found.of_noise:.1%}"
            )
            figures |= {f"two-stage {name}": found.accuracy, f"two-stage {name} of random scores": found.of_noise}
    sentence = (
        f"The two-stage attack of S-DP (appendix A.5) is right about {'; about '.join(parts)}: the truth chose whom it "
        "keeps, so it measures nothing."
    )
    return Finding("two-stage", sentence=sentence, figures=figures) if parts else None


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding | None:
    return two_stage_finding(measure_two_stage(target, config), two_stage_of_values(target, config))


TWO_STAGE = Attack(
    "two-stage",
    _run,
    tuple(
        Column(f"two-stage {name}{whose}", f"Two-stage {name}{whose} accuracy", chance=0.5, in_tables=False)
        for name in ("membership", "membership of secrets")
        for whose in ("", " of random scores")
    ),
)
