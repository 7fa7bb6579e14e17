"""The verb `train`: from a corpus and a few words to a run folder with a model, its utility and its guarantee.

G1 (vocabulary). A tokenizer that could break the claim is refused before the first step.
G2 (held out). Records that measure utility take part in nothing else; a user is on one side only.
G3 (as spent). The guarantee is concluded from the ledger, not from the plan; from whichever is dearer where the run
   chose when to stop.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.accounting import quick_account
from tacit.annotating import Caps, Marks, annotate
from tacit.choosing import Choice, check_choice
from tacit.codec import from_words
from tacit.corpus.read import read
from tacit.corpus.split import Split
from tacit.counting import COUNTED, measured_counts
from tacit.errors import ClaimRefused, ConfigError, RunError
from tacit.evaluate import Utility, evaluate, mean_nats
from tacit.guarantee import Evidence, Guarantee
from tacit.labelling import fingerprint, read_coverage
from tacit.mechanisms.base import Mechanism, Spent
from tacit.models import Learner, build_model
from tacit.parts import HELD_OUT, MARKS, PREPARED, make_learner, make_tokenizer, prepare_stores, records_of
from tacit.plan import Targets, Unit, View, cost
from tacit.planning import Planned
from tacit.planning import plan as price
from tacit.policy.base import Policy
from tacit.policy.registry import parse_policy
from tacit.prepare import Prepared, PrepareSettings, prepare
from tacit.printed import PrintedSettings
from tacit.randomness import Mode, Streams
from tacit.reading import RowReader
from tacit.run import PrivateFile, ReleaseFile, Run
from tacit.run.checkpoints import read_model, write_model
from tacit.sampling import Pools
from tacit.settings import Experiment, check_used
from tacit.tensorboard import watched
from tacit.tokenizer import Tokenizer, load_tokenizer
from tacit.train import Observer, Progress, Trainer, TrainSettings
from tacit.updates import UpdateSettings

CHOICE = "choice"
USER_ORIGINS = {
    "given": None,
    "documents": "each record is taken as one user's",
    "dealt": "invented: records were dealt at random, about 15 to each",
}
_SECONDS_BETWEEN_PRICES = 5.0


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run ended with."""

    folder: Path
    planned: Planned
    utility: Utility
    guarantee: Guarantee


def train(experiment: Experiment, folder: Path, observe: Observer) -> Trained:
    """A new run in `folder`."""
    check_used(experiment)
    policy = parse_policy(experiment.policy)
    tokenizer = make_tokenizer(experiment, policy)
    with Run.create(folder) as run:
        run.write_json(PrivateFile.SETTINGS, experiment.model_dump(mode="json"))
        run.write(ReleaseFile.TOKENIZER, tokenizer.save)
        return _go_on(experiment, policy, tokenizer, run, observe)


def resume(folder: Path, observe: Observer) -> Trained:
    """Go on with the run in `folder`."""
    with Run.open(folder) as run:
        if not (run.path(PrivateFile.SETTINGS).exists() and run.path(ReleaseFile.TOKENIZER).exists()):
            raise RunError(
                expected="a run that had begun",
                found="one that was stopped before its first step; nothing was spent",
                way_out=f"remove {folder} and train again",
            )
        experiment = from_words(Experiment, run.read_json(dict, PrivateFile.SETTINGS))
        policy = parse_policy(experiment.policy)
        tokenizer = load_tokenizer(run.path(ReleaseFile.TOKENIZER))
        return _go_on(experiment, policy, tokenizer, run, observe)


def load(folder: Path) -> tuple[Learner, Tokenizer]:
    """The model of a finished run, and its tokenizer."""
    run = Run.view(folder)
    learner = build_model(run.read_json(dict, ReleaseFile.ARCHITECTURE))
    learner.module.load_state_dict(read_model(run), strict=False)  # a tied weight has one name
    return learner, load_tokenizer(run.path(ReleaseFile.TOKENIZER))


def _go_on(experiment: Experiment, policy: Policy, tokenizer: Tokenizer, run: Run, observe: Observer) -> Trained:
    prepare_stores(experiment, policy, tokenizer, run.folder, observe)
    store = Prepared(run.folder / "private" / PREPARED)
    marks = Marks.load(run.folder / "private" / MARKS)
    caps = Caps(experiment.plan.get("user_cap"), experiment.plan.get("entity_cap"))
    annotation, dropped = annotate(store, marks, caps)
    pools = Pools(annotation)
    _check_counts(experiment.plan)
    evidence = _evidence(experiment, policy, marks, dropped)
    planned = price(experiment.plan, evidence, measured_counts(annotation, pools, experiment.plan))
    _check_vocabulary(planned.mechanism, tokenizer, policy)
    _check_duplicates(planned.mechanism, experiment)
    run.write_json(ReleaseFile.PLAN, planned.plan)
    _declare(run, planned)
    learner = make_learner(experiment, tokenizer)
    run.write_json(ReleaseFile.ARCHITECTURE, learner.description())
    choice = _choice(experiment, policy, tokenizer, learner, planned.mechanism, run)
    reader = RowReader(store, tokenizer.end, experiment.longest_full)
    streams = Streams.research(experiment.seed or 0) if experiment.mode == Mode.RESEARCH else Streams.release()
    trainer = Trainer(run, learner, planned.plan, reader, pools, _train_settings(experiment), choice)
    with watched(run, experiment.log, _priced(observe, run, planned)) as watching:
        trainer.train(streams, watching)
    utility = _measure(experiment, tokenizer, learner, run.folder, observe)
    guarantee = planned.mechanism.conclude(_spent(run, planned, choice is not None), planned.guarantee.evidence)
    write_model(run, dict(learner.module.named_parameters()))
    run.write_json(ReleaseFile.CONFIG, experiment.model_dump(mode="json", exclude={"seed", "corpus"}))
    run.write_json(ReleaseFile.UTILITY, utility)
    run.write_json(ReleaseFile.GUARANTEE, guarantee)
    return Trained(run.folder, planned, utility, guarantee)


