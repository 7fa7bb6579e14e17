"""The audit of a finished run.

Members are rows of the run's training side and others are rows of its held-out side: one corpus, divided by hashed
coins. Canaries are those that were planted with the run. Nothing here sees training; results hold ids and numbers.

G1 (one doubt). With `confidence`, no true claim is contradicted, however many plans of canaries there are.

Attack strength against perplexity, over the models that one run kept on its way (S-DP, figures 3 and 4).
"""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from tacit.audits.attacks.exposure import own_scores, twin_margins
from tacit.audits.attacks.extraction import Hidden, extract
from tacit.audits.attacks.membership import (
    Passage,
    blind,
    loss_scores,
    min_k_scores,
    neighbourhood_scores,
    reference_scores,
    two_stage,
    zlib_scores,
)
from tacit.audits.epsilon_bounds import LowerBound, one_run_bound, one_run_pairs_bound
from tacit.audits.findings import (
    Audit,
    BlindFinding,
    BoundFinding,
    CanaryFinding,
    CheckpointExposure,
    CheckpointFinding,
    Extraction,
    ExtractionFinding,
    MembershipFinding,
    TwoStageFinding,
    audit_outside,
    figure_for,
    judge,
    measured_by,
    overall,
)
from tacit.audits.statistics import Judged, Rates, Scores, disjoint_groups, grouped, judged, rates, roc
from tacit.audits.target import CandidateRows, Candidates, Target, check_attackable, check_finite
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import AuditConfig
from tacit.data.batches import RowReader
from tacit.data.canaries import CanaryPlan, CanaryRecord
from tacit.models.evaluation import mean_nats
from tacit.models.language_model import Learner
from tacit.models.loading import load
from tacit.privacy.plan import Targets, View
from tacit.runs.canaries import Planted
from tacit.runs.files import PrivateFile, ReleaseFile
from tacit.runs.folder import RunFolder
from tacit.runs.weights import KeptModel, kept_models


def curve_of(
    target: Target,
    models: Sequence[KeptModel],
    candidates: Candidates | None,
    settings: AuditConfig,
    observe: Observer,
) -> tuple[CheckpointFinding, ...]:
    """A finding for each model, with the same candidates. The target's own weights are back in place afterwards."""
    weights = {name: value.clone() for name, value in target.learner.module.state_dict().items()} if models else {}
    found = []
    for number, model in enumerate(models, 1):
        target.learner.module.load_state_dict(model.tensors(), strict=False)  # a tied weight has one name
        found.append(_finding(target, model.step, candidates, settings))
        observe(Progress("checkpoints", number, len(models)))
    if models:
        target.learner.module.load_state_dict(weights)
    return tuple(found)


def _finding(target: Target, step: int, candidates: Candidates | None, settings: AuditConfig) -> CheckpointFinding:
    check_finite(target.learner)
    store = target.held_out.store
    reader = RowReader(store, target.tokenizer.end, target.longest)
    nats = mean_nats(target.learner, store, reader, View.FULL, Targets.ALL)
    membership = None
    if candidates is not None:
        scores = loss_scores(target.learner, candidates.passages)
        membership = rates(judged(scores, candidates.inside), settings.confidence)
    exposures = tuple(
        CheckpointExposure(one.plan.template, one.plan.known, target.exposure(one, settings).excess)
        for one in target.planted
    )
    return CheckpointFinding(step, math.exp(min(nats, 700.0)), exposures, membership)


_CURVE_POINTS = 200


