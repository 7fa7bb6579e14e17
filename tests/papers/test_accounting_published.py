"""The papers' printed epsilons come out of the accountants they were printed with."""

import math

import pytest

from tacit.papers.mechanisms import SDP_ORDERS, UEDP_ORDERS, published_epsilon


@pytest.mark.parametrize(
    ("rate", "noise", "events", "printed"),
    [
        (1 / 9996, 0.5, 999_600, 4.886),
        (1 / 9996, 0.5, 37 * 27_499, 4.911),
        (1 / 10010, 0.6, 1_001_000, 2.508),
        (1 / 3337, 0.7, 50 * 10_218, 2.744),
    ],
)
def test_sdp(rate: float, noise: float, events: int, printed: float) -> None:
    """S-DP, delta 8e-5, to the last digit."""
    assert published_epsilon(rate, noise, events, 8e-5, SDP_ORDERS) == pytest.approx(printed, abs=6e-4)


# users drawn / users, sentences, sensitive sentences and epsilon at T = 500 by kind of entity,
# user-level epsilon at T = 50 and 500, organisations at T = 50 with f_E and f_E+
UEDP = {
    "CONLL-2003": (
        50 / 946,
        14_040,
        {
            "Org": (5_187, 0.61),
            "Loc": (5_433, 0.63),
            "Person": (4_406, 0.52),
            "Misc": (3_438, 0.44),
            "All": (11_176, 1.31),
        },
        (1.18, 3.40),
        (0.62, 0.36),
    ),
    "AG": (
        500 / 7_536,
        112_000,
        {
            "Org": (58_177, 1.07),
            "Loc": (39_988, 0.73),
            "GPE": (18_506, 0.39),
            "PII": (42_683, 0.78),
            "All": (67_157, 1.24),
        },
        (1.48, 4.34),
        (0.75, 0.47),
    ),
    "SEC": (
        100 / 1_592,
        5_188,
        {"Org": (1_955, 0.73), "Loc": (273, 0.24), "GPE": (60, 0.19), "PII": (357, 0.26), "All": (2_166, 0.81)},
        (1.40, 4.08),
        (0.71, 0.38),
    ),
}


def uedp_settings() -> list[tuple[str, float, int, float]]:
    """The 27 printed values: what, rate, steps, epsilon."""
    rows = []
    for data, (users, sentences, kinds, by_user, organisations) in UEDP.items():
        rows += [(f"{data} user {steps}", users, steps, e) for steps, e in zip((50, 500), by_user, strict=True)]
        rows.append((f"{data} f_E", users * 0.5, 50, organisations[0]))
        rows.append((f"{data} f_E+", users * 0.5 * kinds["Org"][0] / sentences, 50, organisations[1]))
        rows += [(f"{data} {kind}", users * 0.5 * n / sentences, 500, e) for kind, (n, e) in kinds.items()]
    return rows


@pytest.mark.parametrize(("what", "rate", "steps", "printed"), uedp_settings())
def test_uedp(what: str, rate: float, steps: int, printed: float) -> None:
    """Noise 2, delta 1e-5, whole orders up to 64: all 27 to .012, 20 of them to the last digit."""
    assert published_epsilon(rate, 2.0, steps, 1e-5, UEDP_ORDERS) == pytest.approx(printed, abs=0.012), what


def test_uedp_is_27_values_of_which_20_round_exactly() -> None:
    """What `reproduced` means."""
    rows = uedp_settings()
    found = [published_epsilon(rate, 2.0, steps, 1e-5, UEDP_ORDERS) for _, rate, steps, _ in rows]
    exact = [abs(round(e, 2) - printed) < 1e-9 for e, (*_, printed) in zip(found, rows, strict=True)]
    assert len(rows) == 27
    assert sum(exact) == 20


def test_the_floor_of_a_truncated_grid() -> None:
    """UeDP's range .18-.20 is the floor log(1/delta)/64 of its orders, not a property of the training."""
    nothing = published_epsilon(1e-9, 2.0, 1, 1e-5, [*UEDP_ORDERS, 65.0])
    assert nothing == pytest.approx(math.log(1e5) / 64, rel=1e-6)


def test_a_draw_of_everybody_is_the_plain_gaussian() -> None:
    """Divergence order / (2 noise^2) a step, by hand."""
    expected = min(7 * order / (2 * 2.0**2) + math.log(1e5) / (order - 1) for order in UEDP_ORDERS)
    assert published_epsilon(1.0, 2.0, 7, 1e-5, UEDP_ORDERS) == pytest.approx(expected, rel=1e-9)
