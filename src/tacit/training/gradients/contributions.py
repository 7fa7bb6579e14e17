"""How a parameter was used in one forward pass, and what its per-row gradients are, without ever forming them all.

| symbol | here |
|---|---|
| G_b | gradient of the parameter for row b, G_b = sum_t left_bt right_bt^T |
| left, right | `Outer`: (rows, time, m), (rows, time, n) for a parameter (m, n) |
| left as a one-hot of a token | `Lookup`: indices (rows, time), right (rows, time, n) |
| G_b itself | `PerRow`: (rows, ...) for small parameters |

Squared norms by Gram matrices: |G_b|^2 = sum_st (left_s . left_t)(right_s . right_t) (Goodfellow 2015, 1510.01799; Li
et al. 2022, 2110.05679), or from G_b itself where that is smaller than what it is made of. A parameter with several
uses (tied weights) has the norm of the sum of its uses: squared norms plus twice every inner product.

Inner products of two uses of one parameter: the cross terms of tied weights; without them norms are too small.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from tacit.data.batches import wide
from tacit.models import kernels as native

_GRAM_ROUNDING = 8.0  # in units of the last place; errors of up to half of it were seen where steps cancel
_SURE, _LARGEST = 1e30, 1e36  # squared norms: below, float32 did not overflow on the way; above, a row counts as zero
_NARROW = 4  # times as wide as the other, and a product takes five times as long if the wide side comes first
_DIRECT_NUMBERS = 1 << 22  # how many numbers of per-row gradients are formed at a time


def rounding(dtype: torch.dtype) -> float:
    """How much of the products of lengths may be lost when a squared norm is computed from inner products."""
    return _GRAM_ROUNDING * torch.finfo(dtype).eps


class Gram:
    """Inner products of all pairs of steps of each row, (rows, time, width): symmetric matrices.

    Kept whole by torch; the lower triangle alone by the native kernel.
    """

    def __init__(self, values: Tensor) -> None:
        self._is_native = native.usable(values)
        self._products = native.gram(values) if self._is_native else torch.bmm(values, values.transpose(1, 2))

    def dot(self, other: "Gram") -> tuple[Tensor, Tensor]:
        """(rows,): the sum over all pairs of the products of both; and over all steps, of their lengths' products."""
        if self._is_native:
            return native.gram_dot(self._products, other._products)
        return (self._products * other._products).sum(dim=(1, 2)), (self._lengths() * other._lengths()).sum(dim=1)

    def _lengths(self) -> Tensor:
        return self._products.diagonal(dim1=1, dim2=2).clamp(min=0.0).sqrt()


class Sequence:
    """A (rows, time, width) tensor that computes its Gram matrices once, in float32 or better."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self._gram: Gram | None = None

    @property
    def width(self) -> int:
        return int(self.values.shape[2])

    def gram(self) -> Gram:
        """Inner products of all pairs of steps."""
        if self._gram is None:
            self._gram = Gram(wide(self.values).contiguous())
        return self._gram

    def clear(self, rows: Tensor) -> None:
        """Set these rows to zero (they are not finite)."""
        self.values = self.values.masked_fill(rows[:, None, None], 0.0)


def _enlarged(squares: Tensor, lengths: Tensor) -> Tensor:
    """Squared norms from Gram matrices: their terms may cancel, but the terms' rounding errors do not."""
    return squares.clamp(min=0.0) + rounding(squares.dtype) * lengths.square()


def _settled(squares: Tensor, exact: Callable[[int], Tensor]) -> Tensor:
    """`squares`, with those that may have overflowed computed anew.

    Which way squared norms are computed depends on the longest row of a batch; whether a row is finite must not.
    On another device they count as overflowed: to ask whether there are any, the host would have to wait.
    """
    doubtful = ~(squares < _SURE)
    if squares.device.type != "cpu":
        return squares.masked_fill(doubtful, torch.inf)
    if not bool(doubtful.any()):
        return squares
    found = torch.stack([exact(int(row)) for row in doubtful.nonzero()])
    return squares.masked_scatter(doubtful, torch.where(found < _LARGEST, found, torch.inf).to(squares.dtype))


