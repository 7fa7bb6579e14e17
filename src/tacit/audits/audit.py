"""The audit of a finished run: every attack, and some of them again on the models that it kept on its way.

Members are rows of the run's training side and others are rows of its held-out side: one corpus, divided by hashed
coins. Canaries are those that were planted with the run. Nothing here sees training.

Attack strength against perplexity, over kept models: S-DP, figures 3 and 4.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from tacit.audits.attacks import load_attacks
from tacit.audits.findings import Attack, Audit, Checkpoint
from tacit.audits.target import Target, check_attackable, check_finite
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import AuditConfig
from tacit.data.batches import RowReader
from tacit.models.evaluation import mean_nats
from tacit.models.language_model import Learner
from tacit.models.loading import load
from tacit.privacy.plan import Targets, View
from tacit.runs.files import PrivateFile, ReleaseFile
from tacit.runs.folder import RunFolder
from tacit.runs.weights import KeptModel, kept_models


def audit(folder: Path, config: AuditConfig, observe: Observer, reference: Path | None = None) -> Audit:
    """Attack the run in `folder`; private/audit.json has all that was found, release/audit.json the canaries.

    `reference`: a run that did not see its records.
    """
    other = None if reference is None else _reference(reference)
    check_attackable(RunFolder.view(folder))
    attacks = load_attacks()
    with RunFolder.open(folder) as run:
        target = Target.of(run, other)
        models = kept_models(run) if config.checkpoints else ()
        findings = [attack.run(target, config, observe) for attack in attacks]
        checkpoints = _checkpoints(target, models, attacks, config, observe)
        found = Audit.of((one for one in findings if one is not None), checkpoints)
        run.write_json(PrivateFile.AUDIT, found)
        run.write_json(ReleaseFile.AUDIT, found.outside())
        run.seal()
    return found


def _checkpoints(
    target: Target, models: Sequence[KeptModel], attacks: Sequence[Attack], config: AuditConfig, observe: Observer
) -> tuple[Checkpoint, ...]:
    """One per model, with the same candidates. The target's own weights are back in place afterwards."""
    weights = {name: value.clone() for name, value in target.learner.module.state_dict().items()} if models else {}
    found = []
    for number, model in enumerate(models, 1):
        target.learner.module.load_state_dict(model.tensors(), strict=False)  # a tied weight has one name
        found.append(_checkpoint(target, model.step, attacks, config))
        observe(Progress("checkpoints", number, len(models)))
    if models:
        target.learner.module.load_state_dict(weights)
    return tuple(found)


def _checkpoint(target: Target, step: int, attacks: Sequence[Attack], config: AuditConfig) -> Checkpoint:
    check_finite(target.learner)
    store = target.held_out.store
    reader = RowReader(store, target.tokenizer.end, target.longest)
    nats = mean_nats(target.learner, store, reader, View.FULL, Targets.ALL)
    figures: dict[str, float] = {}
    for attack in attacks:
        figures |= {} if attack.at_checkpoint is None else attack.at_checkpoint(target, config)
    return Checkpoint(step, math.exp(min(nats, 700.0)), figures)


def _reference(folder: Path) -> Learner:
    learner, _ = load(folder)
    learner.module.eval()
    return learner
