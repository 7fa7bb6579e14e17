"""T11, the neighbor fuzzer: two worlds that differ in one unit, made and trained by the product's own functions.

A world is a corpus with all that a run makes of it before its first step. Private steps are compared under a forced
past: both worlds have the same weights, optimizers and draw, and what is added as noise is replaced by the same
numbers, so that whatever still differs was told by something else than the noisy sum (theory, section 13).
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from neighbor_corpora import HELD_OUT_USERS, Draft, Part
from oracles import while_in_float64
from runs import quiet
from tacit.config.load import load_config
from tacit.config.schema import Config
from tacit.data.batches import Examples
from tacit.data.corpus import write_jsonl
from tacit.data.form_counts import count_forms
from tacit.data.forms import Cell, Forms, learn
from tacit.data.ownership import RecordMarks
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer
from tacit.data.viewed import tokens_of
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.registry import build_mechanism
from tacit.privacy.plan import Noisy, Plan, Step, View
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.training.checks import check_mechanism, check_run
from tacit.training.covered import check_covered
from tacit.training.execute import make_choice
from tacit.training.gradients.check import check_gradients
from tacit.training.marking import Caps, annotate, mark_once, marked_corpus
from tacit.training.optimizers import Optimizer
from tacit.training.parts import (
    AnyBatchReader,
    Model,
    make_learner,
    make_policies,
    make_reader,
    make_tokenizer,
    prepare_stores,
    train_settings,
)
from tacit.training.pools import Annotation, DrawnUnits, Pools, measured_counts
from tacit.training.randomness import NoiseStream, Streams
from tacit.training.stages import _check_dependence, prepare_choice
from tacit.training.updates import Updates

Name = tuple[str, int]
"""A row, in whichever world: the id of its record, and which piece of that it is."""


class Nulls:
    """Rows from which a reader reads nothing to learn: the null content of theory, section 1."""

    def __init__(self, reader: Any) -> None:  # noqa: ANN401
        self.rows: frozenset[int] = frozenset()
        self._batch = reader.batch
        reader.batch = self._blanked

    def _blanked(self, rows: Iterable[int], view: View, targets: Any) -> Examples:  # noqa: ANN401
        read = self._batch(rows, view, targets)
        blank = torch.tensor([int(row) in self.rows for row in rows], dtype=torch.bool)
        blanked: Examples = dataclasses.replace(read, weights=torch.where(blank[:, None], 0.0, read.weights))
        return blanked


@dataclass(frozen=True, eq=False)
class LearnedForms:
    """The counts of forms before noise, over which contexts, and what was made of them after noise."""

    sums: Mapping[Cell, int]
    contexts: Mapping[str, list[str]]
    released: Forms


@dataclass(frozen=True, eq=False)
class World:
    """A corpus, and what a run makes of it."""

    experiment: Config
    store: PreparedCorpus
    marks: RecordMarks
    annotation: Annotation
    pools: Pools
    tokenizer: Tokenizer
    mechanism: Mechanism
    plan: Plan
    learner: Model
    reader: AnyBatchReader
    nulls: Nulls
    updates: Updates
    start: dict[str, Tensor]  # the weights that training begins with
    nats: Callable[[], float] | None  # what a choice of the best model looks at
    names: list[Name]
    forms: LearnedForms | None  # where the plan counts forms
    rows: dict[Name, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", {name: row for row, name in enumerate(self.names)})

    def owned_rows(self, owned: frozenset[str]) -> frozenset[int]:
        """The rows of some records."""
        return frozenset(row for row, (record, _) in enumerate(self.names) if record in owned)

    def content(self, row: int, view: View) -> tuple[Any, ...]:
        """What a step reads of a row."""
        inventions = self.reader._inventions
        tokens, secret, learned = tokens_of(self.store, row, view, inventions)
        label = self.store.label(row) if self.experiment.classifies else None
        return tuple(tokens.tolist()), tuple(secret.tolist()), label, None if learned is None else learned.tolist()

    def own_plan(self) -> Plan:
        """What the counts of this world would make of the settings."""
        return _mechanism(self.experiment, self.annotation, self.pools).plan()

    def pool_names(self, step: Step) -> list[Name]:
        """The rows that a step may draw, in their order."""
        try:
            return [self.names[int(row)] for row in self.pools.rows(step.pool)]
        except ConfigError:  # the unit was all of it
            return []


def _forms(store: PreparedCorpus, tokenizer: Tokenizer, plan: Plan, forced: LearnedForms | None) -> LearnedForms | None:
    """By the product's functions; in a world with a forced past, what the other world released."""
    if plan.forms is None:
        return None
    assert isinstance(plan.forms.update, Noisy)
    noise = plan.forms.update.noise_multiplier
    sums, contexts = count_forms(store, tokenizer, noise)
    return LearnedForms(sums, contexts, learn(sums, contexts, noise, Random(1)) if forced is None else forced.released)


