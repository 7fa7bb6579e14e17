"""What a run is made of, from its settings: tokenizer, prepared stores, model."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch

from tacit.common.files import write_atomically
from tacit.common.progress import Observer, Progress
from tacit.config.choices import Mode
from tacit.config.model_schema import CausalLMConfig, ClassifierConfig, LSTMConfig
from tacit.config.schema import Experiment, shaped
from tacit.data.batches import Inventions, RowReader
from tacit.data.corpus import read
from tacit.data.labels import LabelReader
from tacit.data.marked import MarkedCorpus, MarkedRecord, Part, public_text
from tacit.data.ownership import Annotator, read_aliases
from tacit.data.prepare import PrepareConfig, prepare
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Dependence, Tokenizer, VocabularySource, byte_tokenizer, read_tokenizer_json, train_bpe
from tacit.errors import ClaimRefused, ConfigError
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier, EncoderClassifier, LSTMClassifier
from tacit.models.custom import CustomModel, is_own
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.policies.marking import Inside
from tacit.policies.policy import Policies, Policy
from tacit.policies.registry import parse_policy
from tacit.runs.files import PrivateFile, ReleaseFile
from tacit.runs.folder import RunFolder
from tacit.training.marking import marked_corpus, training_records
from tacit.training.trainer import TrainSettings
from tacit.training.updates import DEFAULT_NOISED_STATES, UpdateSettings

Model = Learner | Classifier
AnyBatchReader = RowReader | LabelReader
DEFAULT_VOCABULARY = 1000
_RECORDS_BETWEEN = 500


def make_policies(experiment: Experiment) -> Policies:
    """The policies that were asked for."""
    policy = parse_policy(experiment.policy)
    return Policies(policy, None if experiment.conservative is None else parse_policy(experiment.conservative))


def make_tokenizer(experiment: Experiment, policy: Policy, marked: MarkedCorpus) -> Tokenizer:
    """The tokenizer that was asked for; a file's is taken as public, since somebody made it before this run."""
    name = experiment.tokenizer_name
    if name == "bytes":
        return byte_tokenizer()
    if name != "bpe":
        file = Path(experiment.model) / "tokenizer.json" if name == "model" else Path(name)
        return read_tokenizer_json(file, Dependence(VocabularySource.PUBLIC_CORPUS, file.name))
    size = experiment.vocabulary_size or DEFAULT_VOCABULARY
    public = experiment.vocabulary_corpus
    if public is not None:
        return train_bpe(
            (record.text for record in read(public)),
            size,
            Dependence(VocabularySource.PUBLIC_CORPUS, Path(public).name),
        )
    learned = Dependence(VocabularySource.REDACTED_VIEW, "the training records", policy.hash)
    return train_bpe(public_text(marked.records(Part.TRAIN)), size, learned)


def prepare_stores(
    experiment: Experiment, policies: Policies, tokenizer: Tokenizer, run: RunFolder, observe: Observer
) -> None:
    """Both sides of the marked corpus as stores, and the marks of the records beside them; what is there stays."""
    marked, policy = marked_corpus(run), policies.marking
    settings = PrepareConfig(experiment.max_tokens, experiment.which_duplicates, experiment.classifies)
    place, marks = run.path(PrivateFile.PREPARED), run.path(PrivateFile.MARKS)

    def planted() -> Iterator[MarkedRecord]:
        return _counted(chain(training_records(experiment, marked), marked.records(Part.PLANTED)), observe)

    if not (place.exists() and marks.exists()):
        shutil.rmtree(place, ignore_errors=True)  # marks are written last
        annotator = make_annotator(experiment)
        store = prepare(annotator.watching(planted()), policy, tokenizer, place, settings)
        inside = Inside.from_json(run.read_json(dict, PrivateFile.SAMPLE))
        run.write_json(PrivateFile.SAMPLE, replace(inside, kinds=store.kind_counts()).to_json())
        if experiment.protects_entities:
            annotator.search(planted())
        write_atomically(marks, annotator.marks().save, 0o600)
    whole = PrepareConfig(experiment.max_tokens, labelled=experiment.classifies)
    sides = {PrivateFile.HELD_OUT: marked.records(Part.HELD_OUT)}
    if experiment.which_duplicates != "keep":
        sides[PrivateFile.MEMBERS] = training_records(
            experiment, marked
        )  # also what was left out, as on the other side
    for name, records in sides.items():
        if not run.path(name).exists():
            prepare(_counted(records, observe), policy, tokenizer, run.path(name), whole)


