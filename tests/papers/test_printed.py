"""Algorithm 1 as printed against a loop over single rows; what one row can move; what noise hides and what not."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from oracles import LONGER, ROUNDED, in_float64, research_noise
from tacit.config.model_schema import LSTMConfig
from tacit.errors import ConfigError, ModelError
from tacit.models.lstm import LSTM
from tacit.papers.algorithms import MarkedTokens, PrintedFacts, alternating_segments, printed_update, private_segments
from tacit.privacy.plan import SplitBatch
from tacit.training.randomness import NoiseStream

VOCABULARY = 11
RATE = 0.5
LARGE = 1e6  # a norm that clips nothing


def lstm(layers: int = 1, tied: bool = False, seed: int = 0, dropout: float = 0.0, scale: float = 4.0) -> LSTM:
    torch.manual_seed(seed)
    model = LSTM.new(LSTMConfig(VOCABULARY, 5, 6, layers=layers, tied=tied, dropout=dropout))
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.mul_(scale)  # states far from zero
    return model


def row(marks: str, seed: int = 0) -> MarkedTokens:
    """Random tokens; `x` is private."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (len(marks),), generator=generator).tolist()
    return tokens, [mark == "x" for mark in marks]


def split(
    sigma: float = 0.0, clip: float = 1.0, divisor: float = 3.0, segments: int = 9, states: int = 2
) -> SplitBatch:
    return SplitBatch(sigma, clip, divisor, "segments", segments * (1 + states))


def weights_of(model: LSTM) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.module.named_parameters()}


@dataclass
class Steps:
    """Plain SGD on a model that remembers every gradient."""

    model: LSTM
    seen: list[dict[str, Tensor]] = field(default_factory=list)

    @torch.no_grad()
    def __call__(self, gradients: dict[str, Tensor]) -> None:
        self.seen.append({name: value.clone() for name, value in gradients.items()})
        for name, parameter in self.model.module.named_parameters():
            parameter.sub_(RATE * gradients[name])


class Watched(NoiseStream):
    """Remembers what noise was added to, and its deviation."""

    def __init__(self) -> None:
        super().__init__(b"watched", 0)
        self.calls: list[tuple[list[Tensor], float]] = []

    def add_(self, tensors: Iterable[Tensor], deviation: float) -> None:
        given = list(tensors)
        self.calls.append(([tensor.clone() for tensor in given], deviation))
        super().add_(given, deviation)

    def sums(self) -> list[Tensor]:
        """Each private sum as one vector."""
        return [torch.cat([part.flatten() for part in parts]) for parts, _ in self.calls[::2]]

    def states(self) -> list[list[Tensor]]:
        """After each private segment, hidden state and cell of each layer, (rows, size)."""
        return [parts for parts, _ in self.calls[1::2]]


class InFloat64(NoiseStream):
    """The noise of float32 sums for sums in float64 too."""

    def add_(self, tensors: Iterable[Tensor], deviation: float) -> None:
        given = list(tensors)
        noise = [torch.zeros(tensor.shape) for tensor in given]
        super().add_(noise, deviation)
        for tensor, added in zip(given, noise, strict=True):
            tensor.add_(added)


def run(
    model: LSTM,
    rows: Sequence[MarkedTokens],
    update: SplitBatch,
    noise: NoiseStream | None = None,
    chosen: int | None = None,
) -> tuple[PrintedFacts, list[dict[str, Tensor]]]:
    steps = Steps(model)
    chosen = 2 * model.module.settings.layers if chosen is None else chosen
    facts = printed_update(model, rows, update, noise or research_noise(5), steps, chosen)
    return facts, steps.seen


# The slow twin: one row and one position at a time, the equations written out, gradients by autograd.

State = list[tuple[Tensor, Tensor]]  # hidden state and cell of each layer, (size,)


def slow_position(weights: dict[str, Tensor], token: int, state: State, tied: bool) -> tuple[Tensor, State]:
    value = weights["embedding.weight"][token]
    after = []
    for index, (hidden, cell) in enumerate(state):
        name = f"layers.{index}."
        gates = weights[name + "projection.weight"] @ value + weights[name + "projection.bias"]
        output, entry, keep, new = (gates + weights[name + "recurrence.weight"] @ hidden).chunk(4)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(entry) * torch.tanh(new)
        value = torch.sigmoid(output) * torch.tanh(cell)
        after.append((value, cell))
    head = weights["embedding.weight" if tied else "head.weight"]
    return head @ value + weights["head.bias"], after


