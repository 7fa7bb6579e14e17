"""What a run is made of, from its settings: tokenizer, prepared stores, model."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch

from tacit.common.files import write_atomically
from tacit.common.progress import Observer, Progress
from tacit.config.checks import shaped
from tacit.config.choices import Mode
from tacit.config.model_schema import CausalLMConfig, ClassifierConfig, LSTMConfig
from tacit.config.schema import Config, is_custom
from tacit.data.batches import Inventions, RowReader
from tacit.data.canaries import KnownCanaries
from tacit.data.corpus import read
from tacit.data.labels import LabelReader
from tacit.data.marked import Shares, Split, split_of
from tacit.data.ownership import dealt_users
from tacit.data.prepare import PrepareConfig, prepare, public_segments
from tacit.data.records import Record, in_pieces
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Dependence, Tokenizer, VocabularySource, byte_tokenizer, read_tokenizer_json, train_bpe
from tacit.errors import ConfigError
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier, EncoderClassifier, LSTMClassifier
from tacit.models.custom import CustomModel
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.policies.card import measured
from tacit.policies.marking import Annotator, Inside, RecordSampler, read_aliases
from tacit.policies.policy import Policies, Policy
from tacit.policies.registry import parse_policy
from tacit.runs.files import PrivateFile
from tacit.runs.folder import RunFolder
from tacit.runs.stores import plant_canaries
from tacit.training.checks import duplicates_of, needs_of
from tacit.training.trainer import TrainSettings
from tacit.training.updates import DEFAULT_NOISED_STATES, UpdateSettings

Model = Learner | Classifier
AnyBatchReader = RowReader | LabelReader
DEALT = (15.0, 2.0)  # records of an invented user: mean and deviation, as UeDP deals AG News
DEFAULT_VOCABULARY = 1000
_SALT = "tacit held-out"
_RECORDS_BETWEEN = 500


def make_policies(experiment: Config) -> Policies:
    """The policies that were asked for; the marking one is told of the canaries it is to know."""
    policy = parse_policy(experiment.policy)
    told = policy | KnownCanaries() if any(plan.known for plan in experiment.audit.canaries) else policy
    return Policies(
        told,
        None
        if experiment.marking.conservative_policy is None
        else parse_policy(experiment.marking.conservative_policy),
    )


def make_tokenizer(experiment: Config, policy: Policy) -> Tokenizer:
    """The tokenizer that was asked for; a file's is taken as public, since somebody made it before this run."""
    name = experiment.tokenizer_name
    if name == "bytes":
        return byte_tokenizer()
    if name != "bpe":
        file = Path(experiment.model) / "tokenizer.json" if name == "model" else Path(name)
        return read_tokenizer_json(file, Dependence(VocabularySource.PUBLIC_CORPUS, file.name))
    size = experiment.data.vocabulary_size or DEFAULT_VOCABULARY
    public = experiment.data.vocabulary_corpus
    if public is not None:
        return train_bpe(
            (record.text for record in read(public)),
            size,
            Dependence(VocabularySource.PUBLIC_CORPUS, Path(public).name),
        )
    learned = Dependence(VocabularySource.REDACTED_VIEW, "the training records", policy.hash)
    return train_bpe(public_segments(records_of(experiment, Split.TRAIN), policy), size, learned)


def records_of(experiment: Config, side: Split) -> Iterator[Record]:
    """The records of one side; a user is on one side only."""
    apart = experiment.data.held_out_corpus
    if apart is not None:
        yield from in_pieces(read(apart if side == Split.VALIDATION else experiment.corpus), experiment.data.segment_by)
        return
    for record in in_pieces(read(experiment.corpus), experiment.data.segment_by):
        if side_of(experiment, record.user or record.id) == side:
            yield record


def side_of(experiment: Config, owner: str) -> Split:
    """On which side the records of the corpus are that belong to this user, or have this id and no user."""
    if experiment.data.held_out_corpus is not None:
        return Split.TRAIN
    return split_of(owner, _SALT, Shares(1 - experiment.held_out_share, experiment.held_out_share, 0.0))


def prepare_stores(
    experiment: Config, policies: Policies, tokenizer: Tokenizer, run: RunFolder, observe: Observer
) -> None:
    """Both sides of the corpus as stores, and what is known of them beside: marks, a sample, the policy's quality.

    What is there already stays.
    """
    policy = policies.marking
    settings = PrepareConfig(experiment.data.max_tokens, duplicates_of(experiment), experiment.classifies)
    place, marks = run.path(PrivateFile.PREPARED), run.path(PrivateFile.MARKS)
    if not (place.exists() and marks.exists()):
        shutil.rmtree(place, ignore_errors=True)  # marks are written last
        annotator = make_annotator(experiment, policies)
        seed = experiment.seed or 0 if experiment.mode == Mode.RESEARCH else None
        planted = plant_canaries(run, experiment.audit.canaries, seed)
        sampler = RecordSampler(policy)
        real = sampler.watching(training_records(experiment))
        records = annotator.watching(_counted(chain(real, planted.records()), observe))
        store = prepare(records, policy, tokenizer, place, settings, annotator.routing)
        run.write_json(PrivateFile.SAMPLE, Inside(sampler.excerpts(), store.kind_counts()).to_json())
        if needs_of(experiment).entities:
            annotator.search(_counted(chain(training_records(experiment), planted.records()), observe))
        write_atomically(marks, annotator.marks().save, 0o600)
    whole = PrepareConfig(experiment.data.max_tokens, labelled=experiment.classifies)
    sides = {PrivateFile.HELD_OUT: records_of(experiment, Split.VALIDATION)}
    if duplicates_of(experiment) != "keep":
        sides[PrivateFile.MEMBERS] = training_records(experiment)  # also what was left out, as on the held-out side
    for name, records in sides.items():
        if not run.path(name).exists():
            prepare(_counted(records, observe), policy, tokenizer, run.path(name), whole)
    if not run.path(PrivateFile.POLICY).exists():
        found = measured(policy, _counted(records_of(experiment, Split.VALIDATION), observe))
        if found is not None:
            run.write_json(PrivateFile.POLICY, found)


