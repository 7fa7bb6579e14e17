"""`tacit train`: from a corpus and some settings to a run folder with a model, its utility and its guarantee.

G1 (vocabulary). A tokenizer that could break the claim is refused before the first step.
G2 (held out). Records that measure utility take part in nothing else; a user is on one side only.
G3 (as spent). The guarantee is concluded from the ledger (`tacit.mechanisms.build`), and sealed last.
G4 (ranks). Of several processes rank 0 prepares, plans, charges, writes and seals; the others read what it prepared,
   and take their share of each step and of the measurement. After an elastic restart a run that this launch had begun
   is resumed. A run that several processes ever trained says so in its claim.
"""

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random, SystemRandom

import numpy as np

from tacit.common.progress import Observer, Progress, unwatched
from tacit.config.load import load_config, released, to_dict
from tacit.config.schema import Config, ExecutionConfig
from tacit.config.setting import Mode
from tacit.data.corpus import read
from tacit.data.forms import Forms
from tacit.data.marked import CorpusSummary, Split
from tacit.data.prepare import prepare
from tacit.data.tokenizer import Dependence, Tokenizer, load_tokenizer
from tacit.errors import ClaimRefused, RunError
from tacit.mechanisms.build import Measuring, Planned, Terms
from tacit.mechanisms.build import plan as price
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.registry import describe
from tacit.mechanisms.settings import MeasuredCounts
from tacit.mechanisms.user import DEALT_USERS
from tacit.models.saving import write_release
from tacit.policies.coverage import Covered, TrainedOn, read_coverage
from tacit.policies.detectors.detector import check_detector_data, detector_data
from tacit.policies.marking import Policies, mark_records
from tacit.policies.policy import Policy
from tacit.privacy.account import quick_account
from tacit.privacy.guarantee import Evidence, Guarantee
from tacit.privacy.noisy_utility import calibrated
from tacit.privacy.plan import Plan, Unit
from tacit.runs.folder import RunFolder, has_begun, is_run
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.utility import Utility, evidence_outside, hash_outside, release_utility
from tacit.runs.verify import check_stores, check_verified, planted_canaries
from tacit.training.base_run import BaseRun
from tacit.training.budget import fitted, keep_timing
from tacit.training.chats import check_chats
from tacit.training.checkpoints import check_identity, identity_of
from tacit.training.checks import check_mechanism, check_start, needs_of, public_choice, with_adapters_of_base
from tacit.training.covered import check_covered
from tacit.training.defaults import is_routed, with_defaults
from tacit.training.execute import Execution, RunParts
from tacit.training.forms import release_forms
from tacit.training.group import Group, joined
from tacit.training.marking import Shared, marked_corpus, side_of
from tacit.training.parts import learned_from_training, make_learner, make_policies, prepare_settings
from tacit.training.pools import measured_counts
from tacit.training.prepared import (
    check_prepared,
    is_prepared,
    nothing_left_if_refused,
    preparation_parts,
    prepare_run,
    take_over,
)
from tacit.training.sharing import check_processes
from tacit.training.starting import check_model, set_threads

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


@dataclass(frozen=True, slots=True)
class _Launch:
    """What started the processes of a run last, and whether there were ever several."""

    name: str
    several: bool


def train(config: Config, folder: Path, observe: Observer, prepared: Path | None = None) -> Trained:
    """A new run in `folder`; `prepared`: the store that has its corpus, if that was prepared before."""
    with _joined(config.execution) as group:
        if not group.writes:
            return _followed(folder, observe, group)
        if group.restarts and _was_begun(folder, group):
            return _resumed(folder, observe, group)
        return _begun(config, folder, observe, prepared, group)


def _begun(config: Config, folder: Path, observe: Observer, prepared: Path | None, group: Group) -> Trained:
    config = with_adapters_of_base(config)
    mechanism = check_start(config)
    config = with_defaults(config, mechanism.plan())
    check_processes(config, group)
    check_model(config, mechanism.plan(), group.size)
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
        return _carried_out(config, policies, base, run, observe, group)


def resume(folder: Path, observe: Observer) -> Trained:
    """Resume the run in `folder`; one that was finished must verify, and is sealed anew."""
    settings = RunFolder.view(folder).read_optional(dict, PrivateFile.SETTINGS)
    with _joined(ExecutionConfig() if settings is None else load_config(settings).execution) as group:
        return _resumed(folder, observe, group) if group.writes else _followed(folder, observe, group)


def _resumed(folder: Path, observe: Observer, group: Group) -> Trained:
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
        check_processes(config, group)
        check_stores(run)
        policies = make_policies(config)
        check_identity(run, config, policies)
        return _carried_out(config, policies, BaseRun.of(config, policies), run, observe, group)


def _joined(execution: ExecutionConfig) -> AbstractContextManager[Group]:
    return joined(execution.device, timedelta(minutes=execution.timeout_minutes))


def _was_begun(folder: Path, group: Group) -> bool:
    """Whether this launch, before a restart, had begun the run in `folder`."""
    if not (is_run(folder) and has_begun(folder)):
        return False
    known = RunFolder.view(folder).read_optional(_Launch, PrivateFile.PROCESSES)
    return known is not None and known.name == group.launch


