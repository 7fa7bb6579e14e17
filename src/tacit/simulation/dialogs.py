"""How a dialog is written: turn by turn along its agenda, noting the position of each secret.

What dialogs are about: eight fixed agendas, how each is opened, verified and settled, in our own sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from string import Formatter

from tacit.data.records import Span
from tacit.simulation.people import Person
from tacit.simulation.phrases import SHARED_PHRASES, VERIFICATION_PHRASES

_ONE_OR_TWO = (
    ("phone",),
    ("order",),
    ("address",),
    ("phone", "order"),
    ("order", "phone"),
    ("order", "address"),
    ("address", "order"),
    ("phone", "address"),
    ("address", "phone"),
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

AGENDA_PHRASES: dict[str, tuple[str, ...]] = {
    "tracking_line": (
        "Here is your tracking number: {TRACKING}.",
        "You can follow it with {TRACKING}.",
        "Please use tracking number {TRACKING}.",
        "{TRACKING} is the tracking number.",
        "Just enter {TRACKING} in our app.",
        "Tracking number with {carrier}: {TRACKING}.",
        "To see each stop, look for {TRACKING}.",
        "It travels under the number {TRACKING}.",
    ),
    "track_request": (
        "Where is the {item} I bought {ago}?",
        "I would like to know where my {item} is.",
        "I ordered a {item} {ago} and lost the link.",
        "Can you check how far my {item} has come?",
        "Could you look up the parcel with my {item}?",
        "I need to know when my {item} arrives.",
        "How do I track my {item}?",
        "Is my {item} on the way yet?",
    ),
    "track_outcome": (
        "Order {ORDER} left {depot} on {weekday}. {tracking_line}",
        "{carrier} has it. {tracking_line}",
        "It is now at {depot}. {tracking_line}",
        "Order {ORDER} is on the truck. {tracking_line}",
        "It is {few} days away. {tracking_line}",
        "It should come on {weekday}. {tracking_line}",
        "It is on its way to {ADDRESS}. {tracking_line}",
        "{tracking_line}",
        "{tracking_line}",
    ),
    "delayed_request": (
        "My {item} should have been here {ago}.",
        "I was promised a {item} for {weekday}.",
        "I have been waiting for my {item} for {few} weeks.",
        "Why does my {item} take so long?",
        "The date for my {item} keeps moving.",
        "My order with the {item} is late again.",
        "I need the {item} by {weekday}, and it is late.",
    ),
    "delayed_outcome": (
        "Heavy weather stopped the trucks. {tracking_line}",
        "Order {ORDER} was held up at {depot}. {tracking_line}",
        "Your {item} went out this morning. {tracking_line}",
        "The label was printed again. {tracking_line}",
        "It now goes by express. {tracking_line}",
        "It comes to {ADDRESS} on {weekday}. {tracking_line}",
        "Order {ORDER} leaves {depot} tonight.",
        "Order {ORDER} ships on {weekday}.",
    ),
    "missing_request": (
        "The app says my {item} was delivered, but it is not here.",
        "My {item} never arrived.",
        "I came home and there was no {item}.",
        "Somebody took the {item} from my porch.",
        "No neighbor has my {item}.",
        "I never signed for the {item}.",
        "The box for my {item} was empty.",
    ),
    "missing_outcome": (
        "The driver left it at the wrong door. {tracking_line}",
        "{carrier} will search for it. {tracking_line}",
        "We send a new one to {ADDRESS}. {tracking_line}",
        "It is still at {depot}. {tracking_line}",
        "The driver comes back on {weekday}. {tracking_line}",
        "I reported order {ORDER} as lost. A new {item} is on its way.",
    ),
    "damaged_request": (
        "My {item} came broken.",
        "The {item} I got {ago} has a crack.",
        "You sent me the wrong {item}.",
        "A part of my {item} is missing.",
        "My new {item} does not work at all.",
        "The {item} got wet and is ruined.",
        "The {item} stopped working after {few} days.",
    ),
    "damaged_outcome": (
        "A new one goes to {ADDRESS}. {tracking_line}",
        "A replacement comes on {weekday}. {tracking_line}",
        "{carrier} brings you a new one. {tracking_line}",
        "The right one is in the mail. {tracking_line}",
        "We exchange it within {few} days. {tracking_line}",
        "We refund order {ORDER} in full.",
    ),
    "return_line": (
        "The label has the tracking number {TRACKING}.",
        "Your return travels as {TRACKING}.",
        "Please keep the tracking number {TRACKING}.",
        "You can follow the return with {TRACKING}.",
        "At the counter, show them {TRACKING}.",
    ),
    "return_request": (
        "I would like to send a {item} back.",
        "How do I return a {item}?",
        "I changed my mind about the {item} from {ago}.",
        "The {item} does not fit, I want to return it.",
        "I got the same {item} twice and need to give one back.",
        "I need a return label for a {item}.",
        "Can I still return the {item}?",
    ),
    "return_outcome": (
        "You have {few} weeks. {return_line}",
        "{carrier} collects it on {weekday}. {return_line}",
        "I have sent you a label. {return_line}",
        "Please hand it in by {weekday}. {return_line}",
        "We accept the return of order {ORDER}. {return_line}",
        "Any counter takes it. Just show them order {ORDER}.",
    ),
    "refund_request": (
        "I sent the {item} back and still have no money.",
        "When do I get my refund for the {item}?",
        "You charged me twice for one {item}.",
        "I should be paid back for the {item}.",
        "My card was charged for the wrong {item}.",
    ),
    "refund_outcome": (
        "The refund for order {ORDER} was sent on {weekday}.",
        "I have just released the money.",
        "You will be paid back within {few} days.",
        "I have taken back the charge for order {ORDER}.",
        "The money for order {ORDER} is on its way.",
    ),
    "change_address_request": (
        "I am moving. Can my {item} go elsewhere?",
        "I typed the wrong street when I ordered a {item}.",
        "Please send my {item} to another address.",
        "The driver could not find me, he has a {item}.",
        "I need to change where my {item} goes.",
    ),
    "change_address_outcome": (
        "Done, it goes there on {weekday}.",
        "Done, it goes to {ADDRESS}. {tracking_line}",
        "{carrier} was told. {tracking_line}",
        "I changed the label. {tracking_line}",
        "It had not left {depot} yet. {tracking_line}",
        "That adds about {few} days. {tracking_line}",
        "All set, order {ORDER} goes there.",
    ),
    "cancel_request": (
        "I want to cancel my order for a {item}.",
        "Please stop my order, I found another {item}.",
        "I bought a second {item} by mistake.",
        "Please cancel the {item} I ordered {ago}.",
        "I do not need the {item} any more. Can I cancel?",
    ),
    "cancel_outcome": (
        "It is cancelled, and nothing will be charged.",
        "I stopped it before it left {depot}.",
        "Order {ORDER} is cancelled.",
        "I stopped order {ORDER}. The refund takes {few} days.",
        "Too late to stop it. Just turn it away at the door.",
    ),
}

KINDS = ("NAME", "ADDRESS", "PHONE", "ORDER", "TRACKING")
_CARRIERS = ("Swift Parcel", "Blue Heron Express", "Northline", "City Courier", "Parcel Fox", "Wayfarer Freight")
_AGENDA_WEIGHTS = list(accumulate(agenda.weight for agenda in AGENDAS))


# A secret's symbol in the phrases, and the kind of its span.
_SECRETS = {**{kind: kind for kind in KINDS}, "FIRST": "NAME"}
Template = tuple[tuple[str, str | None], ...]
"""Literal text, each piece followed by the symbol after it."""


def _compile(phrase: str) -> Template:
    return tuple((literal, symbol) for literal, symbol, _, _ in Formatter().parse(phrase))


GRAMMAR: dict[str, tuple[Template, ...]] = {
    symbol: tuple(map(_compile, phrases))
    for symbol, phrases in (SHARED_PHRASES | VERIFICATION_PHRASES | AGENDA_PHRASES).items()
}


def write_dialog(person: Person, rng: Random) -> tuple[str, tuple[Span, ...]]:
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
