"""Updates as printed are those of the paper, and no learning rate is ever negative."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from runs import PLANS, Parts, make_parts
from tacit.config.model_schema import LSTMConfig, OptimizerConfig
from tacit.data.records import Record, Span
from tacit.data.tokenizer import byte_tokenizer
from tacit.models.lstm import LSTM
from tacit.privacy.plan import Phase, Plain, Plan, Pool, ShuffledPass, SplitBatch, Step, View
from tacit.training.gradients.clipped import Flat, clipped_sum, plain_sum
from tacit.training.optimizers import Optimizer
from tacit.training.pools import DrawnUnits
from tacit.training.randomness import NoiseStream, Streams
from tacit.training.sampling import Samplers
from tacit.training.updates import Updates, UpdateSettings

RATE = 0.5


def records() -> Iterator[Record]:
    """Twelve flagged records of three users, then twelve cleared ones."""
    for number in range(24):
        spans = (Span(11, 14, "NAME"),) if number < 12 else ()
        yield Record(f"r{number}", f"my code is Ann, {number}", user=f"u{number // 4}", spans=spans)


def parts_of(folder: Path, mechanism: str) -> Parts:
    caps = {"user_cap": 2, "entity_cap": 1} if mechanism == "uedp" else {}
    few = {} if mechanism in ("plain", "redaction", "invented") else {"expected_batch_size": 4}
    return make_parts(folder, records(), {"mechanism": mechanism, **PLANS[mechanism], **few, **caps})


def learner() -> LSTM:
    torch.manual_seed(0)
    return LSTM.new(LSTMConfig(byte_tokenizer().vocabulary_size, 8, 8, dropout=0.0))


def weights_of(model: LSTM) -> Tensor:
    return torch.cat([value.detach().flatten() for value in model.module.parameters()])


def moved(model: LSTM, sums: Mapping[str, Tensor], rate: float) -> None:
    with torch.no_grad():
        for name, value in model.module.named_parameters():
            value.sub_(rate * sums[name])


@pytest.fixture
def deviations(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Deviations of the noise that was asked for; none is added."""
    asked: list[float] = []

    def add(stream: NoiseStream, tensors: Iterable[Tensor], deviation: float) -> None:
        asked.append(deviation)

    monkeypatch.setattr(NoiseStream, "add_", add)
    return asked


@pytest.mark.parametrize("part", ["both", "flagged", "cleared"])
def test_a_split_batch_is_updated_as_cadp_prints_it(part: str, tmp_path: Path, deviations: list[float]) -> None:
    """Catches moments and decay where the paper has SGD, noise for an empty B_S, and updates with an empty B_NS."""
    parts = parts_of(tmp_path, "cadp-published")
    (step,) = parts.mechanism.plan().executions()
    assert isinstance(step.update, SplitBatch)
    of = {"flagged": parts.pools.rows(Pool.FLAGGED)[:3], "cleared": parts.pools.rows(Pool.CLEARED)[:2]}
    rows = np.concatenate(list(of.values())) if part == "both" else of[part]
    ours, theirs = learner(), learner()
    updates = Updates(
        ours,
        parts.mechanism.plan(),
        parts.reader,
        parts.pools,
        UpdateSettings(private=OptimizerConfig(learning_rate=RATE)),
    )
    streams = Streams.research(0)
    for _ in range(3):  # moments and decay would show from the second on
        updates.carry_out(step, DrawnUnits(rows, np.arange(len(rows) + 1)), streams)
        if part != "cleared":
            batch = parts.reader.batch(of["flagged"], step.view, step.targets)
            noisy = clipped_sum(theirs, batch, Flat(step.update.clip_norm))
            moved(theirs, noisy.sums, RATE / step.update.divisor)
        if part != "flagged":
            exact = plain_sum(theirs, parts.reader.batch(of["cleared"], step.view, step.targets))
            moved(theirs, exact.sums, RATE / exact.weight)
    torch.testing.assert_close(weights_of(ours), weights_of(theirs), rtol=1e-5, atol=1e-6)
    expected = step.update.noise_multiplier * step.update.clip_norm
    assert deviations == ([] if part == "cleared" else pytest.approx([expected] * 3))


@given(
    st.builds(
        OptimizerConfig,
        optimizer=st.sampled_from(["sgd", "adam"]),
        learning_rate=st.floats(1e-12, 1e6),
        warmup_steps=st.integers(-5, 1000),
        lr_scheduler=st.sampled_from(["none", "linear"]),
    ),
    st.integers(0, 10**7),
    st.integers(1, 10**6),
)
def test_a_learning_rate_is_never_negative(settings: OptimizerConfig, done: int, total: int) -> None:
    """Catches gradient ascent after more steps than were planned; within the plan every step moves."""
    rate = settings.rate(done, total)
    assert settings.learning_rate is not None
    assert 0 <= rate <= settings.learning_rate
    assert rate > 0 or done >= total


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The learning rate of every update from now on."""
    used: list[float] = []
    apply = Optimizer.apply

    def applying(
        optimizer: Optimizer, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], noise: float = 0.0
    ) -> None:
        used.append(optimizer.settings.rate(optimizer._done, optimizer._total))
        apply(optimizer, parameters, gradients, noise)

    monkeypatch.setattr(Optimizer, "apply", applying)
    return used


def carried_out(parts: Parts, plan: Plan) -> None:
    updates = Updates(learner(), plan, parts.reader, parts.pools, UpdateSettings())
    samplers, streams = Samplers(plan, parts.pools), Streams.research(0)
    for step, times in plan.executions().items():
        for _ in range(times):
            for drawn in samplers.draw(step, streams.batches):
                updates.carry_out(step, drawn, streams)


@pytest.mark.parametrize("mechanism", PLANS)
def test_every_update_of_every_mechanism_has_a_rate_above_zero(
    mechanism: str, tmp_path: Path, rates: list[float]
) -> None:
    """Catches a schedule that is shorter than the updates it is for: CADP's counted passes, not minibatches."""
    parts = parts_of(tmp_path, mechanism)
    carried_out(parts, parts.mechanism.plan())
    assert rates
    assert min(rates) > 0


def test_the_schedule_of_a_pass_spans_its_batches(tmp_path: Path, rates: list[float]) -> None:
    parts = parts_of(tmp_path, "plain")
    step = Step("public", View.FULL, Pool.EVERY, ShuffledPass(5), Plain(), "public")
    carried_out(parts, Plan((Phase(((step, 2),)),)))
    expected = [2e-3 * (1 - done / 10) for done in range(10)]  # 24 records: 5 batches
    assert rates == pytest.approx(expected)
