"""One row moves a private sum by at most the clip norm: every model, every layer rule, any autocast.

Rows are crafted: losses that weigh a million, steps that cancel, one token over and over, one row longer than all.
Under such loss weights a row's own vector is bounded. What a row moves in all, rounding for the other rows included, is
bounded with the loss weights of training, 0 and 1: where steps cancel, rounding for others alone was up to 0.003 C.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import test_gradients_clipped as language
import test_models_classifier as classification
import torch
from torch import Tensor, nn

from oracles import in_float64, length_of, moving_parameters
from tacit.config.model_schema import LocalConfig, LSTMConfig
from tacit.data.batches import LabeledBatch, TextBatch
from tacit.models import kernels as native
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.training.gradients import rules
from tacit.training.gradients.clipped import Automatic, Clipping, Flat, Method, PerParameter, clipped_sum, safe_factors
from tacit.training.gradients.contributions import Outer, Sequence
from tacit.training.gradients.recording import names_within
from tacit.training.gradients.rules import rule_of
from tacit.training.local import LocalUnit, local_sum

STYLES: tuple[Clipping, ...] = (Flat(0.7), Automatic(0.7), PerParameter(0.7))
MODELS: dict[str, Callable[[], Any]] = {
    **language.MODELS,
    **{f"{name}, classifier": make for name, make in classification.MODELS.items()},
}


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(threads)


def large(name: str) -> Any:  # noqa: ANN401  (a language model or a classifier)
    """Weights far from where they began, so that gradients are long and steep; the head is sure of one token.

    Positions have no weight: a model without a memory then computes the same at every step of a row of one token.
    """
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.module.parameters():
            moved = parameter + torch.randn_like(parameter) * 0.1 if parameter.requires_grad else parameter
            parameter.copy_(2.5 * moved)
        for path, part in model.module.named_modules():
            if isinstance(part, nn.Embedding) and path.endswith(("positions", "wpe")):
                part.weight.zero_()
        model.head.get_parameter("weight").mul_(100.0)
    return model


def crafted(name: str, model: Any) -> Any:  # noqa: ANN401  (the batch that the model takes)
    tokens = torch.randint(language.VOCABULARY, (40,), generator=torch.Generator().manual_seed(2)).tolist()
    rows = [[5] * 13, [1, 2, 1, 2], tokens[:5], [3] * 4, [4, 4, 9], tokens]  # short ones take Gram matrices
    if name.endswith("classifier"):
        return LabeledBatch.of_rows(rows, [0, 1, 2, 0, 1, 2], [1e4, 1e-3, -1e3, 1.0, 1e6, 3.0])
    vanishing = [2.0**20, -(2.0**20) - 2.0**10]  # in bfloat16, nothing is left
    weights = [vanishing * 6, [1e-3] * 3, cancelling_weights(model, rows[2]), [1e4] * 3, [1e6, -1e6], [1.0] * 39]
    return TextBatch.of_rows(rows, weights)


def cancelling_weights(model: Learner, row: list[int]) -> list[float]:
    """Loss weights under which the gradients of a row's steps cancel as far as they can without vanishing."""
    twin = in_float64(model)
    moving = list(moving_parameters(twin.module).values())
    losses = twin.token_losses(TextBatch.of_rows([row])).losses[0]
    steps = [torch.autograd.grad(loss, moving, retain_graph=True, materialize_grads=True) for loss in losses]
    gradients = torch.stack([torch.cat([value.flatten() for value in step]) for step in steps])
    sizes, directions = torch.linalg.eigh(gradients @ gradients.t())
    least = int((sizes > 1e-5 * sizes[-1]).nonzero()[0])  # what is left is 3 in 1,000 of the longest, or more
    return [1e4 * float(part) for part in directions[:, least]]


def apart(whole: dict[str, Tensor], rest: dict[str, Tensor]) -> float:
    return length_of({name: whole[name].double() - rest[name].double() for name in whole})


@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "under autocast"])
@pytest.mark.parametrize("name", MODELS)
def test_one_row_moves_the_sum_by_at_most_the_clip_norm(name: str, bfloat16: bool) -> None:
    """Catches norms that are computed in the caller's autocast, and rows whose gradients depend on other rows."""
    model = large(name)
    batch = crafted(name, model)
    counted = replace(batch, weights=(batch.weights != 0).float())
    of_head = list(names_within(model.module, model.head, moving_parameters(model.module)))[:1]
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        longest = [own_length(model, batch, style) for style in STYLES]
        longest += [moved_by(model, counted, style) for style in STYLES]
        longest += [own_length(model, batch, Flat(0.7), of_head)] if of_head else []
    assert max(longest) <= 1, longest
    assert max(longest) > 0.9  # the bound is tight, so the test can fail


@pytest.mark.parametrize("method", ["layers", "rows"])
@pytest.mark.parametrize("name", ["gpt", "llama, tied", "used twice and tied", "lstm", "bert with lora, classifier"])
def test_the_bound_holds_by_every_method(name: str, method: Method) -> None:
    model = large(name)
    batch = crafted(name, model)
    counted = replace(batch, weights=(batch.weights != 0).float())
    longest = [own_length(model, batch, style, method=method) for style in STYLES]
    longest += [moved_by(model, counted, style, method) for style in STYLES]
    assert max(longest) <= 1, longest
    assert max(longest) > 0.9  # the bound is tight, so the test can fail