def audit(folder: Path, settings: AuditConfig, observe: Observer, reference: Path | None = None) -> Audit:
    """Attack the run in `folder`; private/audit.json has all that was found, release/audit.json the canaries.

    `reference`: a run that did not see its records.
    """
    other = None if reference is None else _reference(reference)
    check_attackable(RunFolder.view(folder))
    with RunFolder.open(folder) as run:
        target = Target.of(run)
        models = kept_models(run) if settings.checkpoints else ()
        canaries = _exposures(target, settings, observe)
        candidates = Candidates.of(target, settings)
        told = None if candidates is None else _blind(candidates, settings)
        scores = {} if candidates is None else _membership_scores(target, candidates, observe, other)
        membership = () if candidates is None else _membership(scores, candidates, settings)
        staged = None if candidates is None else _two_stage(scores, candidates, settings)
        extraction = _extraction(target, settings, observe)
        bounds = _bounds(target, settings)
        verdict = overall([one.verdict for one in bounds])
        curve = curve_of(target, models, candidates, settings, observe)
        found = Audit(canaries, told, membership, extraction, bounds, verdict, curve, staged)
        run.write_json(PrivateFile.AUDIT, found)
        run.write_json(ReleaseFile.AUDIT, audit_outside(found, target.keeps_duplicates))
        run.seal()
    return found


def _exposures(target: Target, settings: AuditConfig, observe: Observer) -> tuple[CanaryFinding, ...]:
    sizes = [settings.exposure.scored(one.plan.values, 2 * len(one.canaries)) for one in target.planted]
    found: list[CanaryFinding] = []
    for place, planted in enumerate(target.planted):
        before, total = sum(sizes[:place]), sum(sizes)

        def told(done: int, _: int, before: int = before, total: int = total) -> None:
            observe(Progress("exposure", before + done, total))

        plan, exposure = planted.plan, target.exposure(planted, settings, told)
        left_out = target.left_out(planted)
        found.append(CanaryFinding(plan.template, plan.known, plan.repetitions, exposure, left_out))
    return tuple(found)


def _bounds(target: Target, settings: AuditConfig) -> tuple[BoundFinding, ...]:
    """One a plan whose coins are fair and whose records were all read. Those that could contradict share the doubt."""
    guarantee = target.guarantee
    tried = [
        (planted, measured_by(guarantee, plan.known, plan.inside_probability == 1.0, plan.repetitions))
        for planted in target.planted
        if _is_fair(plan := planted.plan, planted.canaries) and not target.left_out(planted)
    ]
    comparable = sum(figure_for(guarantee, measured) is not None for _, measured in tried)
    confidence = 1 - (1 - settings.confidence) / max(1, comparable)
    delta = max((figure.delta for figure in guarantee.figures), default=1e-5)
    found = []
    for planted, measured in tried:
        bound = _bound(target, planted, delta, confidence)
        found.append(BoundFinding(planted.plan.template, measured, bound, judge(guarantee, measured, bound)))
    return tuple(found)


def _is_fair(plan: CanaryPlan, canaries: Sequence[CanaryRecord]) -> bool:
    """Inside by fair coins that fell on both sides; or always: then a fair coin chose the value and not its twin."""
    both = len({canary.inside for canary in canaries}) == 2
    return plan.inside_probability == 1.0 or (plan.inside_probability == 0.5 and both)


def _bound(target: Target, planted: Planted, delta: float, confidence: float) -> LowerBound:
    """Inside or not: the more probable, the likelier inside. Which of two: the more probable one."""
    learner, slot, canaries, spelling = target.learner, planted.plan.slot, planted.canaries, target.spelling(planted)
    if planted.plan.inside_probability == 1.0:
        return one_run_pairs_bound(twin_margins(learner, slot, canaries, spelling), delta, confidence)
    inside = {canary.id: canary.inside for canary in canaries}
    return one_run_bound(judged(own_scores(learner, slot, canaries, spelling), inside), delta, confidence)


def _blind(candidates: Candidates, settings: AuditConfig) -> BlindFinding:
    told = blind(candidates.texts, candidates.inside)
    figures = rates(judged(told.scores, candidates.inside), settings.confidence)
    return BlindFinding(figures, told.chance, told.flagged)


