"""The verb `train`: from a corpus and a few words to a run folder with a model, its utility and its guarantee.

G1 (vocabulary). A tokenizer that could break the claim is refused before the first step.
G2 (held out). Records that measure utility take part in nothing else; a user is on one side only.
G3 (as spent). The guarantee is concluded from the ledger, not from the plan.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field

from tacit.codec import from_words
from tacit.corpus.read import read
from tacit.corpus.record import Record
from tacit.corpus.split import Shares, Split, split_of
from tacit.errors import ClaimRefused, ConfigError
from tacit.evaluate import Utility, evaluate
from tacit.guarantee import Evidence, Guarantee
from tacit.mechanisms.base import Mechanism
from tacit.models.base import Learner
from tacit.models.gpt import GPT, GPTSettings
from tacit.models.lstm import LSTM, LSTMSettings
from tacit.optimisers import OptimiserSettings
from tacit.plan import Pool, Unit, cost
from tacit.planning import Planned
from tacit.planning import plan as price
from tacit.policy.base import Policy
from tacit.policy.registry import parse_policy
from tacit.prepare import Prepared, PrepareSettings, prepare, public_segments
from tacit.randomness import Mode, Streams
from tacit.reading import RowReader
from tacit.run import PrivateFile, ReleaseFile, Run
from tacit.run.checkpoints import read_model, write_model
from tacit.sampling import Annotation, Pools
from tacit.tokenizer import Dependence, Source, Tokenizer, byte_tokenizer, load_tokenizer, train_bpe
from tacit.train import Progress, Trainer, TrainSettings

PREPARED, HELD_OUT = "prepared", "held-out"
_SALT = "tacit held-out"


class Experiment(BaseModel):
    """Every setting of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    corpus: str = Field(description="The corpus file.")
    policy: str = Field("pii", description="A policy's name, names with commas between them, or a YAML file.")
    plan: dict[str, Any] = Field(description="Mechanism, epsilon, and what else `tacit plan` knows.")
    tokenizer: Literal["bytes", "bpe"] = Field("bytes", description="bytes, or bpe learned from `vocabulary_corpus`.")
    vocabulary_corpus: str | None = Field(None, description="Corpus declared public; without it, the redacted view.")
    vocabulary_size: int | None = Field(None, ge=256, description="Ordinary ids of a BPE. Default: 1000.")
    max_tokens: int = Field(256, ge=8, description="Longest redacted piece of a record.")
    longest_full: int = Field(512, ge=8, description="Where the full view of a piece ends.")
    model: Literal["lstm", "gpt"] = Field("lstm", description="lstm or gpt.")
    public: OptimiserSettings = Field(
        OptimiserSettings(learning_rate=5e-3, longest_gradient=1.0), description="Public steps."
    )
    private: OptimiserSettings = Field(OptimiserSettings(learning_rate=2e-3), description="Private steps.")
    positions: int = Field(8192, ge=1, description="Positions in memory at a time.")
    held_out: float = Field(0.05, gt=0, lt=1, description="Share of users (or records) kept for measuring.")
    mode: Mode = Field(Mode.RESEARCH, description="research: seeded; release: randomness of the operating system.")
    seed: int | None = Field(None, ge=0, description="Of a research run. Default: 0.")


