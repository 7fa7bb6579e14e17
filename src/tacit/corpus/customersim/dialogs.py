"""How a dialog is written: turn by turn along its agenda, noting where each secret stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from string import Formatter

from tacit.corpus.customersim.agendas import AGENDA_PHRASES, AGENDAS
from tacit.corpus.customersim.people import Person
from tacit.corpus.customersim.utterances import SHARED_PHRASES
from tacit.corpus.customersim.verification import VERIFICATION_PHRASES
from tacit.corpus.record import Span

KINDS = ("NAME", "ADDRESS", "PHONE", "ORDER", "TRACKING")

_CARRIERS = ("Swift Parcel", "Blue Heron Express", "Northline", "City Courier", "Parcel Fox", "Wayfarer Freight")
_AGENDA_WEIGHTS = list(accumulate(agenda.weight for agenda in AGENDAS))
# A secret's symbol in the phrases, and the kind of its span.
_SECRETS = {**{kind: kind for kind in KINDS}, "FIRST": "NAME"}

Template = tuple[tuple[str, str | None], ...]
"""Literal text, each piece followed by the symbol that stands after it."""


def _compile(phrase: str) -> Template:
    return tuple((literal, symbol) for literal, symbol, _, _ in Formatter().parse(phrase))


GRAMMAR: dict[str, tuple[Template, ...]] = {
    symbol: tuple(map(_compile, phrases))
    for symbol, phrases in (SHARED_PHRASES | VERIFICATION_PHRASES | AGENDA_PHRASES).items()
}


def write_dialog(person: Person, rng: Random) -> tuple[str, tuple[Span, ...]]:
    """One dialog with `person` about one of their orders: its text, and the spans of the secrets said in it."""
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
