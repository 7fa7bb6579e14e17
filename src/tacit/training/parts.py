"""What a run is made of, from its settings: tokenizer, prepared stores, model."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch

from tacit.common.files import write_atomically
from tacit.common.libraries import Loading
from tacit.common.progress import Observer
from tacit.config.load import shaped
from tacit.config.model_schema import CausalLMConfig, ClassifierConfig, LSTMConfig
from tacit.config.schema import SHORTEST_CHUNK, Config, is_custom
from tacit.config.setting import Duplicates, Mode
from tacit.data.batches import RowReader
from tacit.data.corpus import read
from tacit.data.forms import Forms
from tacit.data.labels import LabelReader
from tacit.data.marked import MarkedCorpus, MarkedRecord, Part, public_text
from tacit.data.ownership import Annotator, read_aliases
from tacit.data.prepare import PrepareConfig, prepare
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Dependence, Tokenizer, VocabularySource, train_bpe
from tacit.data.viewed import Inventions
from tacit.errors import ConfigError
from tacit.models.activations import activation_cache
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier, EncoderClassifier, LSTMClassifier
from tacit.models.english_lstm import english_lstm
from tacit.models.folders import checkpoint_activations
from tacit.models.language_model import Learner
from tacit.models.loading import CustomModel, load_to_train
from tacit.models.lower_layers import LowerLayers
from tacit.models.lstm import LSTM
from tacit.policies.marking import Inside, Policies
from tacit.policies.policy import Policy
from tacit.policies.registry import parse_policy
from tacit.runs.folder import RunFolder, is_run
from tacit.runs.release import PrivateFile
from tacit.training.chats import template_of
from tacit.training.checks import base_architecture, duplicates_of, invents, needs_of
from tacit.training.group import ALONE, Group
from tacit.training.marking import counted, held_out_records, marked_corpus, training_records
from tacit.training.sharing import loading_shares, share_model, try_pass
from tacit.training.tokenizers import given_tokenizer
from tacit.training.trainer import TrainSettings
from tacit.training.updates import DEFAULT_NOISED_STATES, UpdateSettings

Model = Learner | Classifier
AnyBatchReader = RowReader | LabelReader
DEFAULT_VOCABULARY = 1000
_VIEWS = 2  # that the steps of a plan read: one in public steps, another in private ones


def make_policies(config: Config) -> Policies:
    policy = parse_policy(config.policy)
    conservative = config.marking.conservative_policy
    return Policies(policy, None if conservative is None else parse_policy(conservative))


def make_tokenizer(config: Config, policy: Policy, marked: MarkedCorpus) -> Tokenizer:
    """The tokenizer that was asked for; a file's is taken as public, since somebody made it before this run."""
    given = given_tokenizer(config)
    if given is not None:
        return given
    size = config.data.vocabulary_size or DEFAULT_VOCABULARY
    public = config.data.vocabulary_corpus
    if public is not None:
        declared = Dependence(VocabularySource.PUBLIC_CORPUS, Path(public).name)
        return train_bpe((record.text for record in read(public)), size, declared)
    return train_bpe(public_text(marked.records(Part.TRAIN)), size, learned_from_training(policy))


def learned_from_training(policy: Policy) -> Dependence:
    """What a vocabulary depends on that is learned from the public text of the training records."""
    return Dependence(VocabularySource.REDACTED_VIEW, "the training records", policy.hash)


def prepare_settings(config: Config, duplicates: Duplicates = "keep") -> PrepareConfig:
    """How records become rows."""
    data, template = config.data, template_of(config)
    return PrepareConfig(data.max_tokens, duplicates, config.classifies, template, data.train_on, invents(config))


def prepare_stores(
    config: Config,
    policies: Policies,
    tokenizer: Tokenizer,
    run: RunFolder,
    observe: Observer,
    held_out_limit: int | None = None,
) -> None:
    """Both sides of the marked corpus as stores, and the marks of the records beside them; what is there stays."""
    marked, policy, marking = marked_corpus(run), policies.marking, config.marking
    settings = prepare_settings(config, duplicates_of(config))
    place, marks = run.path(PrivateFile.PREPARED), run.path(PrivateFile.MARKS)

    def planted() -> Iterator[MarkedRecord]:
        return counted(chain(training_records(config, marked), marked.records(Part.PLANTED)), observe)

    if not (place.exists() and marks.exists()):
        shutil.rmtree(place, ignore_errors=True)  # marks are written last
        kinds = None if marking.entity_kinds is None else frozenset(marking.entity_kinds)
        aliases = {} if marking.aliases is None else read_aliases(Path(marking.aliases))
        annotator = Annotator(needs_of(config).entities, kinds, aliases)
        store = prepare(annotator.watching(planted()), policy, tokenizer, place, settings)
        inside = run.read_json(Inside, PrivateFile.SAMPLE)
        run.write_json(PrivateFile.SAMPLE, replace(inside, kinds=store.kind_counts()))
        if needs_of(config).entities:
            annotator.search(planted())
        write_atomically(marks, annotator.marks().save, 0o600)
    whole = prepare_settings(config)
    sides = {PrivateFile.HELD_OUT: held_out_records(held_out_limit, marked)}
    if duplicates_of(config) != "keep":
        sides[PrivateFile.MEMBERS] = training_records(config, marked)  # also what was left out
    for name, records in sides.items():
        if not run.path(name).exists():
            prepare(counted(records, observe), policy, tokenizer, run.path(name), whole)


