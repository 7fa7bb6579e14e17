"""What every accountant must do; adding an accountant is adding a row."""

import math
from dataclasses import dataclass, replace
from typing import cast

import pytest

from tacit.errors import ClaimRefused
from tacit.privacy.account import account, library_pld
from tacit.privacy.events import (
    Composition,
    Event,
    ExposedGaussian,
    Free,
    Gaussian,
    NoisyEvent,
    Relation,
    SampledGaussian,
    Unbounded,
)
from tacit.privacy.pld import PLD
from tacit.privacy.profile import CLOSED_FORM, Accountant, Profile
from tacit.privacy.renyi import RDP

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE


@dataclass(frozen=True)
class Product:
    """`account` in the shape of an accountant."""

    name: str = "product"

    def profile(self, composition: Composition) -> Profile:
        """The product's profile."""
        return account(composition)


GAUSSIAN = Gaussian(4.0, 1, ZERO_OUT)
SAMPLED = SampledGaussian(1.0, 0.02, 1, ZERO_OUT)
EXPOSED = ExposedGaussian(1.0, 0.02, ZERO_OUT)
COPIES = SampledGaussian(2.0, 0.02, 3, ZERO_OUT)

TABLE: list[tuple[Accountant | Product, NoisyEvent]] = [
    (CLOSED_FORM, GAUSSIAN),
    (CLOSED_FORM, EXPOSED),
    (PLD, GAUSSIAN),
    (PLD, SAMPLED),
    (PLD, EXPOSED),
    (PLD, COPIES),
    (RDP, GAUSSIAN),
    (RDP, SAMPLED),
    (RDP, EXPOSED),
    (RDP, COPIES),
    (library_pld(), GAUSSIAN),
    (library_pld(), SAMPLED),
    (Product(), SAMPLED),
    (Product(), EXPOSED),
]
every = pytest.mark.parametrize(
    ("accountant", "event"), TABLE, ids=[f"{a.name.split(' ')[0]}-{type(e).__name__}" for a, e in TABLE]
)
DELTA = 1e-5


@every
def test_nothing_costs_nothing(accountant: Accountant | Product, event: NoisyEvent) -> None:
    """The empty composition, free steps and steps that never took place."""
    free: Composition = ((Free("redacted view"), 10**9),)
    never: Composition = ((event, 0), (Unbounded("never happened"), 0))
    for composition in ((), free, never):
        profile = accountant.profile(composition)
        assert profile.epsilon(DELTA) == profile.delta(0.0) == profile.mu() == 0.0


@every
def test_no_promise_costs_everything(accountant: Accountant | Product, event: NoisyEvent) -> None:
    """One step without noise spoils the whole."""
    profile = accountant.profile(((event, 5), (Unbounded("plain step"), 1)))
    assert profile.epsilon(DELTA) == profile.mu() == math.inf
    assert profile.delta(100.0) == 1.0


@every
def test_many_at_once_is_many_in_a_row(accountant: Accountant | Product, event: NoisyEvent) -> None:
    """(event, 6) is six times (event, 1), in any order, with free steps between."""
    at_once = accountant.profile(((event, 6),))
    in_a_row = accountant.profile(((event, 1), (Free("public"), 3)) * 4 + ((event, 2),))
    assert in_a_row.epsilon(DELTA) == pytest.approx(at_once.epsilon(DELTA), rel=1e-12)
    assert in_a_row.relation == at_once.relation == event.relation


@every
def test_more_steps_cost_more(accountant: Accountant | Product, event: NoisyEvent) -> None:
    """Monotone in the number of steps."""
    spent = [accountant.profile(((event, steps),)).epsilon(DELTA) for steps in (1, 4, 40)]
    assert spent == sorted(spent)
    assert spent[0] < spent[-1] < math.inf


@every
def test_strangers_are_refused(accountant: Accountant | Product, event: NoisyEvent) -> None:
    """An event nobody proved anything about, and a count that means nothing."""
    stranger = cast(Event, "laplace")
    with pytest.raises(ClaimRefused, match="event with a proof"):
        accountant.profile(((event, 1), (stranger, 1)))
    with pytest.raises(ClaimRefused, match="count"):
        accountant.profile(((event, -1),))


@every
def test_relations_are_kept_apart(accountant: Accountant | Product, event: NoisyEvent) -> None:
    """Two relations in one composition answer no question."""
    with pytest.raises(ClaimRefused, match="one neighboring relation"):
        accountant.profile(((event, 1), (Gaussian(1.0, 1, REPLACE), 1)))


@every
def test_delta_and_epsilon_are_inverse(accountant: Accountant | Product, event: NoisyEvent) -> None:
    """delta(epsilon(delta)) is delta, never above it by more than rounding."""
    profile = accountant.profile(((event, 50),))
    for delta in (1e-3, 1e-5, 1e-7):
        found = profile.delta(profile.epsilon(delta))
        assert found <= delta * (1 + 1e-6)
        assert found == pytest.approx(delta, rel=1e-3)


@every
def test_a_relation_with_twice_the_sensitivity_costs_more(accountant: Accountant | Product, event: NoisyEvent) -> None:
    """Replacing costs at least as much as blanking."""
    blanked = accountant.profile(((event, 20),)).epsilon(DELTA)
    replaced = accountant.profile(((replace(event, relation=REPLACE), 20),))
    assert replaced.epsilon(DELTA) > blanked
    assert replaced.relation is REPLACE
