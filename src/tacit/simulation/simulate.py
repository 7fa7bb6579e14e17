"""CustomerSim: simulated customer-service dialogs with gold spans, after the corpus of the S-DP and CRT papers.

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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from random import Random
from string import Formatter
from typing import Any, NamedTuple

from tacit.common.charts import Note, Result
from tacit.data.records import Message, Record, Span, inside, turns
from tacit.errors import ConfigError
from tacit.simulation.people import Person, held_out_people, people_of, profile
from tacit.simulation.phrases import AGENDA_PHRASES, SHARED_PHRASES, VERIFICATION_PHRASES

SIMULATORS = ("customersim",)
FORMATS = ("text", "messages")
_ROLES = {"SYS": "assistant", "USR": "user"}
KINDS = ("NAME", "ADDRESS", "PHONE", "ORDER", "TRACKING")
_CARRIERS = ("Swift Parcel", "Blue Heron Express", "Northline", "City Courier", "Parcel Fox", "Wayfarer Freight")

# A person comes back now and then while among the latest customers: 1 + about Poisson(0.8) dialogs per person.
_RETURNING = 0.44
_LATEST = 400

_ONE_OR_TWO = (
    *(("phone",), ("order",), ("address",), ("phone", "order"), ("order", "phone")),
    *(("order", "address"), ("address", "order"), ("phone", "address"), ("address", "phone")),
)


@dataclass(frozen=True, slots=True)
class Agenda:
    """One thing a person may want, with the phrases `{name}_request` and `{name}_outcome`.

    `reaction` names the first answer to it, `verifications` the ways to be asked after the name (one or two
    questions each), `side_questions` what else the person may want to know.
    """

    name: str
    weight: int
    reaction: str = "willing"
    verifications: tuple[tuple[str, ...], ...] = _ONE_OR_TWO
    side_questions: tuple[str, ...] = ("signature", "mail", "hours")


AGENDAS = (
    Agenda("track", 28),
    Agenda("delayed", 17, reaction="sorry"),
    Agenda("missing", 12, reaction="sorry"),
    Agenda("damaged", 11, reaction="sorry", side_questions=("cost", "signature", "mail", "hours")),
    Agenda("return", 11, side_questions=("cost", "mail", "hours")),
    Agenda("refund", 7, reaction="sorry", side_questions=("mail", "hours")),
    Agenda("change_address", 9, verifications=(("order", "new_address"), ("phone", "new_address"))),
    Agenda("cancel", 5, side_questions=("cost", "mail", "hours")),
)

_AGENDA_WEIGHTS = list(accumulate(agenda.weight for agenda in AGENDAS))

# A secret's symbol in the phrases, and the kind of its span.
_SECRETS = {**{kind: kind for kind in KINDS}, "FIRST": "NAME"}
Template = tuple[tuple[str, str | None], ...]
"""Literal text, each piece followed by the symbol after it."""

GRAMMAR: dict[str, tuple[Template, ...]] = {
    symbol: tuple(tuple(part[:2] for part in Formatter().parse(phrase)) for phrase in phrases)
    for symbol, phrases in (SHARED_PHRASES | VERIFICATION_PHRASES | AGENDA_PHRASES).items()
}


def simulate(simulator: str, dialogs: int, seed: int = 0, split: str = "train") -> Iterator[Record]:
    """The first `dialogs` records of `split`, one dialog each, in the order in which they took place."""
    _check_simulator(simulator)
    if dialogs < 1:
        raise ConfigError(expected="at least one dialog", found=str(dialogs), way_out="ask for one dialog or more")
    return _records(dialogs, seed, split, people_of(split, seed))


def simulate_held_out(simulator: str, how_many: int, seed: int = 0) -> Iterator[Record]:
    """People who are in no split of this seed, for membership tests: one record each, with its secrets as spans."""
    _check_simulator(simulator)
    return map(profile, held_out_people(how_many, seed))


def as_chat(record: Record) -> Record:
    """A dialog as messages: what the service says is the assistant's, what the customer says is the user's."""
    text, spans, messages = "", list[Span](), list[Message]()
    for start, end in turns(record.text):
        speaker, _, content = record.text[start:end].removesuffix("\n").partition(": ")
        role, shift = _ROLES[speaker], start + len(speaker) + 2
        at = len(text) + len(role) + 2
        spans += [
            span._replace(start=at + span.start, end=at + span.end) for span in inside(record.spans or (), shift, end)
        ]
        messages.append(Message(role, at, at + len(content)))
        text += f"{role}: {content}\n"
    return replace(record, text=text, spans=tuple(spans), messages=tuple(messages))


def _check_simulator(name: str) -> None:
    if name not in SIMULATORS:
        raise ConfigError.unknown_name("simulator", name, SIMULATORS)


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
    format: str = "text"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigError.unknown_name("format", self.format, FORMATS)
        simulate(self.simulator, self.dialogs, self.seed, self.split)  # what cannot be simulated is refused now

    def __iter__(self) -> Iterator[Record]:
        users: set[str | None] = set()
        kinds: Counter[str] = Counter()
        for record in simulate(self.simulator, self.dialogs, self.seed, self.split):
            users.add(record.user)
            kinds.update(span.kind for span in record.spans or ())
            yield as_chat(record) if self.format == "messages" else record
        vars(self)["summary"] = SimulationSummary(len(users), dict(sorted(kinds.items())))

    @cached_property
    def summary(self) -> SimulationSummary:
        """What is in the corpus; known once its records were iterated over."""
        deque(self, maxlen=0)
        summary: SimulationSummary = vars(self)["summary"]
        return summary

    def tables(self) -> Iterator[Note]:
        users, secrets = self.summary
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in secrets.items())
        yield Note(f"{self.dialogs:,} dialogs of {users:,} users; secrets: {kinds}")

    def to_json(self) -> dict[str, Any]:
        """What was simulated, and what is in it."""
        return asdict(self) | self.summary._asdict()


def _records(dialogs: int, seed: int, split: str, newcomers: Iterator[Person]) -> Iterator[Record]:
    rng = Random(f"customersim dialogs {split} {seed}")
    latest: deque[Person] = deque(maxlen=_LATEST)
    for number in range(dialogs):
        if latest and rng.random() < _RETURNING:
            person = rng.choice(latest)
        else:
            person = next(newcomers)
            latest.append(person)
        text, spans = _write_dialog(person, rng)
        yield Record(id=f"customersim-{split}-{number:06d}", text=text, user=person.user, spans=spans)


def _write_dialog(person: Person, rng: Random) -> tuple[str, tuple[Span, ...]]:
    """One dialog with `person` about one of their orders: its text, and the spans of its secrets."""
    order = rng.choice(person.orders)
    values = {
        "NAME": person.name,
        "FIRST": person.first_name,
        "ADDRESS": person.address,
        "PHONE": person.phone,
        "ORDER": order.number,
        "TRACKING": order.tracking,
        "item": order.item,
        "carrier": rng.choice(_CARRIERS),
    }
    page = _Page(values, rng, user_types_lower_case=rng.random() < 0.04)
    _talk(page, rng)
    return "".join(page.pieces), tuple(page.spans)


def _talk(page: "_Page", rng: Random) -> None:
    agenda = rng.choices(AGENDAS, cum_weights=_AGENDA_WEIGHTS)[0]
    page.system("welcome")
    page.user(*_maybe(rng, 0.2, "user_hello"), f"{agenda.name}_request")
    page.system(*_maybe(rng, 0.3, agenda.reaction), "ask_name")
    page.user("give_name")
    acknowledgement = "thanks_name"
    for thing in rng.choice(agenda.verifications):
        page.system(*_maybe(rng, 0.7, acknowledgement), f"ask_{thing}")
        page.user(f"give_{thing}")
        acknowledgement = "thanks"
    if rng.random() < 0.05:
        page.system("wait")
        page.user("patience")
    page.system(*_maybe(rng, 0.2, "found"), f"{agenda.name}_outcome", *_maybe(rng, 0.5, "anything_else"))
    if rng.random() < 0.1:
        question = rng.choice(agenda.side_questions)
        page.user(f"ask_{question}")
        page.system(f"answer_{question}")
    page.user("user_done")
    if rng.random() < 0.5:
        page.system("farewell")


def _maybe(rng: Random, probability: float, act: str) -> tuple[str, ...]:
    return (act,) if rng.random() < probability else ()


@dataclass(slots=True)
class _Page:
    """The dialog so far. A turn is one line; the acts of a turn are parted by one space."""

    values: Mapping[str, str]
    rng: Random
    user_types_lower_case: bool
    pieces: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    length: int = 0

    def system(self, *acts: str) -> None:
        self._turn("SYS:", acts, lower_case=False)

    def user(self, *acts: str) -> None:
        self._turn("USR:", acts, lower_case=self.user_types_lower_case)

    def _turn(self, speaker: str, acts: tuple[str, ...], lower_case: bool) -> None:
        self._write(speaker)
        for act in acts:
            self._write(" ")
            self._say(act, lower_case)
        self._write("\n")

    def _say(self, symbol: str, lower_case: bool) -> None:
        value = self.values.get(symbol)
        if value is not None:
            start = self.length
            self._write(value.lower() if lower_case else value)
            if symbol in _SECRETS:
                self.spans.append(Span(start, self.length, _SECRETS[symbol]))
            return
        for literal, inner in self.rng.choice(GRAMMAR[symbol]):
            self._write(literal.lower() if lower_case else literal)
            if inner is not None:
                self._say(inner, lower_case)

    def _write(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)