def _train_settings(experiment: Experiment) -> TrainSettings:
    updates = UpdateSettings(
        experiment.public,
        experiment.private,
        experiment.local,
        PrintedSettings(noised_states=experiment.plan.get("noised_states", PrintedSettings().noised_states)),
        experiment.positions,
        experiment.precision,
    )
    return TrainSettings(updates, experiment.checkpoint_steps, 60 * experiment.checkpoint_minutes)


def _spent(run: Run, planned: Planned, chose: bool) -> Spent:
    """What the ledger counted; at least the whole plan where the models decided when to stop."""
    charges = run.ledger.charges()
    executions = planned.plan.executions()
    times = {
        step: max(charges.get(step.name, 0), planned_times if chose else 0)
        for step, planned_times in executions.items()
    }
    return {
        neighbours: tuple((cost(step, neighbours), count) for step, count in times.items() if count)
        for neighbours in planned.mechanism.notions()
    }


def _priced(observe: Observer, run: Run, planned: Planned) -> Observer:
    """`observe`, told now and then what was spent so far."""
    private = planned.mechanism.private
    if private is None:
        return observe
    headline = str(planned.mechanism.notions()[0])
    known, since = 0.0, float("-inf")

    def told(progress: Progress) -> None:
        nonlocal known, since
        if time.monotonic() - since > _SECONDS_BETWEEN_PRICES or progress.done == progress.total:
            done = run.ledger.compositions()[headline]
            known, since = quick_account(done).epsilon(private.delta) if done else 0.0, time.monotonic()
        observe(replace(progress, epsilon=known))

    return told


def _choice(
    experiment: Experiment, policy: Policy, tokenizer: Tokenizer, learner: Learner, mechanism: Mechanism, run: Run
) -> Choice | None:
    if experiment.choose_every is None:
        return None
    on = experiment.choose_on
    check_choice(mechanism, on)
    place = run.folder / "private" / HELD_OUT
    if on not in ("redacted", "full"):
        place = run.folder / "private" / CHOICE
        if not place.exists():
            prepare(read(on), policy, tokenizer, place, PrepareSettings(max_tokens=experiment.max_tokens))
    store = Prepared(place)
    reader = RowReader(store, tokenizer.end, experiment.longest_full)
    redacted = on == "redacted"
    view, targets = (View.REDACTED, Targets.PUBLIC) if redacted else (View.FULL, Targets.ALL)
    return Choice(
        run, experiment.choose_every, experiment.patience, lambda: mean_nats(learner, store, reader, view, targets)
    )


def _check_counts(words: dict[str, Any]) -> None:
    given = COUNTED & words.keys()
    if given:
        raise ConfigError("counts from the corpus itself", ", ".join(sorted(given)), "leave them out of `plan`")


def _evidence(experiment: Experiment, policy: Policy, marks: Marks, dropped: float | None) -> Evidence:
    """What is known beside the plan."""
    coverage, conservative = None, None
    if experiment.coverage is not None:
        second = None if experiment.conservative is None else parse_policy(experiment.conservative).hash
        coverage, conservative = read_coverage(
            Path(experiment.coverage), policy.hash, second, fingerprint(read(experiment.corpus))
        )
    return Evidence(
        policy.id,
        policy.hash,
        coverage,
        conservative,
        marks.stable_share,
        dropped,
        marks.entity_list_hash if experiment.protects_entities else None,  # elsewhere a hash of secrets would leave
        user_origin=USER_ORIGINS[experiment.users],
    )


def _declare(run: Run, planned: Planned) -> None:
    """Tell the ledger what each step costs each kind of neighbours; a resumed ledger knows already."""
    known = run.ledger.charges()
    for step in planned.plan.executions():
        if step.name not in known:
            prices = {str(neighbours): cost(step, neighbours) for neighbours in planned.mechanism.notions()}
            run.ledger.declare(step.name, prices)


def _check_duplicates(mechanism: Mechanism, experiment: Experiment) -> None:
    if mechanism.notions() and experiment.which_duplicates in ("bloom", "near"):
        raise ClaimRefused(
            expected="duplicates told by an exact hash, under a claim",
            found=f"duplicates: {experiment.which_duplicates}, which lets one record decide about another",
            way_out="duplicates: exact, or keep",
        )


def _check_vocabulary(mechanism: Mechanism, tokenizer: Tokenizer, policy: Policy) -> None:
    for neighbours in mechanism.notions():
        secrets_only = neighbours.unit == Unit.SECRETS
        depends = tokenizer.depends_on
        if not (depends.free_for_secrets(policy.hash) if secrets_only else depends.free_for_records):
            raise ClaimRefused(
                expected=f"a tokenizer that says nothing about {neighbours.unit}",
                found=f"one that depends on: {depends.source.value}",
                way_out="use tokenizer: bytes, or give a vocabulary_corpus that is public",
            )


def _measure(
    experiment: Experiment, tokenizer: Tokenizer, learner: Learner, folder: Path, observe: Observer
) -> Utility:
    store = Prepared(folder / "private" / HELD_OUT)
    reader = RowReader(store, tokenizer.end, experiment.longest_full)
    characters = sum(len(record.text) for record in records_of(experiment, Split.VALIDATION))
    return evaluate(learner, store, reader, characters, lambda done: observe(Progress("measuring", done, len(store))))
