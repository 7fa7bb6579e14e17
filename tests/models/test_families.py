"""Every model family of the table: clipped gradients are those of single rows, by the method that the table says."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from families import CLASSES, FAMILIES, LORA, VOCABULARY, Family, awaken, batch_for, documented, make
from oracles import (
    assert_clipped_sums_are_exact,
    assert_near,
    in_float64,
    loop_over_rows,
    moving_parameters,
    tolerance_of,
)
from runs import PLANS, Parts, make_parts
from tacit.config.model_schema import LoRAConfig
from tacit.data.batches import Examples, LabeledBatch, RowReader, TextBatch
from tacit.data.records import Record, Span
from tacit.errors import ModelError
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.privacy.plan import Noisy, Targets, View
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Flat, Method, plain_sum
from tacit.training.randomness import Streams
from tacit.training.sampling import Samplers
from tacit.training.updates import Updates, UpdateSettings

Row = tuple[Family, LoRAConfig | None, Method]
TABLE: list[Row] = [
    (family, lora, method)
    for family in FAMILIES
    for lora, method in ((None, family.whole), (LORA, family.adapters))
    if method is not None
]
every_row = pytest.mark.parametrize(
    ("family", "lora", "method"), TABLE, ids=[f"{family}-{'lora' if lora else 'whole'}" for family, lora, _ in TABLE]
)
REFUSED = [family for family in FAMILIES if family.adapters is None]


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(threads)


def awakened(family: Family, lora: LoRAConfig | None) -> Learner | Classifier:
    model = make(family, lora)
    awaken(model)
    return model


@every_row
def test_the_check_chooses_the_method_of_the_table(
    family: Family, lora: LoRAConfig | None, method: Method, caplog: pytest.LogCaptureFixture
) -> None:
    """Also with fresh weights: a soft cap does nothing to their small scores, and must be found all the same."""
    model = make(family, lora)
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    with caplog.at_level(logging.INFO, logger="tacit"):
        assert check_gradients(model, longest=20) == method
    assert f"by method {method}" in caplog.text
    assert all(torch.equal(value, before[name]) for name, value in model.module.state_dict().items())
    awaken(model)
    assert check_gradients(model, longest=20) == method


@every_row
def test_clipped_sums_are_those_of_single_rows(family: Family, lora: LoRAConfig | None, method: Method) -> None:
    """In float64 and float32, by the method of the table and by rows; large scores, so that caps bite."""
    model: Any = awakened(family, lora)
    batch = batch_for(model)
    norms = loop_over_rows(in_float64(model), batch, Flat(1.0))[1]
    style = Flat(sorted(norms)[len(norms) // 2])  # some rows are clipped, some are not
    for way in {method, "rows"}:
        assert_clipped_sums_are_exact(model, batch, style, method=way)


@every_row
def test_plain_sums_are_autograds(family: Family, lora: LoRAConfig | None, method: Method) -> None:
    model = in_float64(awakened(family, lora))
    batch = batch_for(model)
    moving = moving_parameters(model.module)
    wanted = torch.autograd.grad(model.token_losses(batch).total, list(moving.values()), materialize_grads=True)
    found = plain_sum(model, batch, positions=15, method=method)
    assert_near(found.sums, dict(zip(moving, wanted, strict=True)), tolerance_of(model.module))


class SmallReader:
    """The rows of a store with few tokens, and with labels for a classifier."""

    def __init__(self, reader: RowReader, labelled: bool) -> None:
        self._reader, self._labelled = reader, labelled
        self.longest = reader.longest

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        return self._reader.lengths(rows)

    def batch(self, rows: Any, view: View, targets: Targets) -> Examples:  # noqa: ANN401
        read = self._reader.batch(rows, view, targets)
        tokens = 3 + read.tokens % (VOCABULARY - 3)
        if not self._labelled:
            return TextBatch(tokens, read.weights)
        return LabeledBatch.of_rows(tokens.tolist(), [int(row) % len(CLASSES) for row in rows])


@pytest.fixture(scope="module", params=["selective", "dpsgd"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """The parts of a run on twelve records with a secret each."""
    records = [Record(f"r{n}", f"my code is Ann, {n}", spans=(Span(11, 14, "NAME"),)) for n in range(12)]
    words = {"mechanism": request.param, **PLANS[request.param], "expected_batch_size": 4}
    return make_parts(Path(tmp_path_factory.mktemp(request.param)), records, words)


@every_row
def test_a_private_step_moves_what_trains_and_nothing_else(
    family: Family, lora: LoRAConfig | None, method: Method, parts: Parts
) -> None:
    model = awakened(family, lora)
    plan = parts.mechanism.plan()
    reader = SmallReader(parts.reader, family.kind == "encoder")
    updates = Updates(model, plan, reader, parts.pools, UpdateSettings())
    updates.methods = dict.fromkeys(updates.methods, method)
    before = {name: value.detach().clone() for name, value in model.module.named_parameters()}
    (step,) = (step for step in plan.executions() if isinstance(step.update, Noisy))
    streams = Streams.research(3)
    for drawn in Samplers(plan, parts.pools).draw(step, streams.batches):
        done = updates.carry_out(step, drawn, streams)
        assert done.private is not None
        assert done.private["non_finite"] == 0
        assert done.private["median_norm"] > 0
    for name, value in model.module.named_parameters():
        assert torch.equal(value, before[name]) != value.requires_grad, name


@pytest.mark.parametrize("family", REFUSED, ids=str)
def test_adapters_that_peft_refuses_are_refused_in_one_sentence(family: Family) -> None:
    with pytest.raises(ModelError, match=family.refused) as error:
        make(family, LORA)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("family", [f for f in FAMILIES if "experts" in str(f.config)], ids=str)
def test_adapters_of_a_mixture_are_in_its_attention_alone(family: Family) -> None:
    names = list(moving_parameters(make(family, LORA).module))
    assert names
    assert all(".self_attn." in name for name in names)


def test_the_page_of_families_is_this_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "families.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in page if line.startswith("|") and line.count("|") == 5]
    assert rows[2:] == [documented(family) for family in FAMILIES]