def make_annotator(experiment: Config, policies: Policies) -> Annotator:
    """What is looked for in each training record."""
    return Annotator(
        policies.marking,
        policies.conservative,
        None if experiment.marking.entity_kinds is None else frozenset(experiment.marking.entity_kinds),
        {} if experiment.marking.aliases is None else read_aliases(Path(experiment.marking.aliases)),
        check_stability=needs_of(experiment).stability,
    )


def training_records(experiment: Config) -> Iterator[Record]:
    """The training side, with users as the settings say."""
    records = records_of(experiment, Split.TRAIN)
    if experiment.data.user_source == "given":
        return records
    if experiment.data.user_source == "documents":
        return (replace(record, user=record.id) for record in records)
    dealt = dealt_users([record.id for record in records_of(experiment, Split.TRAIN)], *DEALT, salt=_SALT)
    return (replace(record, user=user) for record, user in zip(records, dealt, strict=True))


def _counted(records: Iterable[Record], observe: Observer) -> Iterator[Record]:
    for done, record in enumerate(records, 1):
        yield record
        if done % _RECORDS_BETWEEN == 0:
            observe(Progress("preparing", done, None))


def train_settings(experiment: Config) -> TrainSettings:
    """How the plan is executed."""
    states = experiment.plan.noised_states
    updates = UpdateSettings(
        experiment.public,
        experiment.private,
        experiment.local,
        experiment.execution.microbatch_tokens,
        experiment.execution.precision,
        DEFAULT_NOISED_STATES if states is None else states,
    )
    return TrainSettings(updates, experiment.execution.checkpoint_steps, 60 * experiment.execution.checkpoint_minutes)


def make_reader(experiment: Config, tokenizer: Tokenizer, store: PreparedCorpus) -> AnyBatchReader:
    """What reads the rows of `store`: as text, or as text and labels."""
    inventions = Inventions(tokenizer, experiment.marking.inventions)
    if experiment.classes is None:
        return RowReader(store, tokenizer.end, experiment.data.max_full_tokens, inventions)
    return LabelReader(store, tokenizer.end, experiment.data.max_full_tokens, experiment.classes, inventions)


def make_learner(experiment: Config, tokenizer: Tokenizer) -> Model:
    """A new model, or the one of a folder with room for the tokenizer's special tokens; on the device asked for."""
    torch.manual_seed(experiment.seed or 0 if experiment.mode == Mode.RESEARCH else torch.seed())
    make = _classifier if experiment.classifies else _learner
    learner = make(experiment, tokenizer.vocabulary_size)
    try:
        learner.module.to(experiment.execution.device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            expected=f"a device {experiment.execution.device} that torch can use",
            found=type(error).__name__,
            way_out="device: cpu, or install a torch that was built for the device",
        ) from error
    return learner


def _learner(experiment: Config, vocabulary_size: int) -> Learner:
    if experiment.model == "lstm":
        return LSTM.new(shaped(LSTMConfig, experiment.model_config, {"vocabulary_size": vocabulary_size}))
    longest = experiment.data.max_full_tokens + 2
    if is_custom(experiment.model):
        return CustomModel.new(experiment.model, vocabulary_size, longest, experiment.model_config)
    if experiment.model == "gpt":
        fixed = {"vocabulary_size": vocabulary_size, "context": longest}
        return CausalLM.new(shaped(CausalLMConfig, experiment.model_config, fixed), experiment.lora)
    learner = CausalLM.from_folder(Path(experiment.model), experiment.lora, vocabulary_size)
    _check_context(experiment, learner.context, 2)
    return learner


def _classifier(experiment: Config, vocabulary_size: int) -> Classifier:
    settings = ClassifierConfig(tuple(experiment.classes or ()))
    if experiment.model == "lstm":
        shape = shaped(LSTMConfig, experiment.model_config, {"vocabulary_size": vocabulary_size})
        return LSTMClassifier.new(shape, settings)
    folder = Path(experiment.model)
    classifier = EncoderClassifier.from_folder(folder, settings, experiment.lora, vocabulary_size)
    _check_context(experiment, classifier.context, 1)
    return classifier


def _check_context(experiment: Config, context: int, frame: int) -> None:
    """Refuse a model that cannot read a row with the `frame` end tokens around it."""
    longest = experiment.data.max_full_tokens + frame
    if context < longest:
        raise ConfigError(
            expected=f"a model that reads {longest} tokens",
            found=f"one that reads {context}",
            way_out=f"data.max_full_tokens: {context - frame}, or less",
        )
