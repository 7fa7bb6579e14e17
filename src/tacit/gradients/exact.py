"""How private steps compute: what is found for a row depends on that row alone, up to float32 rounding.

Dropout is off: a mask that several rows share, or that depends on who else was drawn, would let one row change what is
computed for the others. So is autocast: a row's bfloat16 numbers depend on the padding and on the size of its batch;
with 31 rows, one more row moved the clipped gradients of the others by a hundredth of the clip norm.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from tacit.models.speech import evaluating


@contextmanager
def exact(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Dropout off, and products in float32 or better, whatever the caller's settings are; they are restored."""
    products = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with evaluating(module), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(products)
