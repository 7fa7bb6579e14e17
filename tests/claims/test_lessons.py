"""Mistakes that made other tools' guarantees or gradients wrong, each tried on the trainer as a whole.

Each docstring names the mistake. Most of them have closer tests beside the part they belong to (sampling, gradients,
accounting, ledger, run); here the parts are put together, where such mistakes were made.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from marking import prepare
from runs import recorded
from tacit.common.progress import Progress
from tacit.common.serialize import from_json
from tacit.config.load import load_config
from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig, OptimizerConfig
from tacit.data.batches import RowReader, TextBatch
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record, Span
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ClaimRefused, GradientError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.policies.patterns import Gold
from tacit.privacy.account import account
from tacit.privacy.events import SampledGaussian
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import read_entries
from tacit.privacy.plan import (
    Neighbors,
    Noisy,
    Phase,
    Plan,
    PoissonRecords,
    Pool,
    ShuffledBatch,
    Step,
    Targets,
    Unit,
    View,
    cost,
)
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.simulation.simulate import simulate
from tacit.training.gradients.clipped import Automatic, Clipping, Flat, PerParameter, clipped_sum
from tacit.training.pools import Annotation, Pools
from tacit.training.randomness import NoiseStream, Streams
from tacit.training.stages import train
from tacit.training.trainer import Trainer, TrainSettings
from tacit.training.updates import UpdateSettings

RECORDS = 40
AS_IT_IS = OptimizerConfig("sgd", 1.0, lr_scheduler="none")
NOTION = Neighbors(Unit.RECORD)


def _records() -> Iterator[Record]:
    for number in range(RECORDS):
        secret = f"secret {number * 7919}"
        text = f"my code is {secret}, thanks" + " for asking" * (number % 4)
        yield Record(f"r{number}", text, spans=(Span(11, 11 + len(secret), "CODE"),))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return prepare(_records(), Gold(), byte_tokenizer(), tmp_path_factory.mktemp("lessons") / "store")


def tiny_lstm() -> LSTM:
    torch.manual_seed(0)
    return LSTM.new(LSTMConfig(byte_tokenizer().vocabulary_size, 8, 8, dropout=0.0))


def tied_lstm() -> LSTM:
    torch.manual_seed(0)
    return LSTM.new(LSTMConfig(byte_tokenizer().vocabulary_size, 8, 8, dropout=0.0, tied=True))


def tiny_gpt() -> CausalLM:
    torch.manual_seed(0)
    return CausalLM.new(
        CausalLMConfig(byte_tokenizer().vocabulary_size, width=8, layers=1, heads=2, context=80, dropout=0.0)
    )


def adapted_gpt() -> CausalLM:
    torch.manual_seed(0)
    settings = CausalLMConfig(byte_tokenizer().vocabulary_size, width=8, layers=1, heads=2, context=80, dropout=0.0)
    return CausalLM.new(settings, LoRAConfig(rank=2))


def private_step(rate: float, noise: float = 1.0, clip_norm: float = 1.0) -> Step:
    draw, update = PoissonRecords(rate), Noisy(noise, clip_norm, rate * RECORDS)
    return Step("private", View.FULL, Pool.EVERY, draw, update, "private")


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """What a run of private steps leaves behind."""

    moves: list[dict[str, Tensor]]  # of each step, by parameter
    log: list[dict[str, float]]
    progress: list[Progress]
    folder: Path


def run_of(
    step: Step, times: int, store: PreparedCorpus, folder: Path, learner: Learner, positions: int | None = None
) -> Ended:
    """The trainer on `times` executions of one step."""
    plan, moves, seen = Plan((Phase(((step, times),)),)), [], []

    def values() -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in learner.module.named_parameters()}

    before = values()

    def observe(progress: Progress) -> None:
        nonlocal before
        after = values()
        moves.append({name: after[name] - before[name] for name in after})
        seen.append(progress)
        before = after

    with RunFolder.create(folder) as run:
        run.ledger.declare(step.name, {str(NOTION): cost(step, NOTION)})
        reader, pools = RowReader(store, byte_tokenizer().end, 80), Pools(Annotation.of(store))
        settings = TrainSettings(UpdateSettings(private=AS_IT_IS, positions=positions))
        trainer = Trainer(run, learner, plan, reader, pools, settings)
        trainer.train(Streams.research(3), observe)
        log = recorded(run)
    return Ended(moves, log, seen, folder)


def length_of(tensors: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in tensors))


def distance(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return length_of(ours[name] - theirs[name] for name in ours)


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoiseStream, "add_", lambda stream, sums, deviation: None)


# Section A: the stated epsilon was not what the code gave


@pytest.mark.statistical
def test_draws_that_are_priced_as_poisson_are_poisson(store: PreparedCorpus, tmp_path: Path) -> None:
    """Mistake: shuffled batches of a fixed size, priced as Poisson draws.

    Sizes of 80 draws against the binomial law, its mean and its variance; false alarm 2e-6. Control: a fixed size.
    """
    rate, times = 0.2, 80
    sizes = np.array(
        [line["drawn"] for line in run_of(private_step(rate), times, store, tmp_path / "r", tiny_lstm()).log]
    )

    def plausible(found: np.ndarray) -> bool:
        law = stats.binom(RECORDS * times, rate)
        spread = float(((found - rate * RECORDS) ** 2).sum() / (RECORDS * rate * (1 - rate)))
        return bool(
            law.ppf(5e-7) <= found.sum() <= law.ppf(1 - 5e-7)
            and stats.chi2.ppf(5e-7, times) * 0.9 <= spread <= stats.chi2.ppf(1 - 5e-7, times) * 1.1
        )

    assert plausible(sizes)
    assert not plausible(np.full(times, round(rate * RECORDS)))


def test_a_noisy_step_on_shuffled_batches_has_no_price() -> None:
    """Mistake: amplification by sampling claimed for batches that are cut from a shuffled pass."""
    step = Step("private", View.FULL, Pool.EVERY, ShuffledBatch(8), Noisy(1.0, 1.0, 8.0), "private")
    with pytest.raises(ClaimRefused):
        cost(step, NOTION)


def test_the_divisor_is_the_public_constant_whatever_was_drawn(
    store: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistake: a mean over the drawn batch, or over the true number of records, which tells that number."""
    lengths: list[float] = []
    monkeypatch.setattr(NoiseStream, "add_", lambda stream, sums, deviation: lengths.append(length_of(sums)))
    ended = run_of(private_step(0.2), 6, store, tmp_path / "run", tiny_lstm())
    assert len({line["drawn"] for line in ended.log}) > 2
    moved = [length_of(moves.values()) for moves in ended.moves]
    assert moved == pytest.approx([length / (0.2 * RECORDS) for length in lengths], rel=1e-4)