def train_settings(config: Config) -> TrainSettings:
    execution, states = config.execution, config.plan.noised_states
    states = DEFAULT_NOISED_STATES if states is None else states
    rules = (config.public, config.private, config.local)
    updates = UpdateSettings(*rules, execution.microbatch_tokens, execution.precision, states)
    return TrainSettings(updates, execution.checkpoint_steps, 60 * execution.checkpoint_minutes)


def make_reader(
    config: Config, tokenizer: Tokenizer, store: PreparedCorpus, forms: Forms | None = None
) -> AnyBatchReader:
    """What reads the rows of `store`: as text, or as text and labels. forms: what was learned of its secrets."""
    inventions = Inventions(tokenizer, config.marking.inventions, forms)
    longest = config.data.max_full_tokens
    if config.classes is None:
        return RowReader(store, tokenizer.end, longest, inventions, tokenizer.begin)
    base = base_architecture(config)
    of_folder = config.tokenizer_name == "model" and (base is None or base["kind"] != "lstm classifier")
    begin = tokenizer.begin if of_folder else None
    return LabelReader(store, tokenizer.end, longest, config.classes, inventions, begin)


def sketch_learner(config: Config, vocabulary_size: int) -> Model:
    """The model that `make_learner` will make of a folder, as shapes without numbers; refused where it would be."""
    learner = (_classifier if config.classifies else _learner)(config, vocabulary_size, sketched=True)
    learner.module.to("meta")  # heads and adapters, which are new
    return learner


def make_learner(config: Config, tokenizer: Tokenizer, group: Group = ALONE) -> Model:
    """A new model, or the one of a folder with room for the tokenizer's special tokens; on the device asked for.

    group: the processes that make it together, and share its frozen layers if that was asked for.
    """
    torch.manual_seed(config.seed or 0 if config.mode == Mode.RESEARCH else torch.seed())
    with loading_shares(config, group) as kept:
        if not config.is_new and is_run(Path(config.model)):
            learner = _of_run(config)
        else:
            learner = (_classifier if config.classifies else _learner)(config, tokenizer.vocabulary_size)
    if config.execution.gradient_checkpointing == "public":
        checkpoint_activations(learner.module)
    if kept is not None:
        share_model(learner, kept, group)
    try:
        learner.module.to(config.execution.device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            expected=f"a device {config.execution.device} that torch can use",
            found=type(error).__name__,
            way_out="device: cpu, or install a torch that was built for the device",
        ) from error
    if kept is not None:
        try_pass(learner)
    return learner


@contextmanager
def with_cache(config: Config, learner: Model, folder: Path, rows: int) -> Iterator[Model]:
    """The learner, with a cache in `folder` for what its lower layers make of `rows` rows if one was asked for."""
    limit = config.execution.cache_activations_gb
    if limit is None or not isinstance(learner, CausalLM):
        yield learner
        return
    positions = _VIEWS * rows * (config.data.max_full_tokens + 2)
    with activation_cache(LowerLayers(learner), folder, limit, positions) as cache:
        yield replace(learner, cache=cache)


def _of_run(config: Config) -> Model:
    """The model that an earlier run ended with."""
    learner = load_to_train(Path(config.model), config.lora)
    _check_context(config, learner.context, 1 if config.classifies else 2)
    return learner


def _learner(config: Config, vocabulary_size: int, sketched: bool = False) -> Learner:
    if config.model == "lstm":
        lstm = LSTM.new(shaped(LSTMConfig, config.model_config, {"vocabulary_size": vocabulary_size}))
        return english_lstm(lstm) if config.begins_english else lstm
    longest = config.data.max_full_tokens + 2
    if is_custom(config.model):
        return CustomModel.new(config.model, vocabulary_size, longest, config.model_config)
    if config.model == "gpt":
        fixed = {"vocabulary_size": vocabulary_size, "context": longest}
        return CausalLM.new(shaped(CausalLMConfig, config.model_config, fixed), config.lora)
    learner = CausalLM.from_folder(Path(config.model), config.lora, vocabulary_size, _loading(config, sketched))
    _check_context(config, learner.context, 2)
    return learner


def _classifier(config: Config, vocabulary_size: int, sketched: bool = False) -> Classifier:
    settings = ClassifierConfig(tuple(config.classes or ()))
    if config.model == "lstm":
        shape = shaped(LSTMConfig, config.model_config, {"vocabulary_size": vocabulary_size})
        return LSTMClassifier.new(shape, settings)
    loading = _loading(config, sketched)
    classifier = EncoderClassifier.from_folder(Path(config.model), settings, config.lora, vocabulary_size, loading)
    _check_context(config, classifier.context, 2)
    return classifier


def _loading(config: Config, sketched: bool) -> Loading:
    return Loading(config.execution.attn_implementation, sketched)


def _check_context(config: Config, context: int, frame: int) -> None:
    """Refuse a model that cannot read a row with the `frame` special tokens around it."""
    longest = config.data.max_full_tokens + frame
    if context < longest:
        raise ConfigError(
            expected=f"a model that reads {longest} tokens",
            found=f"one that reads {context}",
            way_out=f"data.max_full_tokens: {context - frame}, or less"
            if context - frame >= SHORTEST_CHUNK
            else "use a model with a longer context (max_position_embeddings in config.json)",
        )