@dataclass(slots=True)
class Outer:
    """G_b = sum_t left_bt right_bt^T."""

    left: Sequence
    right: Sequence
    squares: Tensor | None = None

    def squared_norms(self) -> Tensor:
        """(rows,): of G_b, enlarged by what rounding may have taken away. Computed once."""
        if self.squares is None:
            self.squares = self._computed_squares()
        return self.squares

    def _computed_squares(self) -> Tensor:
        if not self._is_smaller_formed:
            return _settled(_enlarged(*self.left.gram().dot(self.right.gram())), self._exact)
        rows = max(1, _DIRECT_NUMBERS // (self.left.width * self.right.width))
        parts = zip(torch.split(self.left.values, rows), torch.split(self.right.values, rows), strict=True)
        return torch.cat([_formed(left, right).squared_norms() for left, right in parts])

    def kept(self) -> "Outer | PerRow":
        """What is worth keeping until the factors are known: G_b if it has fewer numbers than the steps it is made of.

        Its sum over rows is then nearly free: gradients of adapters are of this kind.
        """
        if self._is_smaller_formed:
            return _formed(self.left.values, self.right.values)
        self.squared_norms()  # now, while its tensors are in the cache
        return self

    @property
    def _is_smaller_formed(self) -> bool:
        time, m, n = self.left.values.shape[1], self.left.width, self.right.width
        return time * (m + n) > m * n

    def _exact(self, row: int) -> Tensor:
        return (self.left.values[row].double().t() @ self.right.values[row].double()).square().sum()

    def add_to(self, total: Tensor | None, factors: Tensor) -> Tensor:
        """`total` (None is zero) plus sum_b factors_b G_b."""
        left, right = wide(self.left.values), wide(self.right.values)
        if self.left.width < self.right.width:
            left = left * factors[:, None, None]
        else:
            right = right * factors[:, None, None]
        left, right = left.flatten(0, 1), right.flatten(0, 1)
        return torch.mm(left.t(), right) if total is None else total.addmm_(left.t(), right)

    def clear(self, rows: Tensor) -> None:
        self.left.clear(rows)
        self.right.clear(rows)


@dataclass(slots=True)
class Lookup:
    """G_b has gradients_bt added to its row indices_bt: an embedding of `size` rows; only rows looked up exist."""

    indices: Tensor
    gradients: Tensor
    size: int
    _rows: Tensor = field(init=False)
    _tokens: Tensor = field(init=False)
    _sums: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.gradients = wide(self.gradients)
        grouped = _found_groups if self.indices.device.type == "cpu" else _groups_of_fixed_number
        self._rows, self._tokens, places = grouped(self.indices, self.size)
        self._sums = self.gradients.new_zeros(len(self._rows), self.gradients.shape[2])
        self._sums.index_add_(0, places.flatten(), self.gradients.flatten(0, 1))

    def squared_norms(self) -> Tensor:
        norms = self._sums.new_zeros(len(self.indices))
        return norms.index_add_(0, self._rows, self._sums.square().sum(dim=1))

    def add_to(self, total: Tensor | None, factors: Tensor) -> Tensor:
        if total is None:
            total = self._sums.new_zeros(self.size, self._sums.shape[1])
        return total.index_add_(0, self._tokens, self._sums * factors[self._rows][:, None])

    def inner(self, gradients: Tensor) -> Tensor:
        """(rows,): <G_b, G'_b> for G' (rows, size, n)."""
        products = (self._sums * gradients[self._rows, self._tokens]).sum(dim=1)
        return products.new_zeros(len(self.indices)).index_add_(0, self._rows, products)

    def clear(self, rows: Tensor) -> None:
        self._sums.masked_fill_(rows[self._rows][:, None], 0.0)


@dataclass(slots=True)
class PerRow:
    """G_b itself, (rows, ...): biases, scales of normalization layers, small weights."""

    gradients: Tensor

    def squared_norms(self) -> Tensor:
        return _settled(self.gradients.flatten(1).square().sum(dim=1), self._exact)

    def _exact(self, row: int) -> Tensor:
        return self.gradients[row].double().square().sum()

    def add_to(self, total: Tensor | None, factors: Tensor) -> Tensor:
        added = torch.tensordot(factors, self.gradients, dims=1)
        return added if total is None else total.add_(added)

    def clear(self, rows: Tensor) -> None:
        self.gradients = self.gradients.masked_fill(rows.view(-1, *[1] * (self.gradients.dim() - 1)), 0.0)


def _found_groups(indices: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The row and the token of every group of equal tokens of a row; and the group of each place (rows, time)."""
    rows = torch.arange(len(indices), device=indices.device)[:, None] * size
    keys, places = torch.unique(indices + rows, return_inverse=True)
    return keys.div(size, rounding_mode="floor"), keys.remainder(size), places


def _groups_of_fixed_number(indices: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `_found_groups`, with as many groups as places, of which some are empty: the host need not know how many."""
    rows, time = indices.shape
    tokens, order = indices.sort(dim=1, stable=True)
    begins = torch.zeros_like(tokens)
    begins[:, 1:] = tokens[:, 1:] != tokens[:, :-1]
    first = torch.arange(rows, device=indices.device)[:, None] * time
    places = torch.empty_like(order).scatter_(1, order, begins.cumsum(dim=1) + first)
    of_group = torch.zeros_like(indices).view(-1).scatter_(0, places.reshape(-1), indices.reshape(-1))
    return first.expand(rows, time).reshape(-1).div(max(1, time), rounding_mode="floor"), of_group, places


def _formed(left: Tensor, right: Tensor) -> PerRow:
    """G_b of every row."""
    left, right = wide(left), wide(right)
    if left.shape[2] < _NARROW * right.shape[2]:
        return PerRow(torch.bmm(left.transpose(1, 2), right))
    return PerRow(torch.bmm(right.transpose(1, 2), left).transpose(1, 2).contiguous())


Use = Outer | Lookup | PerRow


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
    if not isinstance(second, PerRow):
        first, second = second, first
    assert isinstance(second, PerRow)
    if isinstance(first, Lookup):
        return first.inner(second.gradients)
    if isinstance(first, Outer):
        return (torch.bmm(wide(first.left.values), second.gradients) * wide(first.right.values)).sum(dim=(1, 2))
    return (first.gradients * second.gradients).flatten(1).sum(dim=1)


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