def test_an_empty_draw_is_a_step_like_any_other(store: PreparedCorpus, tmp_path: Path) -> None:
    """Mistake: steps with nobody in them are skipped, so that whoever sees a step knows that somebody was drawn."""
    ended = run_of(private_step(1e-9), 3, store, tmp_path / "run", tiny_lstm())
    assert [line["drawn"] for line in ended.log] == [0, 0, 0]
    assert all(bool((move != 0).any()) for moves in ended.moves for move in moves.values())
    assert read_entries(tmp_path / "run" / "release" / ReleaseFile.LEDGER).charges() == {"private": 3}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lessons") / "corpus.jsonl"
    write_jsonl(simulate("customersim", 50), path)
    return path


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Guarantee, list[Progress], Path]:
    """A run that was asked for epsilon 3."""
    folder = tmp_path_factory.mktemp("lessons") / "run"
    seen: list[Progress] = []
    plan = {"mechanism": "selective", "epsilon": 3.0, "steps": 6, "expected_batch_size": 8, "public_epochs": 1}
    words = {"corpus": str(corpus), "policy": "gold", "plan": plan, "held_out": 0.2, "max_tokens": 64}
    settings = load_config({**words, "max_full_tokens": 64, "canaries": []})
    return train(settings, folder, seen.append).guarantee, seen, folder


def test_what_was_spent_is_not_above_what_was_asked_for(trained: tuple[Guarantee, list[Progress], Path]) -> None:
    """Mistake: a search for the noise that ends on the wrong side of the target."""
    epsilon = trained[0].figures[0].epsilon
    assert 2.9 < epsilon <= 3.0


def test_one_run_has_one_epsilon(trained: tuple[Guarantee, list[Progress], Path]) -> None:
    """Mistake: two accountants in one tool, whose numbers disagree. Ledger, file and progress say the same."""
    guarantee, seen, folder = trained
    headline = guarantee.figures[0]
    written = from_json(Guarantee, (folder / "release" / ReleaseFile.GUARANTEE).read_bytes())
    spent = read_entries(folder / "release" / ReleaseFile.LEDGER).compositions()
    assert written == guarantee
    for figure in guarantee.figures:
        assert figure.epsilon == account(spent[str(figure.neighbors)]).epsilon(figure.delta)
    shown = [progress.epsilon for progress in seen if progress.epsilon is not None]
    assert shown[-1] == pytest.approx(headline.epsilon, rel=0.005)