def check_used(experiment: Experiment) -> None:
    """Refuse settings that would be ignored."""
    of_bpe = experiment.vocabulary_size is not None or experiment.vocabulary_corpus is not None
    if experiment.tokenizer == "bytes" and of_bpe:
        raise ConfigError("a vocabulary for a bpe only", "one for bytes", "set tokenizer: bpe, or leave it out")
    if experiment.mode == Mode.RELEASE and experiment.seed is not None:
        raise ConfigError("no seed in release mode", "one", "leave it out: the operating system gives the randomness")


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run ended with."""

    folder: Path
    planned: Planned
    utility: Utility
    guarantee: Guarantee


Observer = Callable[[Progress], None]


def read_experiment(path: Path, over: dict[str, Any]) -> Experiment:
    """Settings of a YAML file, with `over` laid over them."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError("a readable YAML file", f"{path}: {type(error).__name__}", "check path and syntax") from error
    if not isinstance(content, dict):
        raise ConfigError(f"settings in {path}", type(content).__name__, "write `corpus: ...` and `plan: {...}`")
    return from_words(Experiment, merged(content, over))


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `under`, word by word inside `plan`."""
    plan = {**under.get("plan", {}), **over.get("plan", {})}
    return {**under, **over, "plan": plan}


def train(experiment: Experiment, folder: Path, observe: Observer) -> Trained:
    """A new run in `folder`."""
    check_used(experiment)
    policy = parse_policy(experiment.policy)
    tokenizer = _tokenizer(experiment, policy)
    with Run.create(folder) as run:
        run.write_json(PrivateFile.SETTINGS, experiment.model_dump(mode="json"))
        run.write(ReleaseFile.TOKENIZER, tokenizer.save)
        _prepare(experiment, policy, tokenizer, folder)
        return _go_on(experiment, policy, tokenizer, run, observe)


def resume(folder: Path, observe: Observer) -> Trained:
    """Go on with the run in `folder`."""
    with Run.open(folder) as run:
        experiment = from_words(Experiment, run.read_json(dict, PrivateFile.SETTINGS))
        policy = parse_policy(experiment.policy)
        tokenizer = load_tokenizer(run.path(ReleaseFile.TOKENIZER))
        if not (folder / "private" / HELD_OUT).exists():
            _prepare(experiment, policy, tokenizer, folder)
        return _go_on(experiment, policy, tokenizer, run, observe)


def load(folder: Path) -> tuple[Learner, Tokenizer]:
    """The model of a finished run, and its tokenizer."""
    run = Run.view(folder)
    settings = run.read_json(dict, ReleaseFile.CONFIG)
    experiment = from_words(Experiment, {**settings, "corpus": ""})
    tokenizer = load_tokenizer(run.path(ReleaseFile.TOKENIZER))
    learner = _learner(experiment, tokenizer)
    learner.module.load_state_dict(read_model(run), strict=False)
    return learner, tokenizer


def _go_on(experiment: Experiment, policy: Policy, tokenizer: Tokenizer, run: Run, observe: Observer) -> Trained:
    store = Prepared(run.folder / "private" / PREPARED)
    pools = Pools(Annotation.of(store))
    planned = price(_counted(experiment.plan, pools), Evidence(policy.id, policy.hash))
    _check_vocabulary(planned.mechanism, tokenizer, policy)
    run.write_json(ReleaseFile.PLAN, planned.plan)
    _declare(run, planned)
    learner = _learner(experiment, tokenizer)
    settings = TrainSettings(experiment.public, experiment.private, experiment.positions)
    reader = RowReader(store, tokenizer.end, experiment.longest_full)
    streams = Streams.research(experiment.seed or 0) if experiment.mode == Mode.RESEARCH else Streams.release()
    Trainer(run, learner, planned.plan, reader, pools, settings).train(streams, observe)
    utility = _measure(experiment, tokenizer, learner, run.folder)
    spent = run.ledger.compositions()
    guarantee = planned.mechanism.conclude(
        {neighbours: spent[str(neighbours)] for neighbours in planned.mechanism.notions()}, planned.guarantee.evidence
    )
    write_model(run, dict(learner.module.named_parameters()))
    run.write_json(ReleaseFile.CONFIG, experiment.model_dump(mode="json", exclude={"seed", "corpus"}))
    run.write_json(ReleaseFile.UTILITY, utility)
    run.write_json(ReleaseFile.GUARANTEE, guarantee)
    return Trained(run.folder, planned, utility, guarantee)


def _counted(words: dict[str, Any], pools: Pools) -> dict[str, Any]:
    """The plan's words with the public counts of the store."""
    given = {"records", "secret_records"} & words.keys()
    if given:
        raise ConfigError("counts from the corpus itself", ", ".join(sorted(given)), "leave them out of `plan`")
    records = {"records": len(pools.records(Pool.EVERY))}
    if words.get("mechanism") in ("selective", "twice"):
        records["secret_records"] = len(pools.records(Pool.WITH_SECRETS))
    return {**words, **records}


def _declare(run: Run, planned: Planned) -> None:
    """Tell the ledger what each step costs each kind of neighbours; a resumed ledger knows already."""
    known = run.ledger.charges()
    for step in planned.plan.executions():
        if step.name not in known:
            prices = {str(neighbours): cost(step, neighbours) for neighbours in planned.mechanism.notions()}
            run.ledger.declare(step.name, prices)


def _tokenizer(experiment: Experiment, policy: Policy) -> Tokenizer:
    if experiment.tokenizer == "bytes":
        return byte_tokenizer()
    public = experiment.vocabulary_corpus
    if public is not None:
        segments: Iterator[str] = (record.text for record in read(public))
        return train_bpe(segments, _vocabulary_size(experiment), Dependence(Source.PUBLIC_CORPUS, Path(public).name))
    learned = Dependence(Source.REDACTED_VIEW, Path(experiment.corpus).name, policy.hash)
    return train_bpe(public_segments(_records(experiment, Split.TRAIN), policy), _vocabulary_size(experiment), learned)


def _vocabulary_size(experiment: Experiment) -> int:
    return experiment.vocabulary_size or 1000


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


def _records(experiment: Experiment, side: Split) -> Iterator[Record]:
    shares = Shares(1 - experiment.held_out, experiment.held_out, 0.0)
    for record in read(experiment.corpus):
        if split_of(record.user or record.id, _SALT, shares) == side:
            yield record


def _prepare(experiment: Experiment, policy: Policy, tokenizer: Tokenizer, folder: Path) -> None:
    settings = PrepareSettings(max_tokens=experiment.max_tokens)
    for side, name in ((Split.TRAIN, PREPARED), (Split.VALIDATION, HELD_OUT)):
        place = folder / "private" / name
        if not place.exists():
            prepare(_records(experiment, side), policy, tokenizer, place, settings)


def _learner(experiment: Experiment, tokenizer: Tokenizer) -> Learner:
    torch.manual_seed(experiment.seed or 0 if experiment.mode == Mode.RESEARCH else torch.seed())
    if experiment.model == "lstm":
        return LSTM.new(LSTMSettings(tokenizer.vocabulary_size))
    context = experiment.longest_full + 2
    return GPT.new(GPTSettings(tokenizer.vocabulary_size, context=context))


def _measure(experiment: Experiment, tokenizer: Tokenizer, learner: Learner, folder: Path) -> Utility:
    store = Prepared(folder / "private" / HELD_OUT)
    reader = RowReader(store, tokenizer.end, experiment.longest_full)
    characters = sum(len(record.text) for record in _records(experiment, Split.VALIDATION))
    return evaluate(learner, store, reader, characters, lambda _: None)
