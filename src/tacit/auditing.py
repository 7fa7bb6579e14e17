"""The verb `audit`: attack the model of a finished run as an outsider would, and set what it says beside the claim.

Members are rows of the run's training side and others are rows of its held-out side: one corpus, divided by hashed
coins. Canaries are those that were planted with the run. Nothing here sees training; results hold ids and numbers.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from tacit.attacks.blind import blind
from tacit.attacks.candidates import Spelling
from tacit.attacks.exposure import ExposureSettings, measure_exposure, twin_margins
from tacit.attacks.extraction import ExtractionSettings, extract
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
from tacit.codec import from_words
from tacit.guarantee import Guarantee
from tacit.loading import load
from tacit.models import Learner
from tacit.planting import Planted, planted_canaries
from tacit.prepare import Prepared
from tacit.progress import Observer, Progress
from tacit.run import PrivateFile, ReleaseFile, Run
from tacit.settings import Experiment
from tacit.tokenizer import Tokenizer

_FEWEST = 10  # candidates of each side
_CURVE_POINTS = 200
_FAIR = (0.5, 1.0)  # inside by a fair coin; or always, and then a fair coin chose the value and not its twin


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How hard to attack. candidates: rows of each side; secrets: of each side, for extraction."""

    candidates: int = 500
    secrets: int = 200
    group_size: int = 20
    surrogates: int = 5
    longest_prompt: int = 64
    confidence: float = 0.95
    seed: int = 0
    exposure: ExposureSettings = field(default_factory=ExposureSettings)
    extraction: ExtractionSettings = field(default_factory=ExtractionSettings)


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A finished run, as its audit sees it."""

    learner: Learner
    tokenizer: Tokenizer
    guarantee: Guarantee
    planted: tuple[Planted, ...]
    trained: CandidateRows
    held_out: CandidateRows

    @classmethod
    def of(cls, folder: Path) -> "Target":
        """The run in `folder`; its private part must be there, for the truth about members and canaries."""
        run = Run.view(folder)
        learner, tokenizer = load(folder)
        learner.module.eval()
        longest = from_words(Experiment, run.read_json(dict, PrivateFile.SETTINGS)).longest_full
        guarantee = run.read_json(Guarantee, ReleaseFile.GUARANTEE)
        trained, held_out = (
            CandidateRows(Prepared(run.path(place)), tokenizer, longest)
            for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT)
        )
        return cls(learner, tokenizer, guarantee, planted_canaries(run).planted, trained, held_out)


def audit(folder: Path, settings: AuditSettings, observe: Observer, reference: Path | None = None) -> Audit:
    """Attack the run in `folder` and write release/audit.json. `reference`: a run that did not see its records."""
    target = Target.of(folder)
    canaries = tuple(_exposure(target, planted, settings, observe) for planted in target.planted)
    candidates = _Candidates.of(target, settings)
    told = None if candidates is None else _blind(candidates, settings)
    membership = () if candidates is None else _membership(target, candidates, settings, observe, reference)
    extraction = _extraction(target, settings, observe)
    bounds = tuple(_bound(target, one, settings) for one in target.planted if one.plan.inside_probability in _FAIR)
    found = Audit(canaries, told, membership, extraction, bounds, overall([one.verdict for one in bounds]))
    with Run.open(folder) as run:
        run.write_json(ReleaseFile.AUDIT, found)
    return found


def _exposure(target: Target, planted: Planted, settings: AuditSettings, observe: Observer) -> CanaryFinding:
    plan = planted.plan
    exposure = measure_exposure(
        target.learner,
        plan.slot,
        planted.canaries,
        Spelling.as_trained(target.tokenizer, plan.known),
        settings.exposure,
        np.random.default_rng(settings.seed),
        lambda done, total: observe(Progress("exposure", done, total)),
    )
    return CanaryFinding(plan.template, plan.known, plan.repetitions, exposure)


def _bound(target: Target, planted: Planted, settings: AuditSettings) -> BoundFinding:
    """The adversary is shown each canary beside its twin, and guesses by which of the two the model likes better."""
    plan = planted.plan
    spelling = Spelling.as_trained(target.tokenizer, plan.known)
    margins = twin_margins(target.learner, plan.slot, planted.canaries, spelling)
    if plan.inside_probability == 1.0:  # which of the two was planted is the coin: name them in an order of their own
        first = {canary.id: canary.value < canary.twin_value for canary in planted.canaries}
        scores = Scores({one: value if first[one] else -value for one, value in margins.by_id.items()})
        truth = judged(scores, first)
    else:
        truth = judged(margins, {canary.id: canary.inside for canary in planted.canaries})
    measured = measured_by(target.guarantee, plan.known, plan.inside_probability == 1.0, plan.repetitions)
    delta = max((figure.delta for figure in target.guarantee.figures), default=1e-5)
    bound = one_run_bound(truth, delta, settings.confidence)
    return BoundFinding(plan.template, measured, bound, judge(target.guarantee, measured, bound))


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Rows of both sides, as many of each, under names that do not tell the side to any score."""

    passages: tuple[Passage, ...]
    neighbours: dict[str, list[Passage]]
    texts: dict[str, str]
    inside: dict[str, bool]

    @classmethod
    def of(cls, target: Target, settings: AuditSettings) -> "_Candidates | None":
        """None where a side has too few rows for a figure to mean anything."""
        rng = random.Random(settings.seed)
        sides = (target.trained, target.held_out)
        chosen = [side.chosen(settings.candidates, rng) for side in sides]
        size = min(map(len, chosen))
        if size < _FEWEST:
            return None
        places = [(sides[0], row, True) for row in chosen[0][:size]] + [
            (sides[1], row, False) for row in chosen[1][:size]
        ]
        rng.shuffle(places)
        passages, neighbours, inside = [], {}, {}
        for number, (side, row, trained) in enumerate(places):
            name = f"candidate-{number}"
            passages.append(side.passage(name, row))
            neighbours[name] = side.surrogates(name, row, settings.surrogates, rng)
            inside[name] = trained
        texts = {one.id: target.tokenizer.decode(one.tokens[1:-1]) for one in passages}
        return cls(tuple(passages), neighbours, texts, inside)


def _blind(candidates: _Candidates, settings: AuditSettings) -> BlindFinding:
    told = blind(candidates.texts, candidates.inside)
    figures = rates(judged(told.scores, candidates.inside), settings.confidence)
    return BlindFinding(figures, told.chance, told.flagged)


def _membership(
    target: Target, candidates: _Candidates, settings: AuditSettings, observe: Observer, reference: Path | None
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
        attacks["reference"] = lambda: reference_scores(learner, _reference(reference), passages)
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
    found: list[Extraction] = []
    for side in (target.trained, target.held_out):
        rng = random.Random(settings.seed)
        secrets = [
            hidden
            for number, row in enumerate(side.chosen(settings.secrets, rng, with_secrets=True))
            for hidden in side.hidden(f"secret-{number}", row, settings.longest_prompt)
        ][: settings.secrets]
        if not secrets:
            return None
        found.append(
            extract(
                target.learner,
                secrets,
                target.tokenizer.decode,
                torch.Generator().manual_seed(settings.seed),
                settings.extraction,
                lambda done, total: observe(Progress("extraction", done, total)),
            )
        )
    return ExtractionFinding(*found)