def slow_segment(
    weights: dict[str, Tensor], tokens: Sequence[int], segment: list[int], state: State, tied: bool
) -> tuple[Tensor, State]:
    """Summed loss of a segment, and the state behind it without its graph."""
    total = torch.zeros(())
    for position in segment:
        logits, state = slow_position(weights, tokens[position], state, tied)
        total = total + functional.cross_entropy(logits[None], torch.tensor([tokens[position + 1]]))
    return total, [(hidden.detach(), cell.detach()) for hidden, cell in state]


def slow_segments(private: Sequence[bool]) -> list[list[int]]:
    """Walk through the positions; a position is private if its token or the next one is."""
    found: list[list[int]] = [[]]
    for position in range(len(private) - 1):
        is_private = private[position] or private[position + 1]
        if is_private != (len(found) % 2 == 0):
            found.append([])
        found[-1].append(position)
    return found if found != [[]] else []


def slow_gradient(loss: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(zip(weights, torch.autograd.grad(loss, list(weights.values()), materialize_grads=True), strict=True))


def slow_update(
    start: dict[str, Tensor],
    rows: Sequence[MarkedTokens],
    update: SplitBatch,
    sizes: Sequence[int],
    noise: NoiseStream,
    tied: bool,
) -> dict[str, Tensor]:
    """The weights after one batch."""
    weights = {name: value.clone().requires_grad_() for name, value in start.items()}
    empty = weights["head.bias"].detach().new_zeros
    states: list[State] = [[(empty(size), empty(size)) for size in sizes] for _ in rows]
    segments = [slow_segments(private) for _, private in rows]
    for turn in range(max(map(len, segments), default=0)):
        here = [index for index, own in enumerate(segments) if turn < len(own) and own[turn]]
        here.sort(key=lambda index: len(segments[index][turn]), reverse=True)
        if not here:
            continue
        results = {i: slow_segment(weights, rows[i][0], segments[i][turn], states[i], tied) for i in here}
        lengths = {index: len(segments[index][turn]) for index in here}
        if turn % 2 == 0:
            losses = [loss for loss, _ in results.values()]
            gradient = slow_gradient(torch.stack(losses).sum() / sum(lengths.values()), weights)
        else:
            gradient = {name: torch.zeros_like(value) for name, value in start.items()}
            for index in here:
                own = slow_gradient(results[index][0] / lengths[index], weights)
                norm = math.sqrt(sum(float(value.square().sum()) for value in own.values()))
                for name in gradient:
                    gradient[name] += own[name] / max(1.0, LONGER * norm / update.clip_norm)
            noise.add_(gradient.values(), update.noise_multiplier * update.clip_norm)
            gradient = {name: value / update.divisor for name, value in gradient.items()}
        with torch.no_grad():
            weights = {name: (value - RATE * gradient[name]).requires_grad_() for name, value in weights.items()}
        for index in here:
            states[index] = results[index][1]
        if turn % 2 == 1:
            flat = [
                torch.stack([_shortened(states[index][layer][part], update.clip_norm) for index in here])
                for layer in range(len(sizes))
                for part in range(2)
            ]
            noise.add_(flat, update.noise_multiplier * update.clip_norm)
            for place, index in enumerate(here):
                states[index] = [(flat[2 * layer][place], flat[2 * layer + 1][place]) for layer in range(len(sizes))]
    return {name: value.detach() for name, value in weights.items()}


def _shortened(state: Tensor, norm: float) -> Tensor:
    return state / max(1.0, LONGER * float(state.norm()) / norm)


def compare_with_slow(model: LSTM, rows: Sequence[MarkedTokens], update: SplitBatch) -> None:
    shape = model.module.settings
    sizes = [size for _, size in shape.sizes()]
    precise = in_float64(model)  # up to loss weights, which are float32: a third, say
    before = weights_of(precise)
    expected = slow_update(before, rows, update, sizes, InFloat64(b"same", 0), tied=shape.tied)
    for twin, tolerance in ((precise, 1e-7), (model, ROUNDED)):
        run(twin, rows, update, InFloat64(b"same", 0), 2 * shape.layers)
        for name, value in weights_of(twin).items():
            largest = float(torch.maximum(before[name].abs(), expected[name].abs()).amax())  # a bias begins at zero
            assert torch.allclose(value.double(), expected[name], rtol=tolerance, atol=tolerance * largest), name


MIXED = ("..xx...x.", "x..xx", "....", "xxxx", "...x", ".x.x...xx..x", "..")


@pytest.mark.parametrize("clip", [LARGE, 0.05])
@pytest.mark.parametrize("sigma", [0.0, 0.7])
@pytest.mark.parametrize(("layers", "tied"), [(1, False), (2, True)])
def test_g4_equals_a_loop_over_single_rows(clip: float, sigma: float, layers: int, tied: bool) -> None:
    if sigma and clip == LARGE:
        sigma = 1e-7  # noise of .1
    update = split(sigma, clip, states=2 * layers)
    rows = [row(marks, seed) for seed, marks in enumerate(MIXED)]
    compare_with_slow(lstm(layers, tied), rows, update)


@settings(max_examples=25)
@given(st.lists(st.text("x.", max_size=9), max_size=4), st.sampled_from([0.0, 0.5]), st.sampled_from([0.1, 5.0]))
def test_g4_equals_a_loop_over_single_rows_for_all_marks(marks: list[str], sigma: float, norm: float) -> None:
    rows = [row(own, seed) for seed, own in enumerate(marks)]
    compare_with_slow(lstm(), rows, split(sigma, norm))


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("", []),
        (".", []),
        ("x", []),
        ("...", [range(2)]),  # all public
        ("xxx", [range(0), range(2)]),  # all private: nothing public before it
        ("...x..", [range(2), range(2, 4), range(4, 5)]),  # one token early; its last state predicts a public token
        ("x...", [range(0), range(1), range(1, 3)]),  # a secret at the first token
        (".x", [range(0), range(1)]),  # the first position predicts a secret
        ("...x", [range(2), range(2, 3)]),  # a secret at the last token
        (".xx.xx..", [range(0), range(6), range(6, 7)]),  # one public token between secrets leaves no public position
        ("..x..x", [range(1), range(1, 3), range(3, 4), range(4, 5)]),  # two leave one
    ],
)
def test_segments(marks: str, expected: list[range]) -> None:
    private = row(marks)[1]
    assert alternating_segments(private) == expected
    assert private_segments(private) == len(expected) // 2