def _mechanism(experiment: Config, annotation: Annotation, pools: Pools) -> Mechanism:
    counts = measured_counts(annotation, pools, experiment.plan)
    return build_mechanism(experiment.plan, counts)


def make_world(folder: Path, drafts: Sequence[Draft], words: Mapping[str, Any], public: World | None = None) -> World:
    """As `train` does, up to the first step. public: the world whose counts are public; None: this one."""
    folder.mkdir()
    chats = words.get("train_on") == "assistant" or words.get("tokenizer") == "model"
    experiment = load_config({**words, **_files(folder, drafts, "held_out" in words, chats)})
    check_run(experiment)
    check_covered(experiment)
    policies = make_policies(experiment)
    with patch("os.fsync"), RunFolder.create(folder / "run") as run:
        mark_once(experiment, policies, run, quiet)
        tokenizer = make_tokenizer(experiment, policies.marking, marked_corpus(run))
        prepare_stores(experiment, policies, tokenizer, run, quiet)
        store, marks = PreparedCorpus(run.path(PrivateFile.PREPARED)), RecordMarks.load(run.path(PrivateFile.MARKS))
        caps = Caps(experiment.plan.user_cap, experiment.plan.entity_cap)
        annotation, _ = annotate(store, marks, caps)
        pools = Pools(annotation)
        mechanism = _mechanism(experiment, annotation, pools) if public is None else public.mechanism
        plan = mechanism.plan()
        _check_dependence(mechanism, tokenizer.depends_on, policies.marking.hash)
        check_mechanism(experiment, mechanism)
        learner = make_learner(experiment, tokenizer)
        prepare_choice(experiment, policies.marking, tokenizer, run)
        choice = make_choice(experiment, tokenizer, learner, run)
    forms = _forms(store, tokenizer, plan, None if public is None else public.forms)
    reader = make_reader(experiment, tokenizer, store, None if forms is None else forms.released)
    updates = Updates(learner, plan, reader, pools, train_settings(experiment).updates)
    for part, moving in updates.moving.items():  # as a run, which takes the way that was checked
        known = None if public is None else public.updates.methods[part]
        updates.methods[part] = known or check_gradients(learner, parameters=moving)
    learner.module.train()
    start = {name: value.detach().clone() for name, value in learner.module.named_parameters()}
    names = [(store.record_id(row), int(store.pieces[row])) for row in range(len(store))]
    nats = None if choice is None else choice.nats
    parts = (
        experiment,
        store,
        marks,
        annotation,
        pools,
        tokenizer,
        mechanism,
        plan,
        learner,
        reader,
        Nulls(reader),
        updates,
    )
    return World(*parts, start, nats, names, forms)


def _files(folder: Path, drafts: Sequence[Draft], share: bool, chats: bool) -> dict[str, str]:
    """The corpus, of texts or of chats, with held-out records in it or beside it."""
    held = [Draft(user, user, "x", ((Part(f"held out by {user}.\n"),),) * 2).record(chats) for user in HELD_OUT_USERS]
    records = [draft.record(chats) for draft in drafts]
    write_jsonl([*records, *held] if share else records, folder / "corpus.jsonl")
    write_jsonl(held, folder / "held.jsonl")
    beside = {} if share else {"held_out_corpus": str(folder / "held.jsonl")}
    return {"corpus": str(folder / "corpus.jsonl"), **beside}


# What one draw did, and to what.


@dataclass(frozen=True, eq=False)
class Transcript:
    """What one draw released, and what it left behind."""

    queries: list[tuple[list[Tensor], float]]  # sums before noise, and the deviation of the noise
    applied: list[tuple[dict[str, Tensor], float]]  # gradients that an optimizer got, and the deviation it was told
    left: dict[str, Tensor]  # parameters and optimizers afterwards
    streams: Any
    tokens: int
    public_loss: float | None


@contextmanager
def _forced(seed: int, queries: list[Any], applied: list[Any], real_noise: bool) -> Iterator[None]:
    """Noise is noted and replaced by numbers that are the same in both worlds; optimizers note what they get."""
    apply = Optimizer.apply

    class Forced(NoiseStream):
        def add_(self, tensors: Iterable[Tensor], deviation: float) -> None:
            found = list(tensors)
            queries.append(([tensor.detach().clone() for tensor in found], deviation))
            if real_noise:
                super().add_(found, deviation)
                return
            chance = torch.Generator().manual_seed(seed * 1000 + len(queries))
            for tensor in found:
                tensor.copy_(torch.randn(tensor.shape, generator=chance) * deviation)

    def noted(self: Optimizer, parameters: Any, gradients: Any, noise: float = 0.0) -> None:  # noqa: ANN401
        applied.append(({name: value.detach().clone() for name, value in gradients.items()}, noise))
        apply(self, parameters, gradients, noise)

    with patch("tacit.training.updates.NoiseStream", Forced), patch.object(Optimizer, "apply", noted):
        yield


