"""SGD and Adam on named gradients. Their state is tensors by name, so that a checkpoint needs no pickle.

Adam's second moment of a noisy gradient is too large by the variance of the noise, which is known exactly: it is taken
off before the division (DP-AdamBC, Tang, Shpilevskiy, Lecuyer 2023, arXiv 2312.14334).
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from tacit.config.model_schema import OptimizerConfig

_BETAS = (0.9, 0.999)
_STABILITY = 1e-8
_LEAST_SHARE = 0.1  # of the noise's variance: what the corrected second moment keeps at least


class UpdateRule(Protocol):
    """What turns named gradients into a step."""

    def apply(self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], noise: float = 0.0) -> None:
        """One step. `noise` is the deviation of the noise in each number of `gradients`."""


class Optimizer:
    """Moves parameters along gradients that were made elsewhere."""

    def __init__(self, settings: OptimizerConfig, total: int) -> None:
        """`total` is how often `apply` will be called."""
        self.settings, self._total, self._done = settings, max(1, total), 0
        self._moments: dict[str, Tensor] = {}

    @torch.no_grad()
    def apply(self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], noise: float = 0.0) -> None:
        """One step. `noise` is the deviation of the noise in each number of `gradients`."""
        rate = self.settings.rate(self._done, self._total)
        self._done += 1
        scale = self._shortening(gradients)
        for name, gradient in gradients.items():
            if self.settings.optimizer == "sgd":
                parameters[name].sub_(gradient.to(parameters[name].dtype), alpha=rate * scale)
            else:
                self._adam(name, parameters[name], gradient, rate, scale, noise)

    def state(self) -> dict[str, Tensor]:
        return {"done": torch.tensor(self._done), **self._moments}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a `state()`, which may be on another device than the parameters: moments follow gradients."""
        self._done = int(state["done"])
        self._moments = {name: value for name, value in state.items() if name != "done"}

    def _shortening(self, gradients: Mapping[str, Tensor]) -> float:
        longest = self.settings.max_grad_norm
        if longest is None:
            return 1.0
        norm = float(torch.stack([gradient.norm() for gradient in gradients.values()]).norm())
        return min(1.0, longest / norm) if norm > 0 else 1.0

    def _moment(self, name: str, gradient: Tensor) -> Tensor:
        kept = self._moments.get(name)
        self._moments[name] = torch.zeros_like(gradient) if kept is None else kept.to(gradient.device)
        return self._moments[name]

    def _adam(self, name: str, parameter: Tensor, gradient: Tensor, rate: float, scale: float, noise: float) -> None:
        first, second = (self._moment(f"{which}.{name}", gradient) for which in ("first", "second"))
        mean_share, square_share = (1 - beta**self._done for beta in _BETAS)
        variance = (noise * scale) ** 2
        first.lerp_(gradient if scale == 1.0 else gradient * scale, 1 - _BETAS[0])
        second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=(1 - _BETAS[1]) * scale**2)
        below = second * (1 / square_share)
        if variance:
            below.sub_(variance).clamp_min_(_LEAST_SHARE * variance)
        below.sqrt_().add_(_STABILITY)
        if parameter.dtype == first.dtype:
            parameter.addcdiv_(first, below, value=-rate / mean_share)
        else:
            parameter.sub_((first / below * (rate / mean_share)).to(parameter.dtype))
