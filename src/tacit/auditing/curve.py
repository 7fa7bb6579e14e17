"""Attack strength against perplexity, over the models that one run kept on its way (S-DP, figures 3 and 4)."""

import math
from collections.abc import Sequence

from tacit.attacks.membership import loss_scores
from tacit.audit.rates import rates
from tacit.audit.results import CheckpointExposure, CheckpointFinding
from tacit.audit.scores import judged
from tacit.auditing.settings import AuditSettings
from tacit.auditing.target import Candidates, Target, check_finite
from tacit.evaluate import mean_nats
from tacit.plan import Targets, View
from tacit.progress import Observer, Progress
from tacit.reading import RowReader
from tacit.run.kept import KeptModel


def curve_of(
    target: Target,
    models: Sequence[KeptModel],
    candidates: Candidates | None,
    settings: AuditSettings,
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


def _finding(target: Target, step: int, candidates: Candidates | None, settings: AuditSettings) -> CheckpointFinding:
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
