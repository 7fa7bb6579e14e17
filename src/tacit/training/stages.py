"""`tacit train`: from a corpus and some settings to a run folder with a model, its utility and its guarantee.

G1 (vocabulary). A tokenizer that could break the claim is refused before the first step.
G2 (held out). Records that measure utility take part in nothing else; a user is on one side only.
G3 (as spent). The guarantee is concluded from the ledger (`tacit.mechanisms.build`), and sealed last.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import cast

import numpy as np

from tacit.common.progress import Observer, Progress
from tacit.config.load import load_config, released, to_dict
from tacit.config.schema import Config
from tacit.config.setting import Mode
from tacit.data.batches import RowReader
from tacit.data.corpus import read
from tacit.data.labels import LabelReader
from tacit.data.marked import CorpusSummary, Split
from tacit.data.ownership import RecordMarks
from tacit.data.prepare import prepare
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Dependence, Tokenizer
from tacit.errors import ClaimRefused, ConfigError, RunError
from tacit.mechanisms.build import Measuring, Planned, Terms
from tacit.mechanisms.build import plan as price
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.registry import describe
from tacit.mechanisms.user import DEALT_USERS
from tacit.models.classifier import Classifier
from tacit.models.evaluation import evaluate, label_quality, mean_nats
from tacit.models.language_model import Learner
from tacit.models.saving import write_release
from tacit.models.transformers_model import own_parameters
from tacit.policies.coverage import Covered, TrainedOn, read_coverage
from tacit.policies.detectors.detector import check_detector_data, detector_data
from tacit.policies.marking import Policies, mark_records
from tacit.policies.policy import Policy
from tacit.privacy.account import quick_account
from tacit.privacy.guarantee import Evidence, Guarantee
from tacit.privacy.noisy_utility import Contributions, calibrated
from tacit.privacy.plan import Targets, Unit, View
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.utility import TokenQuality, Utility, evidence_outside, hash_outside, release_utility
from tacit.runs.verify import check_stores, check_verified
from tacit.runs.weights import keep_model
from tacit.training.base_run import BaseRun
from tacit.training.chats import check_chats
from tacit.training.checkpoints import check_identity, identity_of
from tacit.training.checks import check_mechanism, check_start, needs_of, public_choice, with_adapters_of_base
from tacit.training.covered import check_covered
from tacit.training.defaults import with_defaults
from tacit.training.forms import release_forms
from tacit.training.marking import Caps, Shared, annotate, marked_corpus, side_of
from tacit.training.parts import (
    AnyBatchReader,
    Model,
    learned_from_training,
    make_learner,
    make_policies,
    make_reader,
    prepare_settings,
    train_settings,
    with_cache,
)
from tacit.training.pools import Pools, measured_counts
from tacit.training.prepared import (
    check_prepared,
    is_prepared,
    nothing_left_if_refused,
    preparation_parts,
    prepare_run,
    take_over,
)
from tacit.training.randomness import Streams
from tacit.training.starting import check_model, set_threads
from tacit.training.trainer import Choice, Trainer, watched

_USER_ORIGINS = {"given": None, "documents": "each record is taken as one user's", "dealt": DEALT_USERS}
_ORIGIN_OF_PIECES = "as the corpus names them; where it names none, the text that the record was cut from"
_RECORD_IS = {"record": None, "turn": "one turn of a dialog", "sentence": "one sentence"}
_SECONDS_BETWEEN_PRICES = 5.0


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run ended with.

    `set_aside`: records of both sides that could not be used; private/ has the reasons. `shared`: held-out texts that
    also occur in the training corpus; they are measured with anyway.
    """

    folder: Path
    planned: Planned
    utility: Utility
    guarantee: Guarantee
    set_aside: int = 0
    shared: int = 0


def train(config: Config, folder: Path, observe: Observer, prepared: Path | None = None) -> Trained:
    """A new run in `folder`; `prepared`: the store that has its corpus, if that was prepared before."""
    config = with_adapters_of_base(config)
    mechanism = check_start(config)
    config = with_defaults(config, mechanism.plan())
    check_model(config, mechanism.plan())
    check_chats(config)
    policies = make_policies(config)
    base = BaseRun.of(config, policies)
    if base is not None:
        base.check_claim(mechanism, config.plan.disjoint_from_model)
    if config.tokenizer_name == "bpe" and config.data.vocabulary_corpus is None:
        _check_dependence(mechanism, learned_from_training(policies.marking), policies.marking.hash)
    if mechanism.notions():
        check_covered(config)
    identity = identity_of(config, policies)
    if prepared is not None:
        check_prepared(prepared, preparation_parts(config, policies, base))
    with RunFolder.create(folder) as run, nothing_left_if_refused(run):
        run.write_json(PrivateFile.IDENTITY, identity)
        run.write_json(PrivateFile.SETTINGS, to_dict(config))
        if prepared is not None:
            take_over(prepared, run, policies, config.tokenizer_name != "bpe")
        return _carried_out(config, policies, base, run, observe)


