"""`minutes`: passes, batches and a size of model that fit into a time, by the speed of made-up rows and public counts.

G1 (before). Rows are timed before the corpus is read, with random tokens, as long as a row may be: neither times nor
   lengths of the corpus's rows decide anything, so training usually takes less.
G2 (frozen). The timing is kept in the run, so that a resumed run has the same plan, which is priced like any other.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from tacit.config.plan_schema import PlanConfig
from tacit.config.schema import Config
from tacit.data.batches import Examples, LabeledBatch, TextBatch
from tacit.data.tokenizer import Tokenizer
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.registry import build_mechanism
from tacit.mechanisms.settings import MeasuredCounts
from tacit.policies.marking import Policies
from tacit.privacy.plan import Noisy, Plain, Plan, PoissonRecords, PoissonUsers, ShuffledBatch, Step
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.training.base_run import BaseRun
from tacit.training.checks import check_start
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Flat, clipped_sum, plain_sum
from tacit.training.parts import Model, make_learner
from tacit.training.tokenizers import given_tokenizer
from tacit.training.updates import default_positions, moving_names

MOST_PASSES = 20.0
"""Time for more of them is spent on larger batches, which are worth more to private steps."""
FEW_PASSES = 5.0
"""If no more of them fit, a new LSTM is small: more passes are then worth more than a larger model."""
SMALL_LSTM = {"embedding_size": 64.0, "hidden_size": 128.0}
_MANY_PASSES = 1000.0
_LONG_ENOUGH = 1.0  # seconds that a timing should have
_MOST_ROWS = 64


@dataclass(frozen=True, slots=True)
class RowSeconds:
    """How long one row of `data.max_tokens` tokens takes in an exact and in a private step."""

    exact: float
    private: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Rows of the model that was asked for, and of a small one where the size is left to us."""

    usual: RowSeconds
    small: RowSeconds | None


def keep_timing(config: Config, policies: Policies, base: BaseRun | None, run: RunFolder) -> None:
    """Time rows once for a run, if it asks for minutes; a run that resumes keeps its plan."""
    if config.training.minutes is None or run.path(PrivateFile.TIMING).exists():
        return
    tokenizer = given_tokenizer(config) if base is None else base.tokenizer(policies, config.plan.disjoint_from_model)
    assert tokenizer is not None  # others were refused
    plan = check_start(config).plan()
    random = config.model == "lstm" and not config.begins_english
    open_size = random and not SMALL_LSTM.keys() & config.model_config.keys()
    small = time_rows(_small(config), tokenizer, plan) if open_size else None
    run.write_json(PrivateFile.TIMING, Timing(time_rows(config, tokenizer, plan), small))


def _small(config: Config) -> Config:
    return replace(config, model_config=config.model_config | SMALL_LSTM)


def fitted(config: Config, run: RunFolder, counts: MeasuredCounts) -> tuple[Config, PlanConfig]:
    """The settings and the plan that were asked for, or a size of model and a plan that fit into the minutes."""
    minutes = config.training.minutes
    if minutes is None:
        return config, config.plan
    timing, build = run.read_json(Timing, PrivateFile.TIMING), partial(build_mechanism, measured=counts)
    records, seconds = int(counts["records"]()), timing.usual
    if timing.small is not None and passes_within(config.plan, minutes, seconds, records, build) < FEW_PASSES:
        config, seconds = _small(config), timing.small
    return config, within(config.plan, minutes, seconds, records, build)


def time_rows(config: Config, tokenizer: Tokenizer, plan: Plan) -> RowSeconds:
    """By made-up rows, on a model of its own."""
    model = make_learner(config, tokenizer)
    model.module.train()
    steps = {isinstance(step.update, Plain): step for step in plan.executions()}
    exact, private = (_seconds(config, model, steps[kind]) if kind in steps else 0.0 for kind in (True, False))
    return RowSeconds(exact, private)


