"""CustomerSim: simulated customer-service dialogs with gold spans, after the corpus of the S-DP and CRT papers.

Dialogs follow fixed agendas and are said in template sentences (Shi et al. 2022, section 5; Zhao et al. 2022,
section 4). People, agendas and sentences are our own. Every dialog asks for the full name and for one or two of
phone, order number and address; where a parcel is on its way, the service gives its tracking number.

G1 (gold). A span holds exactly the characters of one secret as said, and every secret said has its span; kinds are
    NAME (full or first name), ADDRESS, PHONE, ORDER and TRACKING.
G2 (disjoint). No user and no secret value is in two splits of one seed, nor among its held-out people.
G3 (reproducible). The same arguments give the same records in every process; asking for more dialogs never changes
    the first ones.
"""

from collections import deque
from collections.abc import Iterator
from random import Random

from tacit.corpus.customersim.dialogs import KINDS, write_dialog
from tacit.corpus.customersim.people import SPLITS, Order, Person, held_out_people, people_of, profile
from tacit.corpus.record import Record
from tacit.errors import ConfigError

__all__ = ["KINDS", "SPLITS", "Order", "Person", "held_out_people", "people_of", "profile", "simulate_customersim"]

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