def resume(folder: Path, observe: Observer) -> Trained:
    """Resume the run in `folder`; one that was finished must verify, and is sealed anew."""
    seen = RunFolder.view(folder)
    if is_prepared(folder):
        raise RunError("a run", "a prepared store, which takes no steps", f"tacit train --prepared {folder}")
    if seen.path(ReleaseFile.MANIFEST).exists():
        check_verified(seen)
    with RunFolder.open(folder) as run:
        if not run.path(PrivateFile.SETTINGS).exists():
            raise RunError(
                expected="a run that had begun",
                found="one that was stopped before its first step; nothing was spent",
                way_out="train again with the same --out",
            )
        config = load_config(run.read_json(dict, PrivateFile.SETTINGS))
        check_stores(run)
        policies = make_policies(config)
        check_identity(run, config, policies)
        return _carried_out(config, policies, BaseRun.of(config, policies), run, observe)


def _carried_out(
    config: Config, policies: Policies, base: BaseRun | None, run: RunFolder, observe: Observer
) -> Trained:
    policy = policies.marking
    set_threads(config)
    run.unseal()
    run.note_environment()
    summary, tokenizer = prepare_run(config, policies, base, run, observe)
    store, held_out = (PreparedCorpus(run.path(place)) for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT))
    reader, test_reader = (make_reader(config, tokenizer, one) for one in (store, held_out))
    _check_held_out(held_out)
    marks = RecordMarks.load(run.path(PrivateFile.MARKS))
    annotation, dropped = annotate(store, marks, Caps(config.plan.user_cap, config.plan.entity_cap))
    pools = Pools(annotation)
    evidence = _evidence(config, policies, summary, marks.entity_list_hash, dropped, base)
    earlier, disjoint = None if base is None else base.earlier, config.plan.disjoint_from_model
    planned = price(config.plan, evidence, measured_counts(annotation, pools, config.plan), earlier)
    _check_dependence(planned.mechanism, tokenizer.depends_on, hash_outside(policy, run.key))
    check_mechanism(config, planned.mechanism)
    if planned.mechanism.notions():
        check_detector_data(summary.detector_overlap)
        check_covered(config)
    chooses, held = config.training.eval_steps is not None, len(np.unique(held_out.records))
    measuring = Measuring(held, calibrated(held), chooses and public_choice(config) is None)
    described = describe(planned.mechanism)
    terms = Terms(described, planned.plan, config.classifies, chooses, measuring, earlier, disjoint)
    run.write_json(ReleaseFile.PLAN, terms)
    known = run.ledger.charges()  # a resumed ledger knows the prices already
    for step, prices in terms.prices().items():
        if step not in known:
            run.ledger.declare(step, prices)
    learner = make_learner(config, tokenizer)
    choice = _choice(config, policy, tokenizer, learner, run)
    seeded = config.mode == Mode.RESEARCH
    forms = release_forms(
        run, planned.plan, store, tokenizer, Random(f"forms {config.seed or 0}") if seeded else SystemRandom()
    )
    if forms is not None:
        reader = make_reader(config, tokenizer, store, forms)
    streams = Streams.research(config.seed or 0) if seeded else Streams.release()
    with (
        with_cache(config, learner, run.path(PrivateFile.SETTINGS).parent, len(store)) as trained,
        watched(run, config.training.report_to, _priced(observe, run, planned)) as watching,
    ):
        trainer = Trainer(run, trained, planned.plan, reader, pools, train_settings(config), choice)
        trainer.train(streams, _keeping(watching, run, config.training.save_steps, learner), observe)
    utility, contributions = _measure(summary.held_out_characters, learner, held_out, test_reader, observe)
    run.write_json(PrivateFile.UTILITY, utility)
    release_utility(run, contributions, Random(f"utility {config.seed or 0}") if seeded else SystemRandom())
    write_release(run, learner, tokenizer, config.tokenizer_name == "model")
    run.write_json(ReleaseFile.CONFIG, released(config))
    terms, charges = run.read_json(Terms, ReleaseFile.PLAN), run.ledger.charges()
    guarantee = terms.conclude(charges, evidence)
    run.write_json(PrivateFile.GUARANTEE, guarantee)
    run.write_json(ReleaseFile.GUARANTEE, terms.conclude(charges, evidence_outside(evidence, policy, run.key)))
    run.seal()
    marked_corpus(run).remove()
    set_aside = sum(one.header.counts.quarantined for one in (store, held_out))
    return Trained(run.folder, planned, utility, guarantee, set_aside, run.read_json(Shared, PrivateFile.SHARED).texts)