def own_length(
    model: Any,  # noqa: ANN401
    batch: Any,  # noqa: ANN401
    style: Clipping,
    parameters: list[str] | None = None,
    method: Method = "fused",
) -> float:
    """The longest that a row alone makes the sum, in clip norms."""
    rows = [batch.rows(torch.tensor([row])) for row in range(len(batch))]
    sums = [clipped_sum(model, row, style, parameters=parameters, method=method).sums for row in rows]
    return max(map(length_of, sums)) / style.clip_norm


def moved_by(model: Any, batch: Any, style: Clipping, method: Method = "fused") -> float:  # noqa: ANN401
    """The farthest that leaving out one row moves the sum, in clip norms."""
    whole = clipped_sum(model, batch, style, positions=40, method=method).sums
    others = [torch.tensor([row for row in range(len(batch)) if row != removed]) for removed in range(len(batch))]
    rest = [clipped_sum(model, batch.rows(kept), style, positions=40, method=method).sums for kept in others]
    return max(apart(whole, sums) for sums in rest) / style.clip_norm


class InAutocast(Outer):
    """The mistake: the head's squared norms in the caller's autocast."""

    def squared_norms(self) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().squared_norms().float()


@pytest.mark.parametrize("name", ["linear", "llama", "used twice and tied"])
def test_norms_in_bfloat16_would_break_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the rows above find the mistake when it is put back."""
    monkeypatch.setattr("tacit.training.gradients.clipped.Outer", InAutocast)
    model = large(name)
    (of_head, *_) = names_within(model.module, model.head, moving_parameters(model.module))
    assert own_length(model, crafted(name, model), Flat(0.7), [of_head]) > 100


def test_every_layer_rule_is_met() -> None:
    """A new rule needs a model above."""
    known = {kind for name, kind in vars(rules).items() if name.endswith("Rule") and name != "LayerRule"}
    met = {type(rule_of(part)) for make in MODELS.values() for part in make().module.modules()}
    assert known == met - {type(None)}


@pytest.mark.parametrize("name", ["llama", "gpt with lora", "lstm"])
def test_one_user_moves_the_sum_by_at_most_the_clip_norm_under_autocast(name: str) -> None:
    model = large(name)
    batch = crafted(name, model)
    units = [LocalUnit(batch.rows(torch.tensor(rows)), 1.0, tuple(rows)) for rows in ([0, 4], [1, 5], [2, 3])]
    chosen = LocalConfig(epochs=2, batch_size=1, learning_rate=0.5)
    longest = []
    for style in STYLES:
        with torch.autocast("cpu", torch.bfloat16):
            sums = [local_sum(model, part, style, chosen).sums for part in (units, units[1:])]
        longest.append(apart(*sums) / style.clip_norm)
    assert max(longest) <= 1, longest
    assert max(longest) > 0.9  # the bound is tight, so the test can fail


def test_products_are_float32_whatever_the_caller_allows() -> None:
    """Catches matrix products that torch was told to round, which would let rows move each other."""
    model = large("gpt")
    batch = crafted("gpt", model)
    wanted = clipped_sum(model, batch, Flat(0.5)).sums
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = clipped_sum(model, batch, Flat(0.5)).sums
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("is_native", [False, True], ids=["torch", "native"])
@pytest.mark.parametrize("left", [1e-1, 1e-2, 1e-3, 3e-4, 1e-4, 1e-5])
def test_steps_that_cancel_do_not_make_a_norm_too_short(
    left: float, is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of which a share `left` remains: Gram matrices lose it to rounding, the norm must not."""
    monkeypatch.setattr(native, "available", native.available and is_native)
    for width in (16, 64, 700):
        steps, signals = torch.randn(40, 1, width), torch.randn(40, 1, width)
        outer = Outer(
            Sequence(torch.cat([steps, steps], dim=1)), Sequence(torch.cat([signals, (left - 1) * signals], dim=1))
        )
        pairs = zip(outer.left.values.double(), outer.right.values.double(), strict=True)
        lengths = torch.stack([(one.t() @ other).norm() for one, other in pairs])
        factors, _ = safe_factors(Flat(1e-6), outer.squared_norms()[None])
        assert float((factors[0].double() * lengths).amax()) <= 1e-6


# dropout


@pytest.mark.parametrize("name", ["dropout", "embedding_dropout", "weight_drop"])
def test_a_long_row_does_not_change_what_others_learn_through_dropout(name: str) -> None:
    """Catches masks that rows share: the long row cuts the batch elsewhere, and the others would get other masks."""
    model = LSTM.new(LSTMConfig(30, 8, 8, **{"dropout": 0.0, name: 0.5}))  # type: ignore[arg-type]
    model.module.train()
    short = [torch.randint(30, (6,)).tolist() for _ in range(12)]
    sums = []
    for rows in (short, [*short, torch.randint(30, (40,)).tolist()]):
        torch.manual_seed(3)
        sums.append(clipped_sum(model, TextBatch.of_rows(rows), Flat(0.01), positions=40).sums)
    assert apart(*sums) <= 0.01
    assert model.module.training