@given(st.lists(st.booleans(), max_size=30))
def test_segments_alternate_and_cover(private: list[bool]) -> None:
    segments = alternating_segments(private)
    assert [list(segment) for segment in segments] == slow_segments(private)
    assert [position for segment in segments for position in segment] == list(range(len(private) - 1))
    for index, segment in enumerate(segments):
        assert len(segment) or index == 0
        for position in segment:
            assert (private[position] or private[position + 1]) == (index % 2 == 1)


def test_facts_count_what_accounting_needs() -> None:
    facts, applied = run(lstm(), [row(marks, seed) for seed, marks in enumerate(MIXED)], split())
    segments = [slow_segments(row(marks)[1]) for marks in MIXED]
    assert facts.rows == len(MIXED)
    assert max(len(own) // 2 for own in segments) == 3
    assert facts.private_updates == 3
    assert facts.public_updates == 3
    assert len(applied) == facts.private_updates + facts.public_updates
    assert facts.public_positions == sum(len(part) for own in segments for part in own[::2])
    assert facts.non_finite == 0


def test_public_loss_is_that_of_a_plain_reading() -> None:
    model = lstm()
    tokens, private = row("......")
    state: State = [(torch.zeros(6), torch.zeros(6))]
    expected, _ = slow_segment(weights_of(model), tokens, list(range(5)), state, tied=False)
    facts, _ = run(model, [(tokens, private)], split())
    assert facts.public_loss == pytest.approx(float(expected), rel=1e-5)


def test_an_empty_batch_does_nothing() -> None:
    for rows in ([], [row(""), row("x")]):
        noise = Watched()
        facts, applied = run(lstm(), rows, split(1.0), noise)
        assert applied == []
        assert noise._draws == 0
        assert facts == PrintedFacts(len(rows), 0, 0, 0, 0.0, 0)


def test_public_rows_get_no_noise_and_private_rows_no_public_update() -> None:
    noise = Watched()
    facts, _ = run(lstm(), [row("....")], split(1.0), noise)
    assert (facts.public_updates, facts.private_updates, noise._draws) == (1, 0, 0)
    facts, _ = run(lstm(), [row("xxxx")], split(1.0), noise)
    assert (facts.public_updates, facts.private_updates, noise._draws) == (0, 1, 2)


def test_the_private_sum_is_divided_by_the_plans_constant() -> None:
    noise = Watched()
    _, applied = run(lstm(), [row("xxxx"), row("xxx")], split(0.0, 0.1, divisor=7.0), noise)
    together = torch.cat([value.flatten() for value in applied[0].values()])
    assert torch.allclose(together, noise.sums()[0] / 7.0)


HARD = {
    "plain": ("head.weight", 1.0),
    "steep": ("head.weight", 1e4),
    "huge": ("embedding.weight", 1e6),
    "infinite": ("head.weight", math.inf),
    "nan": ("embedding.weight", math.nan),
}


@pytest.mark.parametrize(("name", "factor"), HARD.values(), ids=HARD)
@pytest.mark.parametrize("clip", [1e-3, 1.0, 50.0])
def test_g1_one_row_moves_sums_and_states_by_at_most_their_norms(name: str, factor: float, clip: float) -> None:
    for seed in range(4):
        sums, states = [], []
        for rows in ([row("xxxxx", seed)], [row("xxxxx", seed), row("xx.xxx", seed + 9)]):
            model = lstm(seed=seed)
            model.module.get_parameter(name).data.mul_(factor)
            noise = Watched()
            run(model, rows, split(0.0, clip), noise)
            sums.append(noise.sums()[0])
            states.append(noise.states()[0])
        assert float((sums[1] - sums[0]).norm()) <= clip * (1 + 1e-4)
        for state in states[1]:
            assert state.isfinite().all()
            assert (state.norm(dim=1) <= clip).all()


def test_g1_clipping_is_tight() -> None:
    """A bound that is never reached would not show that anything was clipped."""
    noise = Watched()
    run(lstm(), [row("xxxxx")], split(0.0, 1e-2), noise)
    assert float(noise.sums()[0].norm()) == pytest.approx(1e-2 / LONGER, rel=1e-4)
    assert [float(state.norm()) for state in noise.states()[0]] == pytest.approx([1e-2 / LONGER] * 2, rel=1e-4)


def test_g1_holds_for_each_segment_of_a_row() -> None:
    noise = Watched()
    facts, _ = run(lstm(), [row("..x...x..xx..x")], split(0.0, 1e-2), noise)
    assert facts.private_updates == len(noise.sums()) == 4
    assert all(float(one.norm()) <= 1e-2 * (1 + 1e-4) for one in noise.sums())


def test_rows_that_are_not_finite_are_counted() -> None:
    model = lstm()
    model.module.embedding.weight.data[3] = float("nan")
    rows: list[MarkedTokens] = [([3, 3, 3], [True] * 3), ([1, 2, 1], [True] * 3)]
    noise = Watched()
    facts, applied = run(model, rows, split(), noise)
    assert facts.non_finite == 1
    assert all(value.isfinite().all() for value in applied[0].values())
    assert [state[0].abs().amax() == 0 for state in noise.states()[0]] == [True, True]


def test_deviations_are_sigma_times_the_norm() -> None:
    noise = Watched()
    run(lstm(), [row("..xx..x")], split(0.7, 0.2), noise, 2)
    assert [deviation for _, deviation in noise.calls] == pytest.approx([0.14] * 4)  # one C, as printed


@pytest.mark.statistical
def test_noise_has_the_variance_that_is_priced() -> None:
    """Sums over n numbers: their mean square is within five deviations of (sigma C / divisor)^2; false alarm 6e-7."""
    sigma, clip, divisor = 400.0, 1e-3, 3.0
    numbers = []
    for seed in range(10):
        _, applied = run(lstm(), [row("xxxx")], split(sigma, clip, divisor), research_noise(seed))
        numbers += [value.flatten() for value in applied[0].values()]
    found = torch.cat(numbers).double()
    expected = (sigma * clip / divisor) ** 2
    slack = 5 * math.sqrt(2 / len(found))
    assert abs(float(found.square().mean()) / expected - 1) < slack
    wrong = (sigma**2 * clip / divisor) ** 2
    assert abs(float(found.square().mean()) / wrong - 1) > slack


PUBLIC_AROUND = "....xxx....xx..."


def other_secrets(marked: MarkedTokens) -> MarkedTokens:
    tokens = [(token + 3) % VOCABULARY if secret else token for token, secret in zip(*marked, strict=True)]
    return tokens, marked[1]


def updates_of(marked: MarkedTokens, update: SplitBatch, chosen: int) -> list[Tensor]:
    _, applied = run(lstm(), [marked], update, chosen=chosen)
    return [torch.cat([value.flatten() for value in gradients.values()]) for gradients in applied]


def test_g2_what_is_clipped_away_and_noised_reaches_nothing() -> None:
    """Norms of 1e-12 under noise of .1: in float32 no bit of a secret survives, in any update."""
    update = split(1e11, 1e-12)
    first = updates_of(row(PUBLIC_AROUND), update, 2)
    second = updates_of(other_secrets(row(PUBLIC_AROUND)), update, 2)
    assert len(first) == 5
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_g2_reset_states_and_no_gradient_reach_nothing() -> None:
    update = SplitBatch(1e11, 1e-12, 3.0, "segments", 2)
    reset = 0
    first = updates_of(row(PUBLIC_AROUND), update, reset)
    second = updates_of(other_secrets(row(PUBLIC_AROUND)), update, reset)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_g2_public_updates_show_secrets_through_states_and_through_sums() -> None:
    """The two ways that are paid for, each opened alone; what stands before the first secret is the same."""
    through_states = SplitBatch(0.0, LARGE, 1e12, "segments", 27), 2  # sums are divided away
    through_sums = SplitBatch(0.0, LARGE, 3.0, "segments", 9), 0
    for update, chosen in (through_states, through_sums):
        first = updates_of(row(PUBLIC_AROUND), update, chosen)
        second = updates_of(other_secrets(row(PUBLIC_AROUND)), update, chosen)
        assert torch.equal(first[0], second[0])
        assert not torch.allclose(first[2], second[2], rtol=1e-3)


def test_states_are_carried_and_reset() -> None:
    """Without a reset the public text before a secret matters behind it; after a reset it does not."""
    marks = "....xx...."
    tokens, private = row(marks)
    begun_otherwise = [(token + 1) % VOCABULARY for token in tokens[:4]] + list(tokens[4:])
    frozen = SplitBatch(0.0, LARGE, 1e12, "segments", 9)

    def last_update(own: Sequence[int], chosen: int) -> Tensor:
        gradients: list[dict[str, Tensor]] = []
        printed_update(lstm(), [(own, private)], frozen, research_noise(5), gradients.append, chosen)
        return torch.cat([value.flatten() for value in gradients[-1].values()])

    carried = 2
    assert not torch.allclose(last_update(tokens, carried), last_update(begun_otherwise, carried), rtol=1e-3)
    reset = 0
    assert torch.equal(last_update(tokens, reset), last_update(begun_otherwise, reset))


def test_g3_more_segments_than_were_priced_are_refused_before_any_update() -> None:
    model = lstm()
    before = weights_of(model)
    noise = Watched()
    rows = [row("....."), row("..x..x..x")]
    with pytest.raises(ConfigError, match=r"at most 2 private segments.*3 in row 1.*segments_per_record of 3"):
        run(model, rows, split(segments=2), noise)
    assert noise._draws == 0
    assert all(torch.equal(value, before[name]) for name, value in weights_of(model).items())
    run(model, rows, split(segments=3), noise)


def test_what_does_not_fit_the_price_is_refused() -> None:
    rows = [row("..x..")]
    with pytest.raises(ConfigError, match="split by records"):
        run(lstm(), rows, SplitBatch(1.0, 1.0, 3.0, "records", 3))
    with pytest.raises(ConfigError, match="4 noised states"):
        run(lstm(layers=2), rows, split(states=4), chosen=2)
    with pytest.raises(ConfigError, match="3 queries per private segment"):
        run(lstm(), rows, SplitBatch(1.0, 1.0, 3.0, "segments", 4))
    with pytest.raises(ConfigError, match="weight drop"):
        run(LSTM.new(LSTMConfig(VOCABULARY, 5, 6, weight_drop=0.5)), rows, split())
    with pytest.raises(ModelError, match="a mark for every token"):
        run(lstm(), [([1, 2, 3], [False, True])], split())


def test_the_model_is_left_as_it_was() -> None:
    model = lstm(layers=2, tied=True, dropout=0.3)
    names = list(model.module.state_dict())
    torch.manual_seed(1)
    state = torch.get_rng_state()
    _ = model.module.eval()
    run(model, [row("..xx..")], split(states=4))
    assert torch.equal(torch.get_rng_state(), state)  # no dropout, so nothing else may draw
    assert list(model.module.state_dict()) == names
    assert not any(part.training for part in model.module.modules())
    for parameter in model.module.parameters():
        assert parameter.requires_grad
        assert parameter.grad is None
        assert not parameter.is_meta


def test_dropout_is_drawn_for_public_segments_alone() -> None:
    def applied(marks: str, training: bool) -> list[dict[str, Tensor]]:
        model = lstm(dropout=0.5)
        model.module.train(training)
        torch.manual_seed(1)
        return run(model, [row(marks)], split())[1]

    for marks, is_same in (("....xx....", False), ("xxxx", True)):
        pairs = zip(applied(marks, training=True), applied(marks, training=False), strict=True)
        assert all(torch.allclose(one["head.weight"], two["head.weight"]) == is_same for one, two in pairs)