def _membership_scores(
    target: Target, candidates: Candidates, observe: Observer, reference: Learner | None
) -> dict[str, Scores]:
    learner, passages = target.learner, candidates.passages
    with_neighbours = [one for one in passages if candidates.neighbours[one.id]]
    attacks: dict[str, Callable[[], Scores]] = {
        "loss": lambda: loss_scores(learner, passages),
        "zlib": lambda: zlib_scores(learner, passages, candidates.texts),
        "min-k": lambda: min_k_scores(learner, passages),
    }
    if _both_sides(with_neighbours, candidates.inside):
        attacks["neighbourhood"] = lambda: neighbourhood_scores(learner, with_neighbours, candidates.neighbours)
    if reference is not None:
        attacks["reference"] = lambda: reference_scores(learner, reference, passages)
    found = {}
    for number, (name, attack) in enumerate(attacks.items(), 1):
        found[name] = attack()
        observe(Progress("membership", number, len(attacks)))
    return found


def _membership(
    scores: dict[str, Scores], candidates: Candidates, settings: AuditConfig
) -> tuple[MembershipFinding, ...]:
    return tuple(_judged_attack(name, one, candidates.inside, settings) for name, one in scores.items())


def _two_stage(scores: dict[str, Scores], candidates: Candidates, settings: AuditConfig) -> TwoStageFinding:
    inside = candidates.inside
    drawn = np.random.default_rng(settings.seed).random(len(inside)).tolist()
    noise = Scores(dict(zip(inside, drawn, strict=True)))
    name, attacked = "loss", scores["loss"]
    cut, of_noise = two_stage(attacked, attacked, inside), two_stage(noise, noise, inside)
    return TwoStageFinding(name, cut.candidates, cut.accuracy.value, of_noise.accuracy.value)


def _both_sides(passages: Sequence[Passage], inside: dict[str, bool]) -> bool:
    return len({inside[one.id] for one in passages}) == 2


def _reference(folder: Path) -> Learner:
    learner, _ = load(folder)
    learner.module.eval()
    return learner


def _judged_attack(name: str, scores: Scores, inside: dict[str, bool], settings: AuditConfig) -> MembershipFinding:
    known = {one: inside[one] for one in scores.by_id}
    truth = judged(scores, known)
    groups = disjoint_groups(known, settings.group_size, np.random.default_rng(settings.seed))
    figures: Rates | None = None
    if len({one.split("-")[1] for one in groups}) == 2:  # groups of both sides
        figures = rates(judged(*grouped(scores, known, groups)), settings.confidence)
    return MembershipFinding(name, rates(truth, settings.confidence), _curve(truth), settings.group_size, figures)


def _curve(truth: Judged) -> tuple[tuple[float, float], ...]:
    """The ROC curve with at most so many points, its ends among them."""
    whole = roc(truth)
    places = np.unique(np.linspace(0, len(whole.false_rates) - 1, _CURVE_POINTS).round().astype(int))
    return tuple((float(whole.false_rates[place]), float(whole.true_rates[place])) for place in places)


def _extraction(target: Target, settings: AuditConfig, observe: Observer) -> ExtractionFinding | None:
    """None where a side has no secrets."""
    sides = [_hidden(side, settings) for side in (target.trained, target.held_out)]
    if not all(sides):
        return None
    found: list[Extraction] = []
    for number, secrets in enumerate(sides):

        def told(done: int, total: int, number: int = number) -> None:
            observe(Progress("extraction", number * total + done, len(sides) * total))

        generator = torch.Generator().manual_seed(settings.seed)
        found.append(extract(target.learner, secrets, target.tokenizer.decode, generator, settings.extraction, told))
    return ExtractionFinding(*found)


def _hidden(side: CandidateRows, settings: AuditConfig) -> list[Hidden]:
    rows = side.chosen(settings.secrets, random.Random(settings.seed), with_secrets=True)
    return [
        hidden
        for number, row in enumerate(rows)
        for hidden in side.hidden(f"secret-{number}", row, settings.longest_prompt)
    ][: settings.secrets]
