"""What a run is made of, from its settings: tokenizer, prepared stores, model."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import TypeAdapter, ValidationError

from tacit.annotating import Annotator, read_aliases
from tacit.corpus.read import read
from tacit.corpus.record import Record
from tacit.corpus.split import Shares, Split, split_of
from tacit.errors import ConfigError
from tacit.models import GPT, LSTM, GPTSettings, Learner, LSTMSettings
from tacit.policy.base import Policy
from tacit.policy.registry import parse_policy
from tacit.prepare import PrepareSettings, prepare, public_segments
from tacit.prepare.users import dealt_users
from tacit.randomness import Mode
from tacit.run.files import write_atomically
from tacit.settings import Experiment
from tacit.tokenizer import (
    Dependence,
    Source,
    Tokenizer,
    byte_tokenizer,
    read_tokenizer_json,
    train_bpe,
)
from tacit.train import Observer, Progress

Shape = TypeVar("Shape", LSTMSettings, GPTSettings)

PREPARED, HELD_OUT, MARKS = "prepared", "held-out", "marks.safetensors"
DEALT = (15.0, 2.0)  # records of an invented user: mean and deviation, as UeDP deals AG News
DEFAULT_VOCABULARY = 1000
_SALT = "tacit held-out"
_RECORDS_BETWEEN = 500


def make_tokenizer(experiment: Experiment, policy: Policy) -> Tokenizer:
    """The tokenizer that was asked for; a file's is taken as public, since somebody made it before this run."""
    name = experiment.tokenizer_name
    if name == "bytes":
        return byte_tokenizer()
    if name != "bpe":
        file = Path(experiment.model) / "tokenizer.json" if name == "model" else Path(name)
        return read_tokenizer_json(file, Dependence(Source.PUBLIC_CORPUS, file.name))
    size = experiment.vocabulary_size or DEFAULT_VOCABULARY
    public = experiment.vocabulary_corpus
    if public is not None:
        return train_bpe(
            (record.text for record in read(public)), size, Dependence(Source.PUBLIC_CORPUS, Path(public).name)
        )
    learned = Dependence(Source.REDACTED_VIEW, Path(experiment.corpus).name, policy.hash)
    return train_bpe(public_segments(records_of(experiment, Split.TRAIN), policy), size, learned)


def records_of(experiment: Experiment, side: Split) -> Iterator[Record]:
    """The records of one side; a user is on one side only."""
    shares = Shares(1 - experiment.held_out, experiment.held_out, 0.0)
    for record in read(experiment.corpus):
        if split_of(record.user or record.id, _SALT, shares) == side:
            yield record


def prepare_stores(
    experiment: Experiment, policy: Policy, tokenizer: Tokenizer, folder: Path, observe: Observer
) -> None:
    """Both sides of the corpus as stores, and the marks of the training side; what is there already stays."""
    settings = PrepareSettings(experiment.max_tokens, experiment.which_duplicates)
    place, marks = folder / "private" / PREPARED, folder / "private" / MARKS
    if not (place.exists() and marks.exists()):
        shutil.rmtree(place, ignore_errors=True)  # marks are written last
        annotator = make_annotator(experiment, policy)
        records = annotator.watching(_counted(training_records(experiment), observe))
        prepare(records, policy, tokenizer, place, settings)
        write_atomically(marks, annotator.marks().save, 0o600)
    held_out = folder / "private" / HELD_OUT
    if not held_out.exists():
        plain = PrepareSettings(experiment.max_tokens)
        prepare(_counted(records_of(experiment, Split.VALIDATION), observe), policy, tokenizer, held_out, plain)


def make_annotator(experiment: Experiment, policy: Policy) -> Annotator:
    """What is looked for in each training record."""
    return Annotator(
        policy,
        None if experiment.conservative is None else parse_policy(experiment.conservative),
        None if experiment.entity_kinds is None else frozenset(experiment.entity_kinds),
        {} if experiment.aliases is None else read_aliases(Path(experiment.aliases)),
        check_stability=experiment.plan.get("mechanism") == "crt",
    )


def training_records(experiment: Experiment) -> Iterator[Record]:
    """The training side, with users as the settings say."""
    records = records_of(experiment, Split.TRAIN)
    if experiment.users == "given":
        return records
    if experiment.users == "documents":
        return (replace(record, user=record.id) for record in records)
    dealt = dealt_users([record.id for record in records_of(experiment, Split.TRAIN)], *DEALT, salt=_SALT)
    return (replace(record, user=user) for record, user in zip(records, dealt, strict=True))


def _counted(records: Iterable[Record], observe: Observer) -> Iterator[Record]:
    for done, record in enumerate(records, 1):
        yield record
        if done % _RECORDS_BETWEEN == 0:
            observe(Progress("preparing", done, None))


def make_learner(experiment: Experiment, tokenizer: Tokenizer) -> Learner:
    """A new model, or the one of a folder with room for the tokenizer's special tokens; on the device asked for."""
    torch.manual_seed(experiment.seed or 0 if experiment.mode == Mode.RESEARCH else torch.seed())
    learner = _learner(experiment, tokenizer.vocabulary_size)
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
        return LSTM.new(_shaped(LSTMSettings, experiment, {"vocabulary_size": vocabulary_size}))
    longest = experiment.longest_full + 2
    if experiment.model == "gpt":
        fixed = {"vocabulary_size": vocabulary_size, "context": longest}
        return GPT.new(_shaped(GPTSettings, experiment, fixed), experiment.lora)
    learner = GPT.from_folder(Path(experiment.model), experiment.lora, vocabulary_size)
    if learner.context < longest:
        raise ConfigError(
            expected=f"a model that reads {longest} tokens",
            found=f"one that reads {learner.context}",
            way_out=f"longest_full: {learner.context - 2}, or less",
        )
    return learner


def _shaped(kind: type[Shape], experiment: Experiment, fixed: dict[str, int]) -> Shape:
    known = [word for word in kind.__dataclass_fields__ if word not in fixed]
    for word in experiment.shape:
        if word not in known:
            raise ConfigError.unknown_name("word in shape", word, known)
    try:
        return TypeAdapter(kind).validate_python({**experiment.shape, **fixed})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ConfigError(f"shape.{where}: {fault['msg']}", repr(fault["input"]), "correct the number") from None