def _priced(observe: Observer, run: RunFolder, planned: Planned) -> Observer:
    """`observe`, told now and then what was spent so far."""
    private = planned.mechanism.private
    if private is None:
        return observe
    headline = str(planned.mechanism.notions()[0])
    known, since = 0.0, float("-inf")

    def told(progress: Progress) -> None:
        nonlocal known, since
        if time.monotonic() - since > _SECONDS_BETWEEN_PRICES or progress.done == progress.total:
            done = (*planned.before, *run.ledger.compositions()[headline])
            known, since = quick_account(done).epsilon(private.delta) if done else 0.0, time.monotonic()
        observe(replace(progress, epsilon=known))

    return told


def _keeping(observe: Observer, run: RunFolder, every: int | None, learner: Model) -> Observer:
    """`observe`, with the model kept every so many steps and after the last."""
    if every is None:
        return observe

    def told(progress: Progress) -> None:
        if progress.done % every == 0 or progress.done == progress.total:
            keep_model(run, progress.done, own_parameters(learner))
        observe(progress)

    return told


def _choice(config: Config, policy: Policy, tokenizer: Tokenizer, learner: Model, run: RunFolder) -> Choice | None:
    training, public = config.training, public_choice(config)
    if training.eval_steps is None:
        return None
    place = run.path(PrivateFile.HELD_OUT if public is None else PrivateFile.CHOICE)
    if public is not None and not place.exists():
        prepare(mark_records(policy, read(public)), policy, tokenizer, place, prepare_settings(config))
    store = PreparedCorpus(place)
    if not len(store):
        raise ConfigError("a record of eval_on that can be used", "none", "give a corpus like the one to train on")
    reader = make_reader(config, tokenizer, store)
    seen = (View.REDACTED, Targets.PUBLIC) if training.eval_on == "redacted" else (View.FULL, Targets.ALL)
    nats = partial(mean_nats, learner, store, reader, *seen)
    return Choice(run, training.eval_steps, training.early_stopping_patience, nats)


def _check_held_out(store: PreparedCorpus) -> None:
    if not len(store):
        raise ConfigError(
            expected="at least one held-out record, to measure with",
            found="none: the corpus has few users, or few records; or no record of held_out_corpus can be used",
            way_out="raise held_out (the share of users, or of records without users), then train again",
        )


def _evidence(
    config: Config,
    policies: Policies,
    summary: CorpusSummary,
    entity_list_hash: str,
    dropped: float | None,
    base: BaseRun | None,
) -> Evidence:
    policy, second, data = policies.marking, policies.conservative, config.data
    covered = Covered()
    if config.marking.coverage is not None:
        used = TrainedOn(
            lambda _: summary.population_hash, data.segment_by, lambda owner: side_of(config, owner) == Split.TRAIN
        )
        second_hash = None if second is None else second.hash
        covered = read_coverage(Path(config.marking.coverage), policy.hash, second_hash, used)
    cut = data.user_source == "given" and data.segment_by != "record"
    return Evidence(
        policy_id=policy.id,
        policy_hash=policy.hash,
        coverage=covered.coverage,
        conservative_id=None if second is None else second.id,
        conservative_coverage=covered.conservative_coverage,
        among_secrets=covered.among_secrets,
        dropped_share=dropped,
        # elsewhere a hash of secrets would leave
        entity_list_hash=entity_list_hash if needs_of(config).entities else None,
        detector_data=detector_data(policies.together()),
        user_origin=_ORIGIN_OF_PIECES if cut else _USER_ORIGINS[data.user_source],
        record_is=_RECORD_IS[data.segment_by],
        examples_given=bool(config.marking.inventions),
        pretrained=not config.is_new if base is None else base.earlier.evidence.pretrained,
        accelerated=config.execution.device != "cpu",
        repeatable=config.mode == Mode.RESEARCH,
    )


def _check_dependence(mechanism: Mechanism, depends: Dependence, policy_hash: str) -> None:
    for neighbors in mechanism.notions():
        secrets_only = neighbors.unit == Unit.SECRETS
        if not (depends.free_for_secrets(policy_hash) if secrets_only else depends.free_for_records):
            raise ClaimRefused(
                expected=f"a tokenizer that says nothing about {neighbors.unit}",
                found=f"one that depends on: {depends.source.value}",
                way_out="use tokenizer: bytes, or give a vocabulary_corpus that is public",
            )


def _measure(
    characters: int, learner: Model, store: PreparedCorpus, reader: AnyBatchReader, observe: Observer
) -> tuple[Utility, Contributions]:
    def told(done: int) -> None:
        observe(Progress("measuring", done, len(store)))

    if isinstance(learner, Classifier) and isinstance(reader, LabelReader):
        labels, contributions = label_quality(learner, reader, told)
        return Utility(TokenQuality(), TokenQuality(), 0, labels), contributions
    return evaluate(cast(Learner, learner), store, cast(RowReader, reader), characters, told)