def _seconds(config: Config, model: Model, step: Step) -> float:
    moving = moving_names(model, step.trainable)
    method = check_gradients(model, parameters=moving)
    positions = config.execution.microbatch_tokens or default_positions(model.vocabulary_size)

    def carry_out(rows: int) -> None:
        batch = _made_up(config, model, rows)
        if isinstance(step.update, Plain):
            plain_sum(model, batch, positions=positions, parameters=moving, method=method)  # type: ignore[misc]
        else:
            clipped_sum(model, batch, Flat(1.0), positions=positions, parameters=moving, method=method)  # type: ignore[misc]

    return _seconds_per_row(carry_out)


def _seconds_per_row(carry_out: Callable[[int], None]) -> float:
    """More and more rows, until they take a while; the first ones, which are slower, do not count."""
    rows, seconds = 1, 0.0
    carry_out(rows)
    while seconds < _LONG_ENOUGH and rows < _MOST_ROWS:
        rows *= 2
        began = time.monotonic()
        carry_out(rows)
        seconds = time.monotonic() - began
    return seconds / rows


def _made_up(config: Config, model: Model, rows: int) -> Examples:
    chance = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.vocabulary_size, (rows, config.data.max_tokens + 1), generator=chance)
    device = torch.device(config.execution.device)
    if config.classifies:
        return LabeledBatch.of_rows(tokens.tolist(), [0] * rows).to(device)
    return TextBatch.of_tokens(tokens).to(device)


def duration(plan: Plan, seconds: RowSeconds, records: int) -> RowSeconds:
    """How long all exact and all private steps take, at most; records: of all users together."""
    exact = private = 0.0
    for step, times in plan.executions().items():
        match step.draw, step.update:
            case ShuffledBatch(batch_size), Plain():
                exact += times * batch_size * seconds.exact
            case PoissonRecords(), Noisy(divisor=expected):
                private += times * expected * seconds.private
            case PoissonUsers(rate=rate, local_epochs=passes), _:
                private += times * rate * records * passes * seconds.private
            case _:
                raise ConfigError("a mechanism whose batches are planned", f"{step.draw.kind}", "leave minutes out")
    return RowSeconds(exact, private)


Building = Callable[[PlanConfig], Mechanism]


def _taking(plan: PlanConfig, seconds: RowSeconds, records: int, build: Building, passes: float) -> RowSeconds:
    return duration(build(replace(plan, epochs=passes)).plan(), seconds, records)


def passes_within(plan: PlanConfig, minutes: float, seconds: RowSeconds, records: int, build: Building) -> float:
    """How many passes fit."""
    fixed, each = _line(partial(_taking, plan, seconds, records, build))
    if not each:
        raise ConfigError("minutes, or public_epochs", "both", "leave one of them out: each decides the other")
    return (60 * minutes - fixed) / each


def within(plan: PlanConfig, minutes: float, seconds: RowSeconds, records: int, build: Building) -> PlanConfig:
    """The plan with as many passes as fit, and no more than usual; then with batches as large as fit."""
    passes = min(MOST_PASSES, passes_within(plan, minutes, seconds, records, build))
    if passes < 1:
        enough = sum(_line(partial(_taking, plan, seconds, records, build))) / 60
        raise ConfigError(
            expected="minutes for one pass at least",
            found=f"{minutes:g}, where one pass may take {enough:.3g}",
            way_out=f"give {enough:.3g} minutes or more, a smaller model or shorter rows (data.max_tokens)",
        )
    planned = replace(plan, epochs=passes)
    private = build(planned).private
    if passes < MOST_PASSES or private is None or plan.expected_batch_size or plan.sampling_rate:
        return planned
    spent = _taking(plan, seconds, records, build, passes)
    if not spent.private:
        return planned
    larger = private.expected_batch * (1 + max(0.0, 60 * minutes - spent.exact - spent.private) / spent.private)
    return replace(plan, steps=private.steps, expected_batch_size=min(float(private.population), larger))


def _line(taking: Callable[[float], RowSeconds]) -> tuple[float, float]:
    """Seconds that passes do not decide, and seconds of a pass; measured where rounding to whole steps is small."""
    few, many = (taken.exact + taken.private for taken in map(taking, (_MANY_PASSES, 2 * _MANY_PASSES)))
    each = (many - few) / _MANY_PASSES
    return max(0.0, few - _MANY_PASSES * each), each
