"""Clipped sums by their definition: a loop over single rows, in float64; and how they are compared with fast ones."""

import copy
import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tacit.data.batches import BatchKind, Trainable
from tacit.training.gradients.clipped import Automatic, ClippedGradients, Clipping, Method, PerParameter, clipped_sum
from tacit.training.randomness import NoiseStream

LONGER = 1 + 2**-10  # norms are taken so much longer than they are
EXACT = 1e-9  # both in float64
_IN_FLOAT32 = ("BloomAttention", "GPTJAttention", "MptAttention", "MambaForCausalLM")
ROUNDED = 1e-3  # float32 against float64: any processor's rounding is a hundred times less


def clip_factors(clipping: Clipping, norms: Sequence[float]) -> list[float]:
    """A unit's factors, from the length of its gradient for each parameter."""
    longer = [norm * LONGER for norm in norms]
    whole = math.hypot(*longer)
    if isinstance(clipping, PerParameter):
        share = clipping.clip_norm / math.sqrt(len(norms))
        least = whole / math.sqrt(len(norms))
        return [min(1.0, share / max(norm, least, 1e-300)) for norm in longer]
    if isinstance(clipping, Automatic):
        return [clipping.clip_norm / (whole + clipping.stability)] * len(norms)
    return [min(1.0, clipping.clip_norm / max(whole, 1e-300))] * len(norms)


def moving_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def loop_over_rows(
    model: Trainable[BatchKind], batch: BatchKind, clipping: Clipping
) -> tuple[dict[str, Tensor], list[float]]:
    """Plain autograd for one row after another, cut to its length, without dropout; and the norms before clipping."""
    model.module.eval()
    moving = moving_parameters(model.module)
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in moving.items()}
    norms = []
    for index in range(len(batch)):
        row = batch.rows(torch.tensor([index]))
        if not row.weights.any():
            norms.append(0.0)
            continue
        found = torch.autograd.grad(model.token_losses(row).total, list(moving.values()), materialize_grads=True)
        gradients = [value.double() for value in found]
        lengths = [float(value.norm()) for value in gradients]
        norms.append(math.hypot(*lengths))
        for name, value, factor in zip(moving, gradients, clip_factors(clipping, lengths), strict=True):
            total[name] += factor * value
    return total, norms


def length_of(values: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in values.values()))


def assert_near(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    """Relative to the parameter, or to the whole where a parameter's gradient is nothing but rounding."""
    assert list(found) == list(wanted)
    whole = length_of(wanted)
    assert whole > 0
    for name, value in wanted.items():
        scale = max(float(value.norm()), 1e-2 * whole)
        assert float((found[name].double() - value).norm()) <= tolerance * scale, name


def in_float64(model: Any) -> Any:  # noqa: ANN401  (any model, and the same again)
    twin = copy.deepcopy(model)
    _to_float64(twin.module)
    return twin


@contextmanager
def while_in_float64(module: nn.Module) -> Iterator[None]:
    """A module in float64 for a while."""
    kept = _to_float64(module)
    try:
        yield
    finally:
        module.float()
        for part, implementation in kept:
            part.set_experts_implementation(implementation)


def _to_float64(module: nn.Module) -> list[tuple[PreTrainedModel, str]]:
    """Returns what computed experts before: most implementations have no products in float64."""
    mixtures = [
        part
        for part in module.modules()
        if isinstance(part, PreTrainedModel) and any("Experts" in type(one).__name__ for one in part.modules())
    ]
    kept = [(part, part.config._experts_implementation) for part in mixtures]
    for part in mixtures:
        part.set_experts_implementation("eager")
    module.double()
    return kept


def tolerance_of(module: nn.Module) -> float:
    """Some layers of transformers compute in float32 whatever they are given."""
    names = {type(part).__name__ for part in module.modules() if type(part) not in (nn.RMSNorm, nn.LayerNorm)}
    return 1e-5 if any(name.endswith(("Norm", *_IN_FLOAT32)) for name in names) else EXACT


def assert_clipped_sums_are_exact(
    model: Trainable[BatchKind], batch: BatchKind, clipping: Clipping, method: Method = "fused"
) -> tuple[ClippedGradients, list[float]]:
    """The fast path in float64 and in float32, both against the loop in float64; the float32 one, and the norms."""
    precise = in_float64(model)
    wanted, norms = loop_over_rows(precise, batch, clipping)
    for twin, tolerance in ((precise, tolerance_of(model.module)), (model, ROUNDED)):
        found = clipped_sum(twin, batch, clipping, method=method)
        assert {value.dtype for value in found.sums.values()} == {value.dtype for value in twin.module.parameters()}
        assert_near(found.sums, wanted, tolerance)
        assert all(
            math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * max(norms))
            for one, other in zip(found.norms.tolist(), norms, strict=True)
        )
        assert found.non_finite == 0
    return found, norms


def research_noise(seed: int, draws: int = 0) -> NoiseStream:
    """Noise that can be repeated, from its draw number `draws` on."""
    return NoiseStream(hashlib.sha256(f"tacit noise {seed}".encode()).digest(), draws)