def test_the_guarantee_says_whether_tuning_is_covered(trained: tuple[Guarantee, list[Progress], Path]) -> None:
    """Mistake: settings are searched for on protected data, and the epsilon of one training is reported."""
    assert "not covered" in trained[0].evidence.tuning
    assert trained[0].evidence.tuning in (trained[2] / "release" / ReleaseFile.GUARANTEE).read_text()


def test_exact_numbers_of_private_steps_stay_in_the_house(
    store: PreparedCorpus, tmp_path: Path, trained: tuple[Guarantee, list[Progress], Path]
) -> None:
    """Mistake: exact losses, gradient norms and draws of private steps in logs that are shown or published."""
    ended = run_of(private_step(0.2), 3, store, tmp_path / "run", tiny_lstm())
    assert [progress.public_loss for progress in ended.progress] == [None] * 3
    folder = trained[2]
    log = [json.loads(line) for line in (folder / "private" / PrivateFile.STEPS).read_text().splitlines()]
    assert len(log) == 6
    released = b"".join(file.read_bytes() for file in (folder / "release").rglob("*") if file.is_file())
    for word in {key for line in log for key in line} - {"noise"}:
        assert f'"{word}"'.encode() not in released
    for line in log:
        assert not any(repr(line[word]).encode() in released for word in ("loss", "median_norm"))


@pytest.mark.statistical
@pytest.mark.parametrize(("noise", "clip_norm"), [(0.6, 1.0), (1.7, 0.4)])
def test_noise_has_the_deviation_that_the_ledger_prices(
    noise: float, clip_norm: float, store: PreparedCorpus, tmp_path: Path
) -> None:
    """Mistake: sigma squared, or sigma without the clip norm, for the deviation. Nobody is drawn, so moves are noise.

    False alarm 1e-6. Controls: both mistakes would be seen.
    """
    ended = run_of(private_step(1e-9, noise, clip_norm), 4, store, tmp_path / "run", tiny_lstm())
    (event, _), *_ = read_entries(tmp_path / "run" / "release" / ReleaseFile.LEDGER).compositions()[str(NOTION)]
    assert isinstance(event, SampledGaussian)
    numbers = torch.cat([move.flatten() for moves in ended.moves for move in moves.values()]).double()
    numbers *= 1e-9 * RECORDS  # the divisor undone

    def plausible(deviation: float) -> bool:
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], len(numbers))
        return bool(low <= float((numbers / deviation).square().sum()) <= high)

    assert plausible(event.noise_multiplier * clip_norm)
    assert not plausible(event.noise_multiplier**2 * clip_norm)
    assert not plausible(event.noise_multiplier * clip_norm**2) or clip_norm == 1