def make_annotator(experiment: Experiment) -> Annotator:
    """What is noted of each training record."""
    return Annotator(
        experiment.protects_entities,
        None if experiment.entity_kinds is None else frozenset(experiment.entity_kinds),
        {} if experiment.aliases is None else read_aliases(Path(experiment.aliases)),
    )


def _counted(records: Iterable[MarkedRecord], observe: Observer) -> Iterator[MarkedRecord]:
    for done, record in enumerate(records, 1):
        yield record
        if done % _RECORDS_BETWEEN == 0:
            observe(Progress("preparing", done, None))


def train_settings(experiment: Experiment) -> TrainSettings:
    """How the plan is executed."""
    updates = UpdateSettings(
        experiment.public,
        experiment.private,
        experiment.local,
        experiment.positions,
        experiment.precision,
        experiment.plan.get("noised_states", DEFAULT_NOISED_STATES),
    )
    return TrainSettings(updates, experiment.checkpoint_steps, 60 * experiment.checkpoint_minutes)


def make_reader(experiment: Experiment, tokenizer: Tokenizer, store: PreparedCorpus) -> AnyBatchReader:
    """What reads the rows of `store`: as text, or as text and labels."""
    inventions = Inventions(tokenizer, experiment.inventions)
    if experiment.classes is None:
        return RowReader(store, tokenizer.end, experiment.longest_full, inventions)
    return LabelReader(store, tokenizer.end, experiment.longest_full, experiment.classes, inventions)


def check_base_model(experiment: Experiment) -> None:
    """Refuse a run of tacit's as the base model: what it spent would be part of the claim, and is not composed yet."""
    folder = Path(experiment.model)
    ours = (folder / place / name for place in (".", "release") for name in (ReleaseFile.LEDGER, ReleaseFile.GUARANTEE))
    if not experiment.is_new and any(file.exists() for file in ours):
        raise ClaimRefused(
            expected="a base model from elsewhere, or a new one",
            found="a run of tacit, whose own spending would have to be added to this run's",
            way_out="train from the model that run began with, or use model: lstm or gpt",
        )


def make_learner(experiment: Experiment, tokenizer: Tokenizer) -> Model:
    """A new model, or the one of a folder with room for the tokenizer's special tokens; on the device asked for."""
    torch.manual_seed(experiment.seed or 0 if experiment.mode == Mode.RESEARCH else torch.seed())
    make = _classifier if experiment.classifies else _learner
    learner = make(experiment, tokenizer.vocabulary_size)
    try:
        learner.module.to(experiment.device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            expected=f"a device {experiment.device} that torch can use",
            found=type(error).__name__,
            way_out="device: cpu, or install a torch that was built for the device",
        ) from error
    return learner


def _learner(experiment: Experiment, vocabulary_size: int) -> Learner:
    if experiment.model == "lstm":
        return LSTM.new(shaped(LSTMConfig, experiment.shape, {"vocabulary_size": vocabulary_size}))
    longest = experiment.longest_full + 2
    if is_own(experiment.model):
        return CustomModel.new(experiment.model, vocabulary_size, longest, experiment.shape)
    if experiment.model == "gpt":
        fixed = {"vocabulary_size": vocabulary_size, "context": longest}
        return CausalLM.new(shaped(CausalLMConfig, experiment.shape, fixed), experiment.lora)
    learner = CausalLM.from_folder(Path(experiment.model), experiment.lora, vocabulary_size)
    _check_context(experiment, learner.context, 2)
    return learner


def _classifier(experiment: Experiment, vocabulary_size: int) -> Classifier:
    settings = ClassifierConfig(tuple(experiment.classes or ()))
    if experiment.model == "lstm":
        shape = shaped(LSTMConfig, experiment.shape, {"vocabulary_size": vocabulary_size})
        return LSTMClassifier.new(shape, settings)
    folder = Path(experiment.model)
    classifier = EncoderClassifier.from_folder(folder, settings, experiment.lora, vocabulary_size)
    _check_context(experiment, classifier.context, 1)
    return classifier


def _check_context(experiment: Experiment, context: int, frame: int) -> None:
    """Refuse a model that cannot read a row with the `frame` end tokens around it."""
    longest = experiment.longest_full + frame
    if context < longest:
        raise ConfigError(
            expected=f"a model that reads {longest} tokens",
            found=f"one that reads {context}",
            way_out=f"longest_full: {context - frame}, or less",
        )