WEIGHTS = {"as they begin": 0.0, "random": 0.5, "large": 30.0, "beyond all bounds": 1e25}


def force_past(world: World, weights: str, seed: int) -> None:
    """The same weights and the same optimizers, whatever the world: an earlier step moved all that moves."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in world.learner.module.named_parameters():
            value.copy_(world.start[name] + WEIGHTS[weights] * torch.randn(value.shape, generator=chance))
    for kind, optimizer in world.updates.optimizers.items():
        optimizer.restore({"done": torch.tensor(0)})
        steps = [step for step in world.plan.executions() if step.optimizer == kind]
        names = [name for step in steps[:1] for name in world.updates.moving[step.trainable]]
        sizes = {name: world.updates.parameters[name] for name in names}
        past = {name: torch.randn(value.shape, generator=chance).to(value.dtype) for name, value in sizes.items()}
        if past:
            optimizer.apply({name: torch.zeros_like(value) for name, value in past.items()}, past)


def carry_out(
    world: World,
    step: Step,
    drawn: DrawnUnits,
    weights: str,
    seed: int,
    *,
    null: frozenset[int] = frozenset(),
    noise: bool = False,
    wide: bool = False,
) -> Transcript:
    """One draw of `step`, from the past that `weights` and `seed` name; rows of `null` have nothing to learn from.

    wide: in float64, as always with large weights, with which the float32 gradients of a transformer are rounding and
    little else (docs/theory.md).
    """
    if wide or weights == "large":
        with while_in_float64(world.learner.module):
            return _carry_out(world, step, drawn, weights, seed, null, noise)
    return _carry_out(world, step, drawn, weights, seed, null, noise)


def _carry_out(
    world: World, step: Step, drawn: DrawnUnits, weights: str, seed: int, null: frozenset[int], noise: bool
) -> Transcript:
    force_past(world, weights, seed)
    queries: list[Any] = []
    applied: list[Any] = []
    streams = Streams.research(seed)
    world.nulls.rows = null
    torch.manual_seed(int(streams.other.integers(2**63)))
    with _forced(seed, queries, applied, noise):
        done = world.updates.carry_out(step, drawn, streams)
    left = {f"model.{name}": value.detach().clone() for name, value in world.learner.module.named_parameters()}
    for kind, optimizer in world.updates.optimizers.items():
        left |= {f"{kind}.{name}": value.clone() for name, value in optimizer.state().items()}
    return Transcript(queries, applied, left, streams.state(), done.tokens, done.public_loss)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal in every bit, or not a number in both."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def same_left(one: Transcript, other: Transcript) -> bool:
    """Comparison 6: with the noisy sums forced equal, nothing else differs."""
    return (
        len(one.queries) == len(other.queries)
        and all(a[1] == b[1] for a, b in zip(one.queries, other.queries, strict=True))
        and len(one.applied) == len(other.applied)
        and all(a[1] == b[1] and a[0].keys() == b[0].keys() for a, b in zip(one.applied, other.applied, strict=True))
        and all(
            same_bits(a[0][name], b[0][name]) for a, b in zip(one.applied, other.applied, strict=True) for name in a[0]
        )
        and one.left.keys() == other.left.keys()
        and all(same_bits(one.left[name], other.left[name]) for name in one.left)
        and one.streams == other.streams
    )


def same_sums(one: Transcript, other: Transcript) -> bool:
    """Whether all sums are bitwise equal."""
    return len(one.queries) == len(other.queries) and all(
        len(a[0]) == len(b[0]) and all(same_bits(x, y) for x, y in zip(a[0], b[0], strict=True))
        for a, b in zip(one.queries, other.queries, strict=True)
    )


def distance(one: Transcript, other: Transcript) -> float:
    """How far apart the sums are, in deviations of their noise: what one Gaussian of them all is priced by."""
    assert len(one.queries) == len(other.queries)
    squares = 0.0
    for (ours, deviation), (theirs, _) in zip(one.queries, other.queries, strict=True):
        squares += sum(float((a.double() - b.double()).square().sum()) for a, b in zip(ours, theirs, strict=True)) / (
            deviation**2
        )
    return math.sqrt(squares)