def test_parts_of_a_draw_are_clipped_record_by_record(
    store: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistake: what fits into memory at a time is clipped as one, which doubles the sensitivity.

    Also: accumulation off by one. However many parts, a draw is one sum, one noise, one update.
    """
    without_noise(monkeypatch)
    ends = {}
    for positions in (1, 100, 100_000):
        ended = run_of(private_step(0.3), 3, store, tmp_path / f"{positions}", tiny_lstm(), positions)
        assert [line["noise"] for line in ended.log] == [0, 1, 2]
        ends[positions] = ended.moves
    for positions in (1, 100):
        for ours, theirs in zip(ends[positions], ends[100_000], strict=True):
            assert distance(ours, theirs) < 1e-5


def test_one_record_moves_a_step_by_at_most_the_clip_norm(
    store: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistake: a sensitivity larger than the one that is priced, on any of the ways from record to update."""
    without_noise(monkeypatch)
    clip_norm = 0.05
    step = private_step(1.0, clip_norm=clip_norm)
    whole = run_of(step, 1, store, tmp_path / "whole", tiny_lstm()).moves[0]
    full = PreparedCorpus.full

    def blanked(self: PreparedCorpus, row: int) -> object:
        found = full(self, row)
        return found._replace(tokens=found.tokens[:0], private=found.private[:0]) if row == 7 else found

    monkeypatch.setattr(PreparedCorpus, "full", blanked)
    other = run_of(step, 1, store, tmp_path / "other", tiny_lstm()).moves[0]
    moved = RECORDS * distance(whole, other)
    assert 0.1 * clip_norm < moved <= 2 * clip_norm * 1.001, "one record became another one: twice the clip norm"


@pytest.mark.parametrize(
    "style", [Flat(0.7), Automatic(0.7), PerParameter(0.7)], ids=lambda style: type(style).__name__
)
def test_clipping_of_a_record_does_not_look_at_others(style: Clipping) -> None:
    """Mistake: a clip norm that follows the data (a quantile of norms) without a price of its own."""
    squares = torch.rand(3, 6, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 3, 6)
    together = style.factors(squares)
    alone = torch.cat([style.factors(squares[:, row : row + 1]) for row in range(6)], dim=1)
    assert torch.equal(together, alone)
    assert style.clip_norm == 0.7


# Section B: gradients that were silently wrong


@pytest.mark.parametrize("make", [tiny_lstm, tied_lstm, tiny_gpt], ids=lambda make: make.__name__)
def test_padding_and_masked_targets_do_not_change_a_record(make: Callable[[], Learner]) -> None:
    """Mistake: padded and ignored positions, tied weights or biases left out of a norm: the wrong clip factor.

    Norms of rows in one padded batch, with masked targets, against autograd on each row alone.
    """
    learner = make()
    rows = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [4, 4], [9, 8, 7, 6, 5], [3]]
    weights = [[0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0], [1.0], [0.0, 0.0, 1.0, 1.0], []]
    found = clipped_sum(learner, TextBatch.of_rows(rows, weights), Flat(1.0)).norms.tolist()
    for row, weight, norm in zip(rows, weights, found, strict=True):
        parameters = [value for value in learner.module.parameters() if value.requires_grad]
        if len(row) == 1:
            assert norm == 0
            continue
        loss = learner.token_losses(TextBatch.of_rows([row], [weight])).total
        slow = torch.autograd.grad(loss, parameters, materialize_grads=True)
        assert norm == pytest.approx(math.sqrt(sum(float(value.square().sum()) for value in slow)), rel=1e-4)


@pytest.mark.parametrize("make", [tiny_lstm, tied_lstm, tiny_gpt, adapted_gpt], ids=lambda make: make.__name__)
def test_what_should_move_moves_by_its_records_and_the_rest_stands_still(
    make: Callable[[], Learner], store: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistake: adapters that never move while an epsilon is reported; frozen weights that do.

    Without noise, which would hide it; two steps, as an adapter's first half has no gradient in the first one.
    """
    without_noise(monkeypatch)
    learner = make()
    moves = run_of(private_step(0.5), 2, store, tmp_path / "run", learner).moves
    trainable = {name: value.requires_grad for name, value in learner.module.named_parameters()}
    moved = {name: any(bool((step[name] != 0).any()) for step in moves) for name in trainable}
    assert moved == trainable
    assert any(trainable.values())


def test_a_model_edited_between_runs_is_trained_as_it_is(store: PreparedCorpus, tmp_path: Path) -> None:
    """Mistake: hooks of the old layers stay behind when a layer is replaced."""
    learner = tiny_lstm()
    run_of(private_step(0.5), 1, store, tmp_path / "first", learner)
    old = learner.module.head.weight
    head = torch.nn.Linear(8, learner.vocabulary_size, bias=False)
    learner.module.head = head
    moves = run_of(private_step(0.5), 1, store, tmp_path / "second", learner).moves[0]
    assert "head.bias" not in moves
    assert bool((moves["head.weight"] != 0).any())
    assert not any(hook for part in learner.module.modules() for hook in (part._forward_hooks, part._forward_pre_hooks))
    assert old is not head.weight


def test_a_parameter_that_clipping_cannot_see_is_refused(store: PreparedCorpus, tmp_path: Path) -> None:
    """Mistake: a trainable parameter outside the clipped gradient, which moves without a bound, or never."""
    learner = tiny_lstm()
    learner.module.register_parameter("extra", torch.nn.Parameter(torch.ones(1)))
    with pytest.raises(GradientError, match="extra"):
        run_of(private_step(0.5), 1, store, tmp_path / "run", learner)
    assert read_entries(tmp_path / "run" / "release" / ReleaseFile.LEDGER).charges() == {"private": 0}


def test_targets_of_a_private_step_are_its_secrets_alone(store: PreparedCorpus) -> None:
    """Mistake: loss masks off by one, so that the token before a secret counts and its last one does not."""
    tokenizer = byte_tokenizer()
    batch = RowReader(store, tokenizer.end, 80).batch([3, 5], View.FULL, Targets.PRIVATE)
    said = [
        tokenizer.decode(row[weights > 0].tolist()) for row, weights in zip(batch.targets, batch.weights, strict=True)
    ]
    assert said == [f"secret {3 * 7919}", f"secret {5 * 7919}"]
