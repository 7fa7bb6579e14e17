"""Run folders for tests of pages: written from dataclasses, without a model and without training."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tacit.audits.attacks.epsilon import PlanBound, delta_for, epsilon_finding, judge, measured_by
from tacit.audits.attacks.exposure import CanaryExposure, ExposureResult, PlanExposure, exposure_finding
from tacit.audits.attacks.extraction import (
    Discoverable,
    ExtractedShare,
    Extraction,
    ExtractionResult,
    extraction_finding,
)
from tacit.audits.attacks.membership import AttackRates, MembershipResult, membership_finding
from tacit.audits.epsilon_bounds import one_run_bound
from tacit.audits.findings import Audit
from tacit.audits.passages import Blind
from tacit.audits.ranks import Exposure
from tacit.audits.statistics import Judged, Scores, excess_over_chance, judged, rates, roc
from tacit.common.files import write_new
from tacit.common.serialize import to_json
from tacit.config.setting import Method
from tacit.mechanisms.build import Planned, Terms, plan
from tacit.mechanisms.registry import describe
from tacit.policies.card import CardCounts, KindCounts, PolicyCard
from tacit.policies.pii.policy import Pii
from tacit.privacy.guarantee import Coverage, Evidence, Guarantee
from tacit.privacy.noisy_utility import ReleasedUtility
from tacit.privacy.plan import cost
from tacit.runs.folder import RunFolder
from tacit.runs.release import Environment, MadeWith, PrivateFile, ReleaseFile
from tacit.runs.utility import ErrorRate, LabelQuality, TokenQuality, Utility, evidence_outside

WORDS: dict[str, dict[str, Any]] = {
    "plain": {"public_epochs": 3, "records": 2000},
    "redaction": {"public_epochs": 3, "records": 2000},
    "invented": {"public_epochs": 3, "records": 2000},
    "dpsgd": {"noise_multiplier": 1.0, "steps": 60, "expected_batch_size": 64, "records": 2000},
    "selective": {"noise_multiplier": 1.0, "steps": 60, "expected_batch_size": 64, "records": 2000, "public_epochs": 2},
    "crt": {
        "noise_multiplier": 1.0,
        "steps": 60,
        "expected_batch_size": 64,
        "records": 2000,
        "flagged": 900,
        "public_epochs": 2,
    },
    "uedp": {
        "noise_multiplier": 4.0,
        "steps": 40,
        "expected_batch_size": 64,
        "records": 2000,
        "user_cap": 2,
        "entity_cap": 2,
    },
    "selective-published": {
        "noise_multiplier": 1.0,
        "steps": 20,
        "expected_batch_size": 8,
        "records": 2000,
        "events_per_batch": 2.5,
    },
}
EVIDENCE = Evidence(policy_id="pii", policy_hash="0" * 64, coverage=Coverage(300, 2))
CLASSES = Utility(
    TokenQuality(), TokenQuality(), 0, LabelQuality(ErrorRate(9, 60), ErrorRate(11, 140), ErrorRate(120, 200))
)

MEASURED = PolicyCard(
    "pii", "0" * 64, CardCounts(120, 4, {"NAME": KindCounts(50, 46, 1, 52, 48), "PHONE": KindCounts(30, 30, 0, 31, 30)})
)
MADE = MadeWith((Environment("0" * 64, "3.11.7", "Linux x86_64", (("tacit", "0.1.0"), ("torch", "2.9.0"))),))


def text_utility(perplexity: float, private: float) -> Utility:
    """With such perplexities on public and private tokens."""
    return Utility(
        TokenQuality(5000, 5000 * float(np.log(perplexity)), 2400),
        TokenQuality(800, 800 * float(np.log(private)), 90),
        6000,
    )


def write_run(
    folder: Path,
    mechanism: str = "selective",
    *,
    utility: Utility | None = None,
    leak: float | None = 0.0,
    config: dict[str, Any] | None = None,
    template: str = "My ID is {6 digits}",
    **words: Any,  # noqa: ANN401
) -> Path:
    """A finished run; `leak`: how far planted values stand above others, None for a run without an audit."""
    chosen = {"mechanism": mechanism, **WORDS.get(mechanism, {}), **words}
    planned = _planned(tuple(chosen.items()))
    with RunFolder.create(folder) as run:
        for step, times in planned.plan.executions().items():
            notions = planned.mechanism.notions()
            run.ledger.declare(step.name, {str(neighbors): cost(step, neighbors) for neighbors in notions})
            if times:
                run.ledger.charge(step.name, times)
        run.write_json(ReleaseFile.PLAN, Terms(describe(planned.mechanism), planned.plan))
        settings = {"task": "language", "mode": "research", "plan": chosen, **(config or {})}
        run.write(ReleaseFile.CONFIG, lambda path: write_new(path, to_json(settings).encode()))  # hostile ones too
        exact = utility or text_utility(5.2, 80.0)
        run.write_json(PrivateFile.UTILITY, exact)
        run.write_json(ReleaseFile.UTILITY, released_utility(exact))
        run.write_json(PrivateFile.GUARANTEE, planned.guarantee)
        run.write_json(ReleaseFile.GUARANTEE, _outside(tuple(chosen.items())))
        run.write_json(PrivateFile.POLICY, MEASURED)
        run.write_json(ReleaseFile.MADE, MADE)
        if leak is not None:
            _write_audit(run, make_audit(planned.guarantee, leak, template))
        run.seal()
    return folder


def released_utility(utility: Utility) -> ReleasedUtility:
    """As released, with noise that happened to be 0."""
    labels, whole = utility.labels, utility.overall
    if labels is not None:
        return ReleasedUtility(labels.overall.records, 2.77, 0, 0.0, (float(labels.overall.errors),))
    return ReleasedUtility(200, 2.77, 64, 6.0, (whole.nats / 6 / 64, whole.tokens / 64, whole.right / 64))


def _write_audit(run: RunFolder, audit: Audit) -> None:
    run.write_json(PrivateFile.AUDIT, audit)
    run.write_json(ReleaseFile.AUDIT, replace(audit.outside(), verdict=audit.verdict))


@cache
def _planned(words: tuple[tuple[str, Any], ...]) -> Planned:
    return plan(dict(words), EVIDENCE)


@cache
def _outside(words: tuple[tuple[str, Any], ...]) -> Guarantee:
    return plan(dict(words), _evidence_outside(EVIDENCE)).guarantee


def _evidence_outside(evidence: Evidence) -> Evidence:
    return evidence_outside(evidence, Pii(), b"")


def rewrite(folder: Path, file: ReleaseFile, **changes: Any) -> None:  # noqa: ANN401
    """Put other values into the guarantee or the audit of a run, inside and outside."""
    with RunFolder.open(folder) as run:
        if file == ReleaseFile.AUDIT:
            _write_audit(run, replace(run.read_json(Audit, PrivateFile.AUDIT), **changes))
        else:
            inside = replace(run.read_json(Guarantee, PrivateFile.GUARANTEE), **changes)
            evidence = {"evidence": _evidence_outside(changes["evidence"])} if "evidence" in changes else {}
            outside = replace(run.read_json(Guarantee, ReleaseFile.GUARANTEE), **(changes | evidence))
            run.write_json(PrivateFile.GUARANTEE, inside)
            run.write_json(ReleaseFile.GUARANTEE, outside)
        run.seal()


def reseal(folder: Path) -> None:
    """Have the manifest cover the released files as they are now."""
    with RunFolder.open(folder) as run:
        run.unseal()
        run.seal()


@cache
def make_audit(guarantee: Guarantee, leak: float, template: str = "My ID is {6 digits}", sides: int = 250) -> Audit:
    """Of a model in which planted values stand `leak` bits and members `leak` / 8 deviations above others."""
    rng = np.random.default_rng(7)
    plan = make_plan(leak, template, rng)
    canaries = plan.exposure.canaries
    truth = judged(
        Scores({one.id: one.own.bits - one.twin.bits for one in canaries}), {one.id: one.inside for one in canaries}
    )
    measured = measured_by(guarantee, known=True, flagged=True, replaced=False, copies=1)
    bound = one_run_bound(truth, delta_for(guarantee))
    bounds = (PlanBound(template, measured, bound, judge(guarantee, measured, bound)),)
    attacks = tuple(
        AttackRates(attack, rates(scores), _curve(scores), 20, None)
        for attack in ("loss", "zlib", "min-k")
        if (scores := _scores(leak / 8, sides, rng))
    )
    blind = Blind(Scores({}), rates(_scores(0.0, sides, rng)), 0.4, False)
    return Audit.of(
        (
            exposure_finding((plan,)),
            epsilon_finding(bounds, guarantee),
            membership_finding(MembershipResult(attacks, blind), guarantee),
            extraction_finding(_extraction(leak)),
        )
    )


def make_plan(
    leak: float, template: str = "My ID is {6 digits}", rng: np.random.Generator | None = None
) -> PlanExposure:
    """Canaries whose planted values are `leak` bits above others."""
    canaries = _canaries(leak, rng or np.random.default_rng(7))
    inside = [one.own.bits for one in canaries if one.inside]
    held_out = [one.twin.bits for one in canaries] + [one.own.bits for one in canaries if not one.inside]
    excess = excess_over_chance(inside, held_out)
    result = ExposureResult(Method.EXACT, 10**6, canaries, excess, best_chance=0.5)
    return PlanExposure(template, True, 5, result)


def _canaries(leak: float, rng: np.random.Generator) -> tuple[CanaryExposure, ...]:
    def exposure(bits: float) -> Exposure:
        return Exposure(min(bits, 19.9), 0.0, None, 0, None)

    return tuple(
        CanaryExposure(
            f"canary-{number}",
            number % 2 == 0,
            exposure(float(rng.exponential(1.44)) + leak * (number % 2 == 0)),
            exposure(float(rng.exponential(1.44))),
        )
        for number in range(40)
    )


def _scores(shift: float, sides: int, rng: np.random.Generator) -> Judged:
    values = {f"candidate-{at}": float(rng.normal(shift * (at % 2))) for at in range(2 * sides)}
    return judged(Scores(values), {name: int(name.split("-")[1]) % 2 == 1 for name in values})


def _curve(scores: Judged) -> tuple[tuple[float, float], ...]:
    false, true = roc(scores)
    places = np.unique(np.linspace(0, len(false) - 1, 60).round().astype(int))
    return tuple((float(false[at]), float(true[at])) for at in places)


def _extraction(leak: float) -> ExtractionResult:
    found = int(min(60, 4 * leak))
    trained = Extraction(
        ExtractedShare(found, 200),
        10,
        ExtractedShare(min(200, 2 * found), 200),
        10,
        ExtractedShare(found, 200),
        (Discoverable(100, 0.5, ExtractedShare(found, 200)),),
    )
    held_out = Extraction(
        ExtractedShare(1, 200),
        10,
        ExtractedShare(1, 200),
        10,
        ExtractedShare(1, 200),
        (Discoverable(100, 0.5, ExtractedShare(2, 200)),),
    )
    return ExtractionResult(trained, held_out)
