"""Simulated corpora, by name: records with gold spans, and people who are in none of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tacit.corpus.customersim import held_out_people, profile, simulate_customersim
from tacit.corpus.record import Record
from tacit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Simulator:
    """`records(dialogs, seed, split)`, and `held_out(how_many, seed)`: people of no split, one record each."""

    records: Callable[[int, int, str], Iterator[Record]]
    held_out: Callable[[int, int], Iterator[Record]]


def _held_out_customers(how_many: int, seed: int) -> Iterator[Record]:
    return map(profile, held_out_people(how_many, seed))


SIMULATORS = {"customersim": Simulator(simulate_customersim, _held_out_customers)}


def simulate(simulator: str, dialogs: int, seed: int = 0, split: str = "train") -> Iterator[Record]:
    """The first `dialogs` records of `split`, as the simulator of that name tells them."""
    return _simulator_named(simulator).records(dialogs, seed, split)


def simulate_held_out(simulator: str, how_many: int, seed: int = 0) -> Iterator[Record]:
    """People who are in no split of this seed, for membership tests: one record each, with its secrets as spans."""
    return _simulator_named(simulator).held_out(how_many, seed)


def _simulator_named(name: str) -> Simulator:
    """The simulator of that name."""
    if name not in SIMULATORS:
        raise ConfigError.unknown_name("simulator", name, SIMULATORS)
    return SIMULATORS[name]
