"""The papers' algorithms as printed, to reproduce their tables; `papers/mechanisms.py` prices them.

One drawn batch of Selective-DPSGD, Algorithm 1 (Shi et al., NAACL 2022), for the LSTM; use `selective` instead:

| paper | here |
|---|---|
| x_i, F(x) | a row's tokens, and which are private; marks and lengths are public (Definition 3 read as: same mask) |
| L_i, private if x_i or x_{i+1} is | position i, which reads token i and predicts token i + 1 |
| {(B_np,i, B_p,i)} | `alternating_segments`, of positions: public first, empty if the first position is private |
| i = 1, 2, ... | the i-th segments of all rows together; a row that has none sits out and keeps its state |
| h = 0, "hidden, cell states" in the text | hidden state and cell of every layer |
| L(theta) on B_np,i: sum or mean unspecified | mean over all its positions; not clipped (the authors' code does clip) |
| L(theta, x_j): sum or mean unspecified | x_j is a row's segment; mean over its positions (always clipped: no matter) |
| 1 over the size of B_p,i | 1 over `divisor`, the constant that the plan states |
| one learning rate | `apply` gets both kinds of gradient and is not told which it got |
| h clipped to the gradients' C | to that C; hidden state and cell of each layer alone |
| h that is carried on: of which theta, with gradient? | it comes with the loss, before the update; no gradient |
| B_p,i empty, B empty: unspecified | nothing happens, no noise either: the public part shows who was drawn anyway |
| dropout (authors' code) | masks are drawn anew for every public segment; private ones have none |

`PairSampler` is the two-level draw of UeDP: users, and listed entities (Lai et al., IEEE Big Data 2022, Algorithm 1).

| paper | here |
|---|---|
| q_u, q_e, q_s | `user_rate`, `entity_rate`, `other_rate` of `UsersAndEntities` |
| U^t, E^t | the users and the entities of one draw |
| S_u^t | a drawn user's rows that contain a drawn entity |
| S-bar_u^t | those of a drawn user's rows without any listed entity that are taken |
| f_E, f_E+ | `other_rate` 0, above 0 |

We draw the entities once per step (section 4.1, f(U^t, E^t)), not inside the loop over users (line 10): drawn for each
user anew, an entity would be in nearly every step, which nobody priced. A row is taken once, however many drawn
entities it contains; the paper adds its gradient again for each, with weights w_e, then clips the user's sum.

G1 (sensitivity). With its secrets blanked a row moves each private sum by at most C, and each of its own states that
   leave a private segment by at most C, rounding included; what is not finite counts as zero.
G2 (nothing else). All the rest is a function of public tokens, of marks, and of those sums and states with their noise.
   So public updates do depend on secrets, through both; that is what the queries pay for.
G3 (as priced). A row with more private segments than `queries` pays for is refused before any update.
G4 (exact). Gradients and states are those of a loop over single rows (dropout in public segments excepted).
G5 (coins). In each draw every user and every listed entity has one coin of its own, independent of all others and of
   all other draws. An entity's coin is the same for all users.
G6 (rows). A row of a drawn user is taken exactly if one of its entities was drawn; a row without listed entities, by a
   coin of its own. No row of another user is taken. There is exactly one batch, even if empty.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.data.batches import RowReader, TextBatch, wide
from tacit.errors import ConfigError, ModelError
from tacit.mechanisms.settings import AS_PRINTED
from tacit.models.lstm import LSTM, LSTMLayer, LSTMModule
from tacit.privacy.plan import Pool, SplitBatch, Step, UsersAndEntities
from tacit.training.gradients.clipped import MARGIN, Flat, clipped_sum, plain_sum
from tacit.training.optimizers import Optimizer
from tacit.training.pools import DrawnUnits, RowEntities, RowNumbers, Sampler, Units, bernoulli_positions
from tacit.training.randomness import NoiseStream, Streams
from tacit.training.updates import Done, Updates, next_noise

MarkedTokens = tuple[Sequence[int], Sequence[bool]]  # tokens, and which of them are private
Apply = Callable[[dict[str, Tensor]], None]  # one step along gradients, by parameter name


@dataclass(slots=True)
class PrintedFacts:
    """What one batch did. All but `non_finite` is a function of draw and marks, and of updates paid for."""

    rows: int
    public_updates: int = 0
    private_updates: int = 0  # the mean over all batches is the mechanism's `events_per_batch`
    public_positions: int = 0
    public_loss: float = 0.0  # summed over them, in nats
    non_finite: int = 0  # private gradients that counted as zero; stays private


def alternating_segments(private: Sequence[bool]) -> list[range]:
    """Positions of a row, public and private segments in turn: even ones are public; the first of them may be empty."""
    hidden = [bool(read or predicted) for read, predicted in pairwise(private)]
    segments, start = [range(0)] if hidden[:1] == [True] else [], 0
    for _, members in groupby(hidden):
        end = start + len(list(members))
        segments.append(range(start, end))
        start = end
    return segments


def private_segments(private: Sequence[bool]) -> int:
    """How many private segments a row has: `segments_per_record` must be the largest of all rows."""
    return len(alternating_segments(private)) // 2


def update_by_records(updates: Updates, step: Step, update: SplitBatch, drawn: DrawnUnits, streams: Streams) -> Done:
    """CADP-LM: the flagged records of a batch with noise, then the others of the same batch exactly."""
    flagged = np.isin(drawn.rows, updates.pools.rows(Pool.FLAGGED))
    rule, done = _printed_rule(updates), Done(0)
    if flagged.any():
        done += updates.noisy(step, update, drawn.rows[flagged], streams, rule)
    if not flagged.all():
        done += updates.plain(step, drawn.rows[~flagged], rule)
    return done


def update_by_segments(updates: Updates, step: Step, update: SplitBatch, drawn: DrawnUnits, streams: Streams) -> Done:
    """Selective-DPSGD."""
    learner, reader = updates.learner, updates.reader
    if not isinstance(learner, LSTM) or not isinstance(reader, RowReader):
        raise ConfigError("the lstm, whose states Algorithm 1 noises", "another model", "model: lstm")
    rule = _printed_rule(updates)
    updates.group.barrier()  # nothing is summed here: the charge comes first all the same
    facts = printed_update(
        learner,
        [reader.marked(int(row)) for row in drawn.rows],
        update,
        next_noise(streams),
        lambda gradients: rule.apply(updates.parameters, gradients),
        updates.settings.noised_states,
    )
    loss = facts.public_loss / max(facts.public_positions, 1)
    private = {"drawn": facts.rows, "private_updates": facts.private_updates, "non_finite": facts.non_finite}
    return Done(facts.public_positions, loss, private)


def _printed_rule(updates: Updates) -> Optimizer:
    """As both papers print it: SGD, with one rate for both kinds of gradient; it keeps nothing between draws."""
    return Optimizer(replace(AS_PRINTED, learning_rate=updates.settings.private.learning_rate), 1)


def printed_update(
    learner: LSTM,
    rows: Sequence[MarkedTokens],
    update: SplitBatch,
    noise: NoiseStream,
    apply: Apply,
    noised_states: int,
) -> PrintedFacts:
    """All updates of one drawn batch. `noise` is of this batch alone; `apply` moves the learner's parameters.

    noised_states: those that leave a private segment, two for every layer; with 0 states are reset to zero instead.
    """
    _require(learner, rows, update, noised_states)
    segments = [alternating_segments(private) for _, private in rows]
    batch = _PrintedBatch(learner.module, len(rows), update, noise, apply, noised_states)
    for turn in range(max(map(len, segments), default=0)):
        found = {row: own[turn] for row, own in enumerate(segments) if turn < len(own) and own[turn]}
        if found:
            chosen = sorted(found, key=lambda row: -len(found[row]))  # in the order of `Batch.micro_batches`
            tokens = [rows[row][0][found[row].start : found[row].stop + 1] for row in chosen]
            update_with = batch.private if turn % 2 else batch.public
            update_with(chosen, tokens)
    return batch.facts


class _PrintedBatch:
    """The states of all rows of a batch, and what was done so far."""

    def __init__(
        self, module: LSTMModule, rows: int, update: SplitBatch, noise: NoiseStream, apply: Apply, noised_states: int
    ) -> None:
        self._module = _FromStates(module)
        self._update, self._noise, self._apply, self._noised_states = update, noise, apply, noised_states
        self._device = module.head.weight.device
        sizes = [size for _, size in module.settings.sizes() for _ in ("hidden state", "cell")]
        self._states = [wide(module.head.weight).new_zeros(rows, size) for size in sizes]
        self.facts = PrintedFacts(rows)

    def public(self, rows: list[int], tokens: list[Sequence[int]]) -> None:
        """The regular update: lines 7 to 9."""
        batch = TextBatch.of_rows(tokens).to(self._device)
        learner = self._reading(rows, batch)
        result = plain_sum(learner, batch)
        self._apply({name: total.div_(result.weight) for name, total in result.sums.items()})
        self._keep(rows, self._module.ended)
        self.facts.public_updates += 1
        self.facts.public_positions += int(result.weight)
        self.facts.public_loss += result.loss

    def private(self, rows: list[int], tokens: list[Sequence[int]]) -> None:
        """The private update, and what leaves it: lines 10 to 23."""
        means = [[1 / (len(row) - 1)] * (len(row) - 1) for row in tokens]
        batch = TextBatch.of_rows(tokens, means).to(self._device)
        learner = self._reading(rows, batch)
        result = clipped_sum(learner, batch, Flat(self._update.clip_norm))
        self._noise.add_(result.sums.values(), self._update.noise_multiplier * result.sensitivity)
        self._apply({name: total.div_(self._update.divisor) for name, total in result.sums.items()})
        self._keep(rows, self._released(self._module.ended))
        self.facts.private_updates += 1
        self.facts.non_finite += result.non_finite

    def _reading(self, rows: list[int], batch: TextBatch) -> LSTM:
        """A learner that reads `batch` from the states of these rows."""
        self._module.begin_at([state[rows] for state in self._states], batch.reach)
        return LSTM(self._module)

    def _keep(self, rows: list[int], states: list[Tensor]) -> None:
        for kept, new in zip(self._states, states, strict=True):
            kept[rows] = new

    def _released(self, states: list[Tensor]) -> list[Tensor]:
        if self._noised_states == 0:
            return [torch.zeros_like(state) for state in states]
        norm = self._update.clip_norm
        clipped = [_clipped(state, norm) for state in states]
        self._noise.add_(clipped, self._update.noise_multiplier * norm)
        return clipped


class _FromStates(LSTMModule):
    """The layers and parameters of an LSTM; it begins at given states, and keeps those that each row ends with.

    The recurrent weight is used through a linear layer, called once per pass on the hidden states one step earlier, so
    that its gradient for each row is known to `clipped_sum`. Those states are computed first, without a graph; the
    gradient through time then flows through a term whose value is zero.
    """

    def __init__(self, module: LSTMModule) -> None:
        with torch.device("meta"):  # nothing is made, nothing drawn: all parts are the other's
            super().__init__(module.settings)
        self.embedding, self.layers, self.head = module.embedding, module.layers, module.head
        self._recurrent = nn.ModuleList(_linear(layer.recurrence.weight) for layer in module.stack())
        self.training = module.training
        self._start: list[Tensor] = []
        self._lengths = torch.empty(0)
        self.ended: list[Tensor] = []

    def begin_at(self, states: list[Tensor], lengths: Tensor) -> None:
        """Where the next pass begins, and after how many steps each row ends."""
        self._start, self._lengths = states, lengths

    def forward(self, tokens: Tensor) -> Tensor:
        values = self._dropped(self._embedded(tokens))
        row, last = torch.arange(len(tokens), device=tokens.device), self._lengths - 1
        self.ended = []
        starts = zip(self._start[::2], self._start[1::2], strict=True)
        for layer, recurrent, start in zip(self.stack(), self._recurrent, starts, strict=True):
            hidden, cells = _recur(layer, recurrent, values, *start)
            self.ended += [wide(state.detach()[row, last]) for state in (hidden, cells)]
            values = self._dropped(hidden)
        logits: Tensor = self.head(values)
        return logits


def _recur(
    layer: LSTMLayer, recurrent: nn.Module, values: Tensor, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor]:
    """(rows, time, hidden) twice: hidden states and cells. The equations are those of models/recurrence.py."""
    projections: Tensor = layer.projection(values)
    earlier = _earlier(layer, projections.detach(), hidden, cell)
    gates = projections + recurrent(earlier)
    transposed = layer.recurrence.weight.detach().t()
    size = layer.recurrence.hidden_size
    states, cells = [], []
    for gate in gates.unbind(1):
        gate = gate + (hidden - hidden.detach()) @ transposed  # zero, but for its gradient
        output, entry, keep = torch.sigmoid(gate[:, : 3 * size]).chunk(3, dim=1)
        cell = keep * cell + entry * torch.tanh(gate[:, 3 * size :])
        hidden = output * torch.tanh(cell)
        states.append(hidden)
        cells.append(cell)
    return torch.stack(states, dim=1), torch.stack(cells, dim=1)


def _earlier(layer: LSTMLayer, projections: Tensor, hidden: Tensor, cell: Tensor) -> Tensor:
    """(rows, time, hidden): the hidden state before each step, without a graph."""
    states = []
    for projection in projections.unbind(1):
        states.append(hidden)
        hidden, cell = layer.recurrence.step(projection, hidden, cell)
    return torch.stack(states, dim=1)


def _linear(weight: nn.Parameter) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = weight
    return linear


def _clipped(states: Tensor, norm: float) -> Tensor:
    """Every row no longer than `norm`, and zero if it is not finite."""
    lengths = states.norm(dim=1, keepdim=True) * (1 + MARGIN)
    return torch.where(lengths.isfinite(), states * (norm / lengths).clamp(max=1.0), 0.0)


def _require(learner: LSTM, rows: Sequence[MarkedTokens], update: SplitBatch, noised_states: int) -> None:
    """Refuse what is not priced, or cannot be done as printed, before anything moves."""
    shape = learner.module.settings
    if update.by != "segments":
        raise ConfigError("a batch split by segments", f"one split by {update.by}", "use the plan of Selective-DPSGD")
    if shape.weight_drop:
        raise ConfigError("an LSTM without weight drop", str(shape.weight_drop), "set weight_drop to 0")
    if noised_states not in (0, 2 * shape.layers):
        raise ConfigError(
            expected=f"{2 * shape.layers} noised states, hidden state and cell of each layer, or 0 to reset them",
            found=str(noised_states),
            way_out="correct `noised_states`, here and in the plan",
        )
    a_segment = 1 + noised_states
    if update.queries % a_segment:
        raise ConfigError(
            expected=f"a plan that pays for {a_segment} queries per private segment",
            found=f"{update.queries} queries per record",
            way_out="give the plan the same `noised_states`",
        )
    priced = update.queries // a_segment
    for index, (tokens, private) in enumerate(rows):
        if len(tokens) != len(private):
            raise ModelError("a mark for every token", f"{len(private)} for {len(tokens)}", "correct the marks")
        segments = private_segments(private)
        if segments > priced:
            raise ConfigError(
                expected=f"records of at most {priced} private segments, as priced",
                found=f"{segments} in row {index} of the batch",
                way_out=f"plan with segments_per_record of {segments} or more, or cut the records",
            )


class PairSampler(Sampler):
    """Each user with the rows that the drawn entities leave."""

    def __init__(self, users: Units, entities: RowEntities, rates: UsersAndEntities) -> None:
        if not (0 < rates.user_rate <= 1 and 0 < rates.entity_rate <= 1 and 0 <= rates.other_rate <= 1):
            raise ConfigError(
                expected="rates of users and entities in (0, 1], and of rows without entities in [0, 1]",
                found=f"{rates.user_rate}, {rates.entity_rate} and {rates.other_rate}",
                way_out="give the public rates that were priced",
            )
        self._users = users
        self._entities = entities
        self._rates = rates

    def draw(self, generator: np.random.Generator) -> Iterator[DrawnUnits]:
        users = bernoulli_positions(len(self._users), self._rates.user_rate, generator)
        entities = bernoulli_positions(self._entities.count, self._rates.entity_rate, generator)
        rows = np.concatenate((np.empty(0, np.int64), *self._users.rows_of(users)))
        kept = self._kept(rows, entities, generator)
        owners = np.repeat(np.arange(len(users)), self._users.sizes(users))[kept]
        sizes = np.bincount(owners, minlength=len(users))
        yield DrawnUnits(rows[kept], np.concatenate(([0], np.cumsum(sizes[sizes > 0]))))

    def _kept(self, rows: RowNumbers, drawn: RowNumbers, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
        starts = self._entities.offsets[rows]
        counts = self._entities.offsets[rows + 1] - starts
        row_of_each = np.repeat(np.arange(len(rows)), counts)
        first = np.cumsum(counts) - counts
        ids = self._entities.ids[np.arange(len(row_of_each)) + (starts - first)[row_of_each]]
        kept = np.zeros(len(rows), dtype=np.bool_)
        kept[row_of_each[np.isin(ids, drawn, kind="sort")]] = True
        if self._rates.other_rate > 0:
            others = np.flatnonzero(counts == 0)
            kept[others[bernoulli_positions(len(others), self._rates.other_rate, generator)]] = True
        return kept
