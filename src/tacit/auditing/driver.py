"""The audit of a finished run.

Members are rows of the run's training side and others are rows of its held-out side: one corpus, divided by hashed
coins. Canaries are those that were planted with the run. Nothing here sees training; results hold ids and numbers.

G1 (one doubt). With `confidence`, no true claim is contradicted, however many plans of canaries there are.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from tacit.attacks.blind import blind
from tacit.attacks.exposure import twin_margins
from tacit.attacks.extraction import Hidden, extract
from tacit.attacks.membership import (
    Passage,
    loss_scores,
    min_k_scores,
    neighbourhood_scores,
    reference_scores,
    zlib_scores,
)
from tacit.attacks.rows import CandidateRows
from tacit.audit.bounds import one_run_bound
from tacit.audit.rates import Rates, disjoint_groups, grouped, rates, roc
from tacit.audit.results import (
    Audit,
    BlindFinding,
    BoundFinding,
    CanaryFinding,
    Extraction,
    ExtractionFinding,
    MembershipFinding,
)
from tacit.audit.scores import Judged, Scores, judged
from tacit.audit.verdict import judge, measured_by, overall
from tacit.auditing.curve import curve_of
from tacit.auditing.settings import AuditSettings
from tacit.auditing.target import Candidates, Target
from tacit.loading import load
from tacit.models import Learner
from tacit.planting import Planted
from tacit.progress import Observer, Progress
from tacit.run import ReleaseFile, Run
from tacit.run.kept import kept_models

_CURVE_POINTS = 200
_FAIR = (0.5, 1.0)  # inside by a fair coin; or always, and then a fair coin chose the value and not its twin


def audit(folder: Path, settings: AuditSettings, observe: Observer, reference: Path | None = None) -> Audit:
    """Attack the run in `folder` and write release/audit.json. `reference`: a run that did not see its records."""
    other = None if reference is None else _reference(reference)
    with Run.open(folder) as run:
        target = Target.of(run)
        models = kept_models(run) if settings.checkpoints else ()
        canaries = _exposures(target, settings, observe)
        candidates = Candidates.of(target, settings)
        told = None if candidates is None else _blind(candidates, settings)
        membership = () if candidates is None else _membership(target, candidates, settings, observe, other)
        extraction = _extraction(target, settings, observe)
        bounds = _bounds(target, settings)
        verdict = overall([one.verdict for one in bounds])
        curve = curve_of(target, models, candidates, settings, observe)
        found = Audit(canaries, told, membership, extraction, bounds, verdict, curve)
        run.write_json(ReleaseFile.AUDIT, found)
    return found


def _exposures(target: Target, settings: AuditSettings, observe: Observer) -> tuple[CanaryFinding, ...]:
    sizes = [settings.exposure.scored(one.plan.values, 2 * len(one.canaries)) for one in target.planted]
    found: list[CanaryFinding] = []
    for place, planted in enumerate(target.planted):
        before, total = sum(sizes[:place]), sum(sizes)

        def told(done: int, _: int, before: int = before, total: int = total) -> None:
            observe(Progress("exposure", before + done, total))

        plan, exposure = planted.plan, target.exposure(planted, settings, told)
        found.append(CanaryFinding(plan.template, plan.known, plan.repetitions, exposure))
    return tuple(found)


def _bounds(target: Target, settings: AuditSettings) -> tuple[BoundFinding, ...]:
    """One a plan whose coins are fair and fell on both sides; they share the doubt, so one contradiction is enough."""
    tried = [(one, truth) for one in target.planted if (truth := _guessed(target, one)) is not None]
    delta = max((figure.delta for figure in target.guarantee.figures), default=1e-5)
    found = []
    for planted, truth in tried:
        plan = planted.plan
        measured = measured_by(target.guarantee, plan.known, plan.inside_probability == 1.0, plan.repetitions)
        bound = one_run_bound(truth, delta, 1 - (1 - settings.confidence) / len(tried))
        found.append(BoundFinding(plan.template, measured, bound, judge(target.guarantee, measured, bound)))
    return tuple(found)


def _guessed(target: Target, planted: Planted) -> Judged | None:
    """The adversary is shown each canary beside its twin, and guesses by which of the two the model likes better."""
    canaries, probability = planted.canaries, planted.plan.inside_probability
    if probability == 1.0:  # which of the two was planted is the coin: name them in an order of their own
        coins = {canary.id: canary.value < canary.twin_value for canary in canaries}
    else:
        coins = {canary.id: canary.inside for canary in canaries}
    if probability not in _FAIR or len(set(coins.values())) < 2:
        return None
    margins = twin_margins(target.learner, planted.plan.slot, canaries, target.spelling(planted))
    if probability == 1.0:
        margins = Scores({one: value if coins[one] else -value for one, value in margins.by_id.items()})
    return judged(margins, coins)


def _blind(candidates: Candidates, settings: AuditSettings) -> BlindFinding:
    told = blind(candidates.texts, candidates.inside)
    figures = rates(judged(told.scores, candidates.inside), settings.confidence)
    return BlindFinding(figures, told.chance, told.flagged)


def _membership(
    target: Target, candidates: Candidates, settings: AuditSettings, observe: Observer, reference: Learner | None
) -> tuple[MembershipFinding, ...]:
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
    found = []
    for number, (name, attack) in enumerate(attacks.items(), 1):
        found.append(_judged_attack(name, attack(), candidates.inside, settings))
        observe(Progress("membership", number, len(attacks)))
    return tuple(found)


def _both_sides(passages: Sequence[Passage], inside: dict[str, bool]) -> bool:
    return len({inside[one.id] for one in passages}) == 2


def _reference(folder: Path) -> Learner:
    learner, _ = load(folder)
    learner.module.eval()
    return learner


def _judged_attack(name: str, scores: Scores, inside: dict[str, bool], settings: AuditSettings) -> MembershipFinding:
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


def _extraction(target: Target, settings: AuditSettings, observe: Observer) -> ExtractionFinding | None:
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


def _hidden(side: CandidateRows, settings: AuditSettings) -> list[Hidden]:
    rows = side.chosen(settings.secrets, random.Random(settings.seed), with_secrets=True)
    return [
        hidden
        for number, row in enumerate(rows)
        for hidden in side.hidden(f"secret-{number}", row, settings.longest_prompt)
    ][: settings.secrets]
