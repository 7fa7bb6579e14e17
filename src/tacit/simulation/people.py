"""The synthetic people of CustomerSim: who they are, where they live, what they ordered.

One endless table is drawn from one seed and dealt out, person by person, to `train`, `validation`, `test` and
`held-out`, so the four are alike in everything but who is in them: the held-out people are the fair non-members of a
membership test.

G1 (one owner). No full name, address, phone, order or tracking number belongs to two people of one seed, whatever
    the table they were dealt to.
G2 (reproducible). The same seed gives the same people in the same order, in every process; asking for more people
    never changes the first ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count, groupby, islice
from random import Random

from faker.providers.address.en_US import Provider as Addresses
from faker.providers.person.en_US import Provider as Persons

from tacit.data.records import Record, Span
from tacit.errors import ConfigError

SPLITS = ("train", "validation", "test")
_TABLES = (*SPLITS, "held-out")


# Drawing an area code picks the state with it; big states have many codes and so many people.
_AREA_CODES = {
    "AL": "205 251 256 334", "AK": "907", "AZ": "480 520 602 623 928", "AR": "479 501 870",
    "CA": "209 213 310 323 408 415 510 530 559 562 619 626 650 661 707 714 760 805 818 831 858 909 916 925 949 951",
    "CO": "303 719 720 970", "CT": "203 860", "DE": "302", "DC": "202",
    "FL": "239 305 321 352 386 407 561 727 772 813 850 863 904 941 954", "GA": "229 404 478 678 706 770 912",
    "HI": "808", "ID": "208", "IL": "217 309 312 618 630 708 773 815 847", "IN": "219 260 317 574 765 812",
    "IA": "319 515 563 641 712", "KS": "316 620 785 913", "KY": "270 502 606 859", "LA": "225 318 337 504 985",
    "ME": "207", "MD": "301 410 443", "MA": "413 508 617 781 978",
    "MI": "231 248 269 313 517 586 616 734 810 906 989", "MN": "218 320 507 612 651 763 952", "MS": "228 601 662",
    "MO": "314 417 573 636 660 816", "MT": "406", "NE": "308 402", "NV": "702 775", "NH": "603",
    "NJ": "201 609 732 856 908 973", "NM": "505 575", "NY": "212 315 516 518 585 607 631 716 718 845 914",
    "NC": "252 336 704 828 910 919", "ND": "701", "OH": "216 330 419 440 513 614 740 937", "OK": "405 580 918",
    "OR": "503 541", "PA": "215 412 570 610 717 724 814", "RI": "401", "SC": "803 843 864", "SD": "605",
    "TN": "423 615 731 865 901 931",
    "TX": "210 214 254 281 325 361 409 432 512 713 806 817 830 903 915 936 940 956 972",
    "UT": "435 801", "VT": "802", "VA": "276 434 540 703 757 804", "WA": "206 253 360 425 509", "WV": "304",
    "WI": "262 414 608 715 920", "WY": "307",
}  # fmt: skip

_PLACES = [(code, state) for state, codes in _AREA_CODES.items() for code in codes.split()]
_FIRST_NAMES = {**Persons.first_names_female, **Persons.first_names_male}
_FIRST_NAME_WEIGHTS = list(accumulate(_FIRST_NAMES.values()))
_LAST_NAME_WEIGHTS = list(accumulate(Persons.last_names.values()))
_FIRST_NAMES_LISTED = list(_FIRST_NAMES)
_LAST_NAMES_LISTED = list(Persons.last_names)

_STREET_WORDS = (
    "Alder", "Aspen", "Birch", "Bluebell", "Cedar", "Cherry", "Chestnut", "Clover", "Copper", "Cottonwood", "Elm",
    "Fern", "Hawthorn", "Hazel", "Hickory", "Juniper", "Larch", "Laurel", "Lilac", "Linden", "Magnolia", "Maple",
    "Mill", "Oak", "Orchard", "Pine", "Poplar", "Quarry", "Railroad", "River", "Rosewood", "School", "Second",
    "Sixth", "Spruce", "Sunset", "Sycamore", "Third", "Walnut", "Willow",
)  # fmt: skip

_STREET_KINDS = (
    "Avenue", "Avenue", "Boulevard", "Circle", "Court", "Drive", "Drive", "Lane", "Lane", "Parkway", "Place", "Road",
    "Road", "Square", "Street", "Street", "Street", "Terrace", "Trail", "Way",
)  # fmt: skip


# In the patterns below: 0 a digit, N a digit from 2 to 9, A a capital letter, X either (never O or I).
_ALPHABETS = {
    "0": "0123456789",
    "N": "23456789",
    "A": "ABCDEFGHJKLMNPQRSTUVWXYZ",
    "X": "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789",
}

_HOUSE_NUMBERS = ("N", "N0", "N00", "N00", "N000", "N000", "N0000")
_UNITS = (("Apt ", "N"), ("Apt ", "N0"), ("Apt ", "NA"), ("Unit ", "N0"), ("Suite ", "N00"), ("#", "N0"))
_ORDERS = ("N00-0000000-0000000", "N0000000", "AA-000000", "A0000000", "N000-0000-00", "AAA-00000")

_TRACKINGS = (
    *("XXXXXXXXXX", "XXXXXXXXXXXX", "AA000000000US", "N00000000000000", "1ZXXXXXX0000000000", "9400N00000000000000000"),
)

_PHONES = (
    "({area}) {exchange}-{line}",
    "{area}-{exchange}-{line}",
    "{area}.{exchange}.{line}",
    "{area} {exchange} {line}",
    "{area}{exchange}{line}",
    "1-{area}-{exchange}-{line}",
    "+1 {area} {exchange} {line}",
)


# None begins with a vowel sound, so that "a {item}" is always right.
ITEMS = (
    "backpack", "baking tray", "bath mat", "bicycle helmet", "blender", "board game", "bookshelf", "camera bag",
    "camping stove", "card table", "ceiling fan", "cheese grater", "coat rack", "coffee grinder", "cookbook",
    "cordless drill", "crib mattress", "cutting board", "denim jacket", "desk lamp", "dog bed", "door mat",
    "dress shirt", "duffel bag", "dumbbell set", "fishing rod", "flower pot", "food processor", "frying pan",
    "garden hose", "gift basket", "guitar stand", "hair dryer", "hammock", "headset", "hiking pole", "humidifier",
    "jigsaw puzzle", "kettle", "keyboard", "knife block", "laptop sleeve", "lawn chair", "leather belt", "lunch box",
    "mechanical pencil", "memory card", "microphone", "monitor arm", "mountain bike", "necklace", "nightstand",
    "notebook", "paper shredder", "pasta maker", "phone case", "picture frame", "pillow", "pressure cooker",
    "printer", "raincoat", "rice cooker", "router", "rug", "running watch", "salad bowl", "scarf", "shower curtain",
    "skateboard", "sleeping bag", "smoke detector", "soccer ball", "space heater", "suitcase", "sweater",
    "table cloth", "teapot", "telescope", "tent", "toaster", "tool box", "tripod", "vacuum cleaner", "wall clock",
    "water bottle", "wool blanket", "yoga mat",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Order:
    """Something a person bought; `number` and `tracking` are secrets, `item` is not."""

    number: str
    tracking: str
    item: str


@dataclass(frozen=True, slots=True)
class Person:
    """One customer: a user id and the secrets that may occur in a dialog."""

    user: str
    name: str
    address: str
    phone: str
    orders: tuple[Order, ...]

    @property
    def first_name(self) -> str:
        return self.name.split(" ", 1)[0]


def people_of(split: str, seed: int) -> Iterator[Person]:
    """The endless table of people that dialogs of `split` are drawn from."""
    if split not in SPLITS:
        raise ConfigError.unknown_name("split", split, SPLITS)
    return _dealt_to(split, seed)


def held_out_people(how_many: int, seed: int = 0) -> tuple[Person, ...]:
    """People who appear in no split of this seed, drawn from the table all others were drawn from."""
    if how_many < 1:
        raise ConfigError("at least one held-out person", str(how_many), "ask for one person or more")
    return tuple(islice(_dealt_to("held-out", seed), how_many))


def profile(person: Person) -> Record:
    """The secrets of a person as a record, one line each, so that tables of people are read and written as corpora."""
    secrets = [("NAME", person.name), ("ADDRESS", person.address), ("PHONE", person.phone)]
    for order in person.orders:
        secrets += [("ORDER", order.number), ("TRACKING", order.tracking)]
    text = ""
    spans = []
    for kind, value in secrets:
        start = len(text) + len(kind) + 2
        text += f"{kind}: {value}\n"
        spans.append(Span(start, start + len(value), kind))
    return Record(id=person.user, text=text, user=person.user, spans=tuple(spans))


def _dealt_to(table: str, seed: int) -> Iterator[Person]:
    return islice(_everyone(seed), _TABLES.index(table), None, len(_TABLES))


def _everyone(seed: int) -> Iterator[Person]:
    rng = Random(f"customersim people {seed}")
    taken: set[str] = set()
    for number in count():
        area_code, state = rng.choice(_PLACES)
        yield Person(
            user=f"user-{number:07d}",
            name=_name(rng, taken),
            address=_address(rng, taken, state),
            phone=_phone(rng, taken, area_code),
            orders=tuple(_order(rng, taken) for _ in range(rng.choice((1, 1, 2, 2, 3)))),
        )


def _untaken(taken: set[str], draw: Callable[[], str]) -> str:
    while (value := draw()) in taken:
        pass
    taken.add(value)
    return value


def _name(rng: Random, taken: set[str]) -> str:
    """First and last name as often as people bear them; a name already taken gets middle initials until it is not."""
    first = rng.choices(_FIRST_NAMES_LISTED, cum_weights=_FIRST_NAME_WEIGHTS)[0]
    last = rng.choices(_LAST_NAMES_LISTED, cum_weights=_LAST_NAME_WEIGHTS)[0]
    if rng.random() < 0.04:
        last += "-" + rng.choice(_LAST_NAMES_LISTED)
    name = f"{first} {last}"
    while name in taken:
        first += f" {rng.choice(_ALPHABETS['A'])}."
        name = f"{first} {last}"
    taken.add(name)
    return name


def _address(rng: Random, taken: set[str], state: str) -> str:
    return _untaken(taken, lambda: _draw_address(rng, state))


def _draw_address(rng: Random, state: str) -> str:
    street_word = rng.choice(_STREET_WORDS if rng.random() < 0.5 else _LAST_NAMES_LISTED)
    street = f"{_fill(rng, rng.choice(_HOUSE_NUMBERS))} {street_word} {rng.choice(_STREET_KINDS)}"
    if rng.random() < 0.25:
        word, pattern = rng.choice(_UNITS)
        street += f" {word}{_fill(rng, pattern)}"
    town = rng.choice(_LAST_NAMES_LISTED)
    if rng.random() < 0.4:
        city = f"{rng.choice(Addresses.city_prefixes)} {town}"
    else:
        city = town + rng.choice(Addresses.city_suffixes)
    comma = "," if rng.random() < 0.8 else ""
    zip_code = rng.randint(*Addresses.states_postcode[state])
    return f"{street}{comma} {city}, {state} {zip_code:05d}"


def _phone(rng: Random, taken: set[str], area_code: str) -> str:
    digits = _untaken(taken, lambda: area_code + _fill(rng, "NN00000"))
    return rng.choice(_PHONES).format(area=digits[:3], exchange=digits[3:6], line=digits[6:])


def _order(rng: Random, taken: set[str]) -> Order:
    return Order(
        number=_untaken(taken, lambda: _fill(rng, rng.choice(_ORDERS))),
        tracking=_untaken(taken, lambda: _fill(rng, rng.choice(_TRACKINGS))),
        item=rng.choice(ITEMS),
    )


def _fill(rng: Random, pattern: str) -> str:
    alphabets = ((run, _ALPHABETS.get(run[0])) for run in _runs(pattern))
    return "".join(run if known is None else "".join(rng.choices(known, k=len(run))) for run, known in alphabets)


@cache
def _runs(pattern: str) -> tuple[str, ...]:
    """The pattern cut where its sign changes."""
    return tuple("".join(run) for _, run in groupby(pattern))
