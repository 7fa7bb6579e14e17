"""Small corpora and their neighbors: equal but for one unit's protected content, by the claim of each mechanism."""

from collections.abc import Callable
from dataclasses import replace

from tacit.data.records import Record, Span

Change = Callable[[Record], Record]
NAMES = ("Ann", "Bob", "Carla", "Dmitri", "Edith", "Farah", "Gustavo", "Hanneke")
PLACES = ("harbour", "market", "old mill", "station", "library")
_NEW = "zorb"


def corpus(records: int = 64) -> list[Record]:
    """Sentences with a name and a code; two of each user; every fourth record has no secret."""
    return [_record(number) for number in range(records)]


def _record(number: int) -> Record:
    place = PLACES[number % len(PLACES)]
    user = f"u{number // 2}"
    if number % 4 == 3:
        return Record(f"r{number}", f"Nobody was at the {place} on day {'one' * (number % 3)}.", user, None, ())
    name, code = NAMES[number % len(NAMES)], f"Q{number * 7919 % 100000:05}Z"
    text = f"{name} left code {code} at the {place}."
    start = text.index(code)
    return Record(f"r{number}", text, user, None, (Span(0, len(name), "NAME"), Span(start, start + len(code), "CODE")))


def other_secrets(record: Record) -> Record:
    """The same public text around secrets of other lengths."""
    text, spans, at = "", [], 0
    for span in record.spans or ():
        text += record.text[at : span.start]
        value = (_NEW * 9)[: span.end - span.start + 4]
        spans.append(Span(len(text), len(text) + len(value), span.kind))
        text, at = text + value, span.end
    return replace(record, text=text + record.text[at:], spans=tuple(spans))


def other_text(record: Record) -> Record:
    """Another record, several times as long, with a secret of the same kind."""
    text = f"Quite {_NEW} again, {'and this goes on for very long ' * 5}"
    return replace(record, text=text, spans=(Span(6, 10, "NAME"),))


def other_words(record: Record) -> Record:
    """Other words around the same secrets."""
    first = record.text.split(" ")[0]
    longer = record.text[len(first) :].replace("left code", "dropped the most curious old number")
    moved = len(longer) - len(record.text) + len(first)
    spans = tuple(
        one if one.start == 0 else Span(one.start + moved, one.end + moved, one.kind) for one in record.spans or ()
    )
    return replace(record, text=first + longer, spans=spans)


def renamed(record: Record) -> Record:
    """Another name for one entity, wherever it is."""
    if not record.text.startswith("Carla"):
        return record
    return replace(record, text=record.text.replace("Carla", "Zorba"))


def changed(records: list[Record], change: Change, ids: set[str]) -> list[Record]:
    """The neighbor in which `change` was applied to the records with these ids."""
    return [change(record) if record.id in ids else record for record in records]
