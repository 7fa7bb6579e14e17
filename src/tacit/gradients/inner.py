"""Inner products of two uses of one parameter: the cross terms of tied weights; without them norms are too small."""

from itertools import combinations

import torch
from torch import Tensor

from tacit.gradients.uses import Lookup, Outer, PerRow, Summed, Use, rounding
from tacit.models.batch import wide


def squared_norms(uses: list[Use]) -> Tensor:
    """(rows,): of the sum of all uses of one parameter."""
    own = [use.squared_norms() for use in uses]
    if len(uses) == 1:
        return own[0]
    total = torch.stack(own).sum(dim=0)
    for first, second in combinations(uses, 2):
        total = total + 2 * inner(first, second)
    # rounding is relative to the products of the uses' norms, not to what is left when they cancel
    return total.clamp(min=0.0) + rounding(total.dtype) * torch.stack(own).sqrt().sum(dim=0).square()


def inner(first: Use, second: Use) -> Tensor:
    """(rows,): <G_b, G'_b> summed over the parameter."""
    if isinstance(first, Lookup) and isinstance(second, Outer):
        return _lookup_outer(first, second)
    if isinstance(first, Outer) and isinstance(second, Lookup):
        return _lookup_outer(second, first)
    if isinstance(first, Lookup) and isinstance(second, Lookup):
        same = first.indices[:, :, None] == second.indices[:, None, :]
        return (_products(first.gradients, second.gradients) * same).sum(dim=(1, 2))
    if isinstance(first, Outer) and isinstance(second, Outer):
        return _outer_outer(first, second)
    return (_per_row(first) * _per_row(second)).flatten(1).sum(dim=1)


def _products(first: Tensor, second: Tensor) -> Tensor:
    return torch.bmm(wide(first), wide(second).transpose(1, 2))


def _lookup_outer(lookup: Lookup, outer: Outer) -> Tensor:
    """sum_ts left_s[token_t] (gradient_t . right_s)."""
    columns = lookup.indices[:, None, :].expand(-1, outer.left.values.shape[1], -1)
    picked = wide(outer.left.values.gather(2, columns))
    return torch.einsum("bst,bts->b", picked, _products(lookup.gradients, outer.right.values))


def _outer_outer(first: Outer, second: Outer) -> Tensor:
    left = _products(first.left.values, second.left.values)
    return (left * _products(first.right.values, second.right.values)).sum(dim=(1, 2))


def _per_row(use: Use) -> Tensor:
    if isinstance(use, PerRow):
        return use.gradients
    assert isinstance(use, Summed)
    return wide(use.values.values).sum(dim=1)
