"""Simulated corpora, by name: records with gold spans, and people who are in none of them.

CustomerSim: simulated customer-service dialogs with gold spans, after the corpus of the S-DP and CRT papers.

Dialogs follow fixed agendas and consist of template sentences (Shi et al. 2022, section 5; Zhao et al. 2022,
section 4). People, agendas and sentences are our own. Every dialog asks for the full name and for one or two of
phone, order number and address; where a parcel is on its way, the service gives its tracking number.

G1 (gold). A span contains exactly the characters of one secret as written, and every secret has its span; kinds are
    NAME (full or first name), ADDRESS, PHONE, ORDER and TRACKING.
G2 (disjoint). No user and no secret value is in two splits of one seed, nor among its held-out people.
G3 (reproducible). The same arguments give the same records in every process; asking for more dialogs never changes
    the first ones.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, NamedTuple

from tacit.common.charts import Note, Result
from tacit.data.records import Record
from tacit.errors import ConfigError
from tacit.simulation.dialogs import write_dialog
from tacit.simulation.people import Person, held_out_people, people_of, profile

# A person comes back now and then while among the latest customers: 1 + about Poisson(0.8) dialogs a person.
_RETURNING = 0.44
_LATEST = 400


def simulate_customersim(dialogs: int, seed: int = 0, split: str = "train") -> Iterator[Record]:
    """`dialogs` dialogs of `split`, one record each, in the order in which they took place."""
    if dialogs < 1:
        raise ConfigError(expected="at least one dialog", found=str(dialogs), way_out="ask for one dialog or more")
    return _records(dialogs, seed, split, people_of(split, seed))


def _records(dialogs: int, seed: int, split: str, newcomers: Iterator[Person]) -> Iterator[Record]:
    rng = Random(f"customersim dialogs {split} {seed}")
    latest: deque[Person] = deque(maxlen=_LATEST)
    for number in range(dialogs):
        if latest and rng.random() < _RETURNING:
            person = rng.choice(latest)
        else:
            person = next(newcomers)
            latest.append(person)
        text, spans = write_dialog(person, rng)
        yield Record(id=f"customersim-{split}-{number:06d}", text=text, user=person.user, spans=spans)


@dataclass(frozen=True, slots=True)
class Simulator:
    """`records(dialogs, seed, split)`, and `held_out(how_many, seed)`: people of no split, one record each."""

    records: Callable[[int, int, str], Iterator[Record]]
    held_out: Callable[[int, int], Iterator[Record]]


def _held_out_customers(how_many: int, seed: int) -> Iterator[Record]:
    return map(profile, held_out_people(how_many, seed))


SIMULATORS = {"customersim": Simulator(simulate_customersim, _held_out_customers)}


class SimulationSummary(NamedTuple):
    """Users, and secrets by kind."""

    users: int
    secrets: dict[str, int]


@dataclass(frozen=True)
class SimulatedCorpus(Result):
    """Records that can be iterated over again and again, always the same ones."""

    simulator: str
    dialogs: int
    seed: int
    split: str

    @classmethod
    def of(cls, simulator: str, dialogs: int, seed: int, split: str) -> "SimulatedCorpus":
        """Of a simulator that exists, with dialogs and a split that it can have."""
        simulate(simulator, dialogs, seed, split)
        return cls(simulator, dialogs, seed, split)

    def __iter__(self) -> Iterator[Record]:
        users: set[str | None] = set()
        kinds: Counter[str] = Counter()
        for record in simulate(self.simulator, self.dialogs, self.seed, self.split):
            users.add(record.user)
            kinds.update(span.kind for span in record.spans or ())
            yield record
        vars(self)["summary"] = SimulationSummary(len(users), dict(sorted(kinds.items())))

    @cached_property
    def summary(self) -> SimulationSummary:
        """What is in the corpus; known once its records were iterated over."""
        deque(self, maxlen=0)
        summary: SimulationSummary = vars(self)["summary"]
        return summary

    def tables(self) -> Iterator[Note]:
        """What is in it."""
        users, secrets = self.summary
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in secrets.items())
        yield Note(f"{self.dialogs:,} dialogs of {users:,} users; secrets: {kinds}")

    def to_json(self) -> dict[str, Any]:
        """What was simulated, and what is in it."""
        about = {"simulator": self.simulator, "dialogs": self.dialogs, "seed": self.seed, "split": self.split}
        return about | self.summary._asdict()


def simulate(simulator: str, dialogs: int, seed: int = 0, split: str = "train") -> Iterator[Record]:
    """The first `dialogs` records of `split`, from the simulator of that name."""
    return _simulator_named(simulator).records(dialogs, seed, split)


def simulate_held_out(simulator: str, how_many: int, seed: int = 0) -> Iterator[Record]:
    """People who are in no split of this seed, for membership tests: one record each, with its secrets as spans."""
    return _simulator_named(simulator).held_out(how_many, seed)


def _simulator_named(name: str) -> Simulator:
    """The simulator of that name."""
    if name not in SIMULATORS:
        raise ConfigError.unknown_name("simulator", name, SIMULATORS)
    return SIMULATORS[name]
