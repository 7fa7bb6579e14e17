"""Numbers as they are printed in a claim: never smaller than they are."""

import math


def rounded_up(value: float, digits: int) -> str:
    """`value` to `digits` significant digits, never downwards: what is printed must be true."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{math.ceil(value / unit - 1e-9) * unit:.{digits}g}"