def _several(run: RunFolder, group: Group) -> bool:
    """Whether several processes train the run, or did before; noted with what started this one."""
    known = run.read_optional(_Launch, PrivateFile.PROCESSES)
    several = group.size > 1 or (known is not None and known.several)
    if known is not None or group.launch:
        run.write_json(PrivateFile.PROCESSES, _Launch(group.launch, several))
    return several


def _carried_out(
    config: Config, policies: Policies, base: BaseRun | None, run: RunFolder, observe: Observer, group: Group
) -> Trained:
    policy = policies.marking
    set_threads(config)
    run.unseal()
    run.note_environment()
    several = _several(run, group)
    keep_timing(config, policies, base, run)
    summary, tokenizer = prepare_run(config, policies, base, run, observe)
    parts = RunParts.of(config, tokenizer, run)
    evidence = _evidence(config, policies, summary, parts.marks.entity_list_hash, parts.dropped, base, several)
    evidence = replace(evidence, planted=planted_canaries(run).copies)
    earlier, disjoint = None if base is None else base.earlier, config.plan.disjoint_from_model
    counts = measured_counts(parts.annotation, parts.pools, config.plan)
    config, plan = fitted(config, run, counts)
    planned = price(plan, evidence, counts, earlier)
    config = _with_shares(config, planned.plan, counts)
    parts = replace(parts, config=config)
    _check_dependence(planned.mechanism, tokenizer.depends_on, hash_outside(policy, run.key))
    check_mechanism(config, planned.mechanism)
    if planned.mechanism.notions():
        check_detector_data(summary.detector_overlap)
        check_covered(config)
    chooses, held = config.training.eval_steps is not None, len(np.unique(parts.held_out.records))
    measuring = Measuring(held, calibrated(held), chooses and public_choice(config) is None)
    described = describe(planned.mechanism)
    terms = Terms(described, planned.plan, config.classifies, chooses, measuring, earlier, disjoint)
    run.write_json(ReleaseFile.PLAN, terms)
    known = run.ledger.charges()  # a resumed ledger knows the prices already
    for step, prices in terms.prices().items():
        if step not in known:
            run.ledger.declare(step, prices)
    prepare_choice(config, policy, tokenizer, run)
    seeded = config.mode == Mode.RESEARCH
    chance = Random(f"forms {config.seed or 0}") if seeded else SystemRandom()
    forms = release_forms(run, planned.plan, parts.store, tokenizer, chance)
    group.announce_ready()
    learner = make_learner(config, tokenizer, group)
    execution = Execution(parts, planned.plan, forms, learner, run, group)
    execution.train(_priced(observe, run, planned), observe)
    utility, contributions = execution.measure(summary.held_out_characters, observe)
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
    set_aside = sum(one.header.counts.quarantined for one in (parts.store, parts.held_out))
    group.announce_done()
    shared = run.read_json(Shared, PrivateFile.SHARED).texts
    return Trained(run.folder, planned, utility, guarantee, set_aside, shared)


def _followed(folder: Path, observe: Observer, group: Group) -> Trained:
    """What ranks other than 0 do: they write nothing, and end when the run is sealed."""
    while not group.ready():
        observe(Progress("preparing", 0, None))
    run = RunFolder.view(folder)
    config = load_config(run.read_json(dict, PrivateFile.SETTINGS))
    set_threads(config)
    tokenizer = load_tokenizer(run.path(ReleaseFile.TOKENIZER))
    parts = RunParts.of(config, tokenizer, run)
    counts = measured_counts(parts.annotation, parts.pools, config.plan)
    config, _ = fitted(config, run, counts)
    terms = run.read_json(Terms, ReleaseFile.PLAN)
    config = _with_shares(config, terms.plan, counts)
    parts = replace(parts, config=config)
    forms = run.read_optional(Forms, PrivateFile.FORMS)
    execution = Execution(parts, terms.plan, forms, make_learner(config, tokenizer, group), run, group)
    execution.train(unwatched, unwatched)
    utility, _ = execution.measure(0, unwatched)
    while not group.done():
        observe(Progress("measuring", 0, None))
    guarantee = run.read_json(Guarantee, PrivateFile.GUARANTEE)
    return Trained(run.folder, Planned(terms.rebuilt(), terms.plan, guarantee), utility, guarantee)


def _with_shares(config: Config, plan: Plan, counts: MeasuredCounts) -> Config:
    """The settings, with defaults that depend on how many records were routed to the protected set."""
    return with_defaults(config, plan, counts["flagged"]() / counts["records"]() if is_routed(plan) else None)


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


def prepare_choice(config: Config, policy: Policy, tokenizer: Tokenizer, run: RunFolder) -> None:
    """The public corpus that models are chosen with, as a store."""
    public, place = public_choice(config), run.path(PrivateFile.CHOICE)
    if config.training.eval_steps is not None and public is not None and not place.exists():
        prepare(mark_records(policy, read(public)), policy, tokenizer, place, prepare_settings(config))


def _evidence(
    config: Config,
    policies: Policies,
    summary: CorpusSummary,
    entity_list_hash: str,
    dropped: float | None,
    base: BaseRun | None,
    distributed: bool,
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
        pretrained=(config.begins_english or not config.is_new) if base is None else base.earlier.evidence.pretrained,
        accelerated=config.execution.device != "cpu",
        repeatable=config.mode == Mode.RESEARCH,
        distributed=distributed,
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
