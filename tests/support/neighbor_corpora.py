"""Random small corpora for the neighbor fuzzer, and the corpora that differ from them in one unit.

A record is a draft: turns made of parts, each public text or a secret of some kind. Rows have different lengths; some
records are equal, some differ in their secrets, kinds, label, marks or user only; listed strings also occur unmarked,
marked as something else, and inside longer ones; some records are one secret and nothing else, some have none.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from tacit.data.records import Message, Record, Span
from tacit.privacy.plan import Neighbors, Unit

NAMES = ("Ann", "Ann Lee", "Bo", "Cid Ray")
ALIASES = {"Ann Lee": "Bunny", "Bo": "Bobby"}
_RENAMED = {"Ann": "Zo", "Ann Lee": "Ann Zo", "Bo": "Zu", "Cid Ray": "Zi Za", "Bunny": "Zoza", "Bobby": "Zuza"}
_WORDS = ("it", "rains on", "the small town", "we met", "at nine", "and", "nobody came to the old station", "pay")
_OTHER_KIND = {"NAME": "PLACE", "PLACE": "NAME", "ID": "ID"}
LABELS = ("x", "y")
ROLES = ("user", "assistant")
USERS = ("u0", "u2", "u4")  # on the training side, whatever share is held out
HELD_OUT_USERS = ("h5", "h11")


@dataclass(frozen=True)
class Part:
    """A piece of a turn; public where it has no kind."""

    text: str
    kind: str | None = None


@dataclass(frozen=True)
class Draft:
    """A record to be; a turn is a sentence too."""

    id: str
    user: str
    label: str
    turns: tuple[tuple[Part, ...], ...]

    def record(self, chat: bool) -> Record:
        text, spans, messages = "", [], []
        for number, turn in enumerate(self.turns):
            role = ROLES[number % 2]
            text += f"{role}: " * chat
            start = len(text)
            for part in turn:
                if part.kind is not None:
                    spans.append(Span(len(text), len(text) + len(part.text), part.kind))
                text += part.text
            messages.append(Message(role, start, len(text) - 1))  # without the line break
        return Record(self.id, text, self.user, self.label, tuple(spans), tuple(messages) if chat else None)


def some_drafts(chance: Random) -> list[Draft]:
    """8 to 12 drafts; the first have what every mechanism needs: marked and unmarked ones, names, users, twins."""
    drafts = [
        _draft(chance, 0, [Part("we met "), Part("Ann", "NAME"), Part(" and "), Part("Bo", "NAME")]),
        _draft(chance, 1, [Part("it rains")], more=False),
        _draft(chance, 2, [Part("we met ann at nine")], more=False),
        _draft(chance, 3, [Part("in "), Part("Ann", "PLACE"), Part(" it rains")]),
        _draft(chance, 4, [Part("pay "), Part("4711", "ID")]),
    ]
    unmarked = _changed(drafts[3], None, lambda part: replace(part, kind=None))
    relabeled = replace(drafts[4], label=LABELS[1 - LABELS.index(drafts[4].label)])
    of_other_kinds = _changed(drafts[0], None, lambda part: replace(part, kind=_OTHER_KIND.get(part.kind or "")))
    drafts += [replace(unmarked, id="r5"), replace(relabeled, id="r6"), replace(of_other_kinds, id="r7")]
    for number in range(len(drafts), chance.randint(8, 12)):
        drafts.append(_twin(chance, number, chance.choice(drafts)) if chance.random() < 0.5 else _draft(chance, number))
    return drafts


def _draft(chance: Random, number: int, first: list[Part] | None = None, more: bool = True) -> Draft:
    turns = [first or _turn(chance)] + [_turn(chance) for _ in range(chance.choice((0, 0, 1, 2)) if more else 0)]
    ended = tuple((*turn, Part(".\n")) for turn in turns)
    return Draft(f"r{number}", chance.choice(USERS), chance.choice(LABELS), ended)


def _turn(chance: Random) -> list[Part]:
    if chance.random() < 0.15:
        return [_secret(chance)]  # nothing else
    parts: list[Part] = []
    for _ in range(chance.randint(1, 3)):
        parts.append(Part(f"{chance.choice(_WORDS)} "))
        if chance.random() < 0.5:
            unmarked = Part(chance.choice((*NAMES, "bunny", "Bobby", "12")))
            parts.append(_secret(chance) if chance.random() < 0.7 else unmarked)
            parts.append(Part(" "))
    return parts


def _secret(chance: Random) -> Part:
    kind = chance.choice(("NAME", "NAME", "PLACE", "ID"))
    return Part(str(chance.randint(0, 10**6)) if kind == "ID" else chance.choice(NAMES), kind)


def _twin(chance: Random, number: int, draft: Draft) -> Draft:
    """Equal but for the id and, by chance, the label, the user, the marks or the secrets."""
    twin = replace(draft, id=f"r{number}")
    if chance.random() < 0.4:
        twin = replace(twin, label=chance.choice(LABELS))
    if chance.random() < 0.5:
        twin = replace(twin, user=chance.choice(USERS))
    if chance.random() < 0.3:
        twin = _changed(twin, None, lambda part: replace(part, kind=None))
    if chance.random() < 0.4:
        twin = _changed(twin, None, lambda part: part if part.kind is None else _secret_like(chance, part))
    return twin


def _secret_like(chance: Random, part: Part) -> Part:
    fresh = str(chance.randint(0, 10**8)) if part.kind == "ID" else chance.choice(("Zed", "Quentin Quirk", "Yo"))
    return replace(part, text=fresh)


def _changed(draft: Draft, turn: int | None, change: Callable[[Part], Part]) -> Draft:
    """With `change` on every part but the ends of turns; in one turn, or in all."""
    turns = tuple(
        tuple(change(part) if part.text != ".\n" else part for part in parts) if turn in (None, number) else parts
        for number, parts in enumerate(draft.turns)
    )
    return replace(draft, turns=turns)


@dataclass(frozen=True)
class Place:
    """A record as training counts them: a draft, or one of its turns."""

    draft: int
    turn: int | None
    id: str


def places(drafts: Sequence[Draft], cut: bool) -> list[Place]:
    """All records."""
    if not cut:
        return [Place(number, None, draft.id) for number, draft in enumerate(drafts)]
    return [
        Place(number, turn, f"{draft.id}/{turn}")
        for number, draft in enumerate(drafts)
        for turn in range(len(draft.turns))
    ]


@dataclass(frozen=True)
class Other:
    """A neighboring corpus: its drafts, the ids of the records that the unit owns, and what was done to them."""

    name: str
    drafts: tuple[Draft, ...]
    owned: frozenset[str]
    entity: str | None = None


def text_of(drafts: Sequence[Draft], place: Place) -> str:
    """The text of a record."""
    turns = drafts[place.draft].turns
    chosen = turns if place.turn is None else (turns[place.turn],)
    return "".join(part.text for turn in chosen for part in turn)


def strings_of(entity: str, aliases: bool) -> tuple[str, ...]:
    """What the entity is called."""
    return (entity, ALIASES[entity]) if aliases and entity in ALIASES else (entity,)


def has_entity(text: str, entity: str, aliases: bool) -> bool:
    """Whether a string of the entity is in the text, as whole words."""
    return any(re.search(rf"\b{string}\b", text, re.IGNORECASE) for string in strings_of(entity, aliases))


def secrets_replaced(
    drafts: Sequence[Draft], owned: Sequence[Place], kinds: Sequence[str], chance: Random, same_length: bool
) -> Other:
    """Other secrets in the records of `owned`, also of other lengths; `kinds` are those that the policy marks."""

    def change(part: Part) -> Part:
        if part.kind not in kinds:
            return part
        return replace(part, text="#" * len(part.text)) if same_length else _secret_like(chance, part)

    changed = list(drafts)
    for place in owned:
        changed[place.draft] = _changed(changed[place.draft], place.turn, change)
    return Other("secrets replaced", tuple(changed), frozenset(place.id for place in owned))


def text_replaced(drafts: Sequence[Draft], owned: Sequence[Place], chance: Random, relabel: bool) -> Other:
    """Other public words, and another label where it belongs to the record; marked strings stay, as routing does."""
    changed = list(drafts)
    for place in owned:
        more = f" {chance.choice(_WORDS)} {chance.randint(1, 10**4)}x " * chance.randint(1, 9)
        changed[place.draft] = _changed(
            changed[place.draft],
            place.turn,
            lambda part, more=more: part if part.kind is not None or _names(part) else Part(part.text + more),  # type: ignore[misc]
        )
        if relabel and place.turn is None:
            label = LABELS[1 - LABELS.index(changed[place.draft].label)]
            changed[place.draft] = replace(changed[place.draft], label=label)
    return Other("text replaced", tuple(changed), frozenset(place.id for place in owned))


def _names(part: Part) -> bool:
    return any(has_entity(part.text, name, True) for name in NAMES)


def removed(drafts: Sequence[Draft], owned: Sequence[Place]) -> Other:
    """Without these drafts."""
    gone = {place.draft for place in owned}
    rest = tuple(draft for number, draft in enumerate(drafts) if number not in gone)
    return Other("removed", rest, frozenset(place.id for place in owned))


def renamed(drafts: Sequence[Draft], entity: str, owned: Sequence[Place], aliases: bool) -> Other:
    """Another name for the entity wherever it occurs, whatever it is marked as; shorter names inside it stay."""

    def change(part: Part) -> Part:
        text = part.text
        for string in strings_of(entity, aliases):
            text = re.sub(rf"\b{string}\b", _RENAMED[string], text, flags=re.IGNORECASE)
        return replace(part, text=text)

    changed = tuple(_changed(draft, None, change) for draft in drafts)
    return Other("entity renamed", changed, frozenset(place.id for place in owned), entity)


def alias_lines(renamed_entity: str | None) -> str:
    """The file of aliases, in the words of a corpus in which an entity has another name."""
    lines = []
    for name, alias in ALIASES.items():
        new = [_RENAMED[one] if name == renamed_entity else one for one in (name, alias)]
        lines.append("\t".join(new if name == renamed_entity else [_inside(name, renamed_entity), alias]))
    return "\n".join(lines)


def _inside(name: str, entity: str | None) -> str:
    return name if entity is None else re.sub(rf"\b{entity}\b", _RENAMED[entity], name)


def differing_in_records(
    drafts: Sequence[Draft],
    of: Neighbors,
    candidates: Sequence[Place],
    kinds: Sequence[str],
    chance: Random,
    same_length: bool = False,
) -> list[Other]:
    """Corpora that differ in one to `copies` of the candidates."""
    if not candidates:
        return []
    owned = chance.sample(list(candidates), min(len(candidates), chance.choice((1, of.copies))))
    if of.unit == Unit.SECRETS:
        return [secrets_replaced(drafts, owned, kinds, chance, same_length)]
    found = [text_replaced(drafts, owned, chance, relabel=True)]
    return [*found, removed(drafts, owned)] if all(place.turn is None for place in owned) else found
