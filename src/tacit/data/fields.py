"""From the fields of one row to a `Record`, or to the reason why not. The same for every format.

A field that is null or "" is absent. Messages, a text, turns, or a prompt with its completion are needed; of several
the first of these counts. Ids, users and labels are strings or whole numbers. Spans are given as

    [start, end, kind]                    characters, half open
    [start, end, group, kind, ...]        from four on, the fourth is the kind; what follows is ignored
    {"start": .., "end": .., "kind": ..}

in any order, in a list, in an object of three lists, or as JSON in a string (the only way in csv). Turns are strings,
or objects {"speaker", "text", "spans"} whose spans count from the start of the turn's text; they become lines
"speaker: text". A line break inside a turn becomes a space, so that a line is a turn.

Messages are objects {"role", "content", "spans"} whose spans count from the start of the content; so are prompts and
completions, or else texts: what a user wrote, and what an assistant answered. They become lines "role: content", with
the content's own line breaks.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tacit.data.records import Message, Record, Span, inside, spans_fault
from tacit.errors import CorpusError

RawRow = Mapping[str, object]
PROMPT, COMPLETION = "prompt", "completion"
Written = tuple[str, tuple[Span, ...] | None, tuple[Message, ...] | None]
"""A text, its spans, and its messages if it is a chat."""
ROLE_OF = {PROMPT: "user", COMPLETION: "assistant"}
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_LINE_BREAKS = dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


class FaultReason(StrEnum):
    """Why a record was set aside."""

    INVALID_UTF8 = "invalid-utf8"
    NUL = "nul-character"
    LONE_SURROGATE = "lone-surrogate"
    BROKEN_JSON = "broken-json"
    NOT_FINITE = "not-a-finite-number"
    NESTED_TOO_DEEPLY = "nested-too-deeply"
    NOT_AN_OBJECT = "not-an-object"
    BROKEN_CSV = "broken-csv"
    WRONG_COLUMNS = "wrong-number-of-columns"
    MISSING_TEXT = "missing-text"
    EMPTY_TEXT = "empty-text"
    WRONG_TYPE = "wrong-type"
    BAD_SPANS = "bad-spans"
    DUPLICATE_ID = "duplicate-id"
    TOO_LONG = "too-long"
    TRUNCATED_FILE = "truncated-file"
    DAMAGED_FILE = "damaged-file"


class Fault(Exception):
    """One record cannot be used. `detail` is for people and holds numbers, types and names of fields, never values."""

    def __init__(self, reason: FaultReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class FilePosition(NamedTuple):
    """Where a record is: `number` counts from 1 in `unit`s; `byte` is its offset after decompression."""

    unit: str
    number: int
    byte: int | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """What a corpus calls the parts of a record."""

    text: str = "text"
    id: str = "id"
    user: str = "user"
    label: str = "label"
    spans: str = "spans"
    turns: str = "turns"
    messages: str = "messages"

    def names(self) -> tuple[str, ...]:
        """All of them, as the corpus spells them."""
        return astuple(self)

    def columns(self) -> tuple[str, ...]:
        """What may be read of a row; prompts and completions have no other name."""
        return tuple(dict.fromkeys((*self.names(), PROMPT, COMPLETION)))

    def renamed(self) -> set[str]:
        """Those the person chose: a corpus without them is a mistake, not a corpus with less in it."""
        return set(self.names()) - set(DEFAULT_FIELDS.names())


DEFAULT_FIELDS = Fields()


def fields_of(names: Mapping[str, object]) -> Fields:
    """The fields that settings name, `text_field` and the like; the usual ones where they name none."""
    parts = Fields.__dataclass_fields__
    return Fields(**{part: str(names[f"{part}_field"]) for part in parts if f"{part}_field" in names})


def parse_json(text: str) -> object:
    """A JSON value; a `Fault` when it is broken, too deep, or holds what JSON has no number for."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:  # which holds the text: it is not chained
        raise Fault(FaultReason.BROKEN_JSON, f"no JSON at character {error.pos}") from None
    except RecursionError:
        raise Fault(FaultReason.NESTED_TOO_DEEPLY, "JSON nested too deeply to read") from None
    except ValueError:
        raise Fault(FaultReason.BROKEN_JSON, "a number with too many digits") from None


def record_of(row: RawRow, fields: Fields, made_id: str) -> Record:
    """The record in `row`, called `made_id` when it brings no id. Raises `Fault` when there is none."""
    text, spans, messages = _content(row, fields)
    record_id, user, label = (_name(row, field) for field in (fields.id, fields.user, fields.label))
    return Record(record_id or made_id, text, user, label, spans, messages)


def _content(row: RawRow, fields: Fields) -> Written:
    """The text of a row, its spans, and where the messages of a chat are in it."""
    text, parts = row.get(fields.text), [fields.messages]
    if _absent(row.get(fields.messages)) and _absent(text):
        parts = [PROMPT, COMPLETION] if _absent(row.get(fields.turns)) else [fields.turns]
    if any(_absent(row.get(part)) for part in parts):
        text = _checked_text(text, fields)
        return text, None if _absent(row.get(fields.spans)) else _spans(row[fields.spans], text, fields.spans), None
    if not _absent(row.get(fields.spans)):
        raise Fault(FaultReason.BAD_SPANS, f"{fields.spans!r} beside {parts[0]!r}: spans belong into the {parts[0]}")
    if parts == [fields.turns]:
        return *_dialog(_items(row[fields.turns], fields.turns)), None
    return _chat([message for part in parts for message in _messages(row[part], part)])


def bounded(row: RawRow | Fault, limit: int) -> RawRow | Fault:
    """`row`, or the fault of one whose text has more than `limit` bytes."""
    if not isinstance(row, Fault):
        for value in row.values():
            if isinstance(value, str) and 4 * len(value) > limit and len(value.encode(errors="replace")) > limit:
                return Fault(FaultReason.TOO_LONG, f"longer than {limit} bytes")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise Fault(FaultReason.NOT_FINITE, f"{name}, which JSON does not have")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _absent(value: object) -> bool:
    return value is None or value == ""


def _checked_text(text: object, fields: Fields) -> str:
    if text is None:
        raise Fault(FaultReason.MISSING_TEXT, f"neither {fields.messages!r} nor {fields.text!r} nor {fields.turns!r}")
    text = _string(text, fields.text)
    if not text or text.isspace():
        raise Fault(FaultReason.EMPTY_TEXT, f"nothing but white space in {fields.text!r}")
    return text


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise Fault(FaultReason.WRONG_TYPE, f"{where!r} is {_type_name(value)}, not a string")
    if "\0" in value:
        raise Fault(FaultReason.NUL, f"a NUL character in {where!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Fault(FaultReason.LONE_SURROGATE, f"half a surrogate pair in {where!r}") from None
    return value


def _name(row: RawRow, field: str) -> str | None:
    value = row.get(field)
    if _absent(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _string(value, field)


def _items(value: object, where: str) -> Sequence[object]:
    """A list from a list, from JSON in a string, or from an object of equally long lists."""
    if isinstance(value, str):
        value = parse_json(value)
    if isinstance(value, dict):
        columns = list(value.values())
        if not all(isinstance(column, list) for column in columns) or len({len(column) for column in columns}) > 1:
            raise Fault(FaultReason.WRONG_TYPE, f"{where!r} is an object, but not one of equally long lists")
        return [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if not isinstance(value, list | tuple):
        raise Fault(FaultReason.WRONG_TYPE, f"{where!r} is {_type_name(value)}, not a list")
    return value


def _dialog(turns: Sequence[object]) -> tuple[str, tuple[Span, ...] | None]:
    pieces: list[str] = []
    spans: list[Span] = []
    length = 0
    said, annotated = False, False
    for turn in turns:
        speaker, text, turn_spans = _turn(turn)
        said = said or not (text == "" or text.isspace())
        if turn_spans is not None:
            annotated = True
            shift = length + len(speaker)
            spans += (Span(shift + start, shift + end, kind) for start, end, kind in turn_spans)
        line = f"{speaker}{text}\n"
        pieces.append(line)
        length += len(line)
    if not said:
        raise Fault(FaultReason.EMPTY_TEXT, "nothing is said in any turn")
    return "".join(pieces), tuple(spans) if annotated else None


def _turn(turn: object) -> tuple[str, str, tuple[Span, ...] | None]:
    """What is before the text, the text, and its spans."""
    if not isinstance(turn, dict):
        return "", _string(turn, "turn").translate(_LINE_BREAKS), None
    text = _string(turn.get("text"), "text of a turn")
    spans = None if turn.get("spans") is None else _spans(turn["spans"], text, "spans of a turn")
    speaker = _name(turn, "speaker")
    return "" if speaker is None else f"{speaker.translate(_LINE_BREAKS)}: ", text.translate(_LINE_BREAKS), spans


def _messages(value: object, where: str) -> Iterable[tuple[str, str, tuple[Span, ...] | None]]:
    """Role, content and spans of each message; a prompt or a completion may be a text alone."""
    if where in ROLE_OF and isinstance(value, str):
        yield ROLE_OF[where], _string(value, where), None
        return
    for message in _items(value, where):
        if not isinstance(message, dict):
            raise Fault(FaultReason.WRONG_TYPE, f"a message in {where!r} is {_type_name(message)}, not an object")
        if message.get("tool_calls"):
            raise Fault(FaultReason.WRONG_TYPE, "a message with tool calls, which no text replaces")
        role, content = _string(message.get("role"), "role"), _string(message.get("content"), "content of a message")
        if _ROLE.fullmatch(role) is None:  # it is public and gets printed
            raise Fault(FaultReason.WRONG_TYPE, "a role that is no short name of letters, digits, - and _")
        spans = message.get("spans")
        yield role, content, None if spans is None else _spans(spans, content, "spans of a message")


def _chat(messages: Sequence[tuple[str, str, tuple[Span, ...] | None]]) -> Written:
    text, places, spans = "", [], []
    for role, content, own in messages:
        start = len(text) + len(role) + 2
        places.append(Message(role, start, start + len(content)))
        spans += [Span(start + first, start + last, kind) for first, last, kind in own or ()]
        text += f"{role}: {content}\n"
    if not any(content.strip() for _, content, _ in messages):
        raise Fault(FaultReason.EMPTY_TEXT, "nothing is said in any message")
    annotated = any(own is not None for *_, own in messages)
    return text, tuple(spans) if annotated else None, tuple(places)


def row_of(record: Record, fields: Fields) -> dict[str, Any]:
    """The row that is read as `record`, without what it does not have."""
    values: dict[str, Any] = {"id": record.id, "user": record.user, "label": record.label}
    if record.messages is None:
        values |= {"text": record.text, "spans": record.spans}
    else:
        values["messages"] = [_message_row(record, message) for message in record.messages]
    return {getattr(fields, name): value for name, value in values.items() if value is not None}


def _message_row(record: Record, message: Message) -> dict[str, Any]:
    role, start, end = message
    row = {"role": role, "content": record.text[start:end]}
    return row if record.spans is None else row | {"spans": inside(record.spans, start, end)}


def _spans(value: object, text: str, where: str) -> tuple[Span, ...]:
    spans = tuple(sorted(_span(item) for item in _items(value, where)))
    fault = spans_fault(spans, len(text))
    if fault is not None:
        raise Fault(FaultReason.BAD_SPANS, fault)
    for span in spans:
        # Kinds are public and get printed: a kind that says the secret (as in [start, end, kind, value]) is a leak.
        if span.kind.casefold() == text[span.start : span.end].casefold():
            raise Fault(FaultReason.BAD_SPANS, f"span [{span.start}, {span.end}) has the text it covers as its kind")
    return spans


def _span(item: object) -> Span:
    if isinstance(item, dict):
        start, end, kind = item.get("start"), item.get("end"), item.get("kind")
    elif isinstance(item, list | tuple) and len(item) >= 3:
        start, end, kind = item[0], item[1], item[2] if len(item) == 3 else item[3]
    else:
        raise Fault(
            FaultReason.WRONG_TYPE, f"a span is {_type_name(item)}, not [start, end, kind] or an object of these"
        )
    if type(start) is not int or type(end) is not int:
        raise Fault(
            FaultReason.WRONG_TYPE, f"a span from {_type_name(start)} to {_type_name(end)}, not two whole numbers"
        )
    if _absent(kind):
        raise Fault(FaultReason.WRONG_TYPE, "a span without a kind")
    return Span(start, end, _string(kind, "kind of a span"))


def _type_name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")


_LOOKS_LIKE_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


def check_columns(columns: Sequence[str], fields: Fields, path: Path) -> None:
    """Refuse a table without any text, without a column the person chose, or with one we need twice."""
    contents = {fields.text, fields.turns, fields.messages}
    if not contents & set(columns) and not {PROMPT, COMPLETION} <= set(columns):
        raise _no_column(fields.text, columns, path)
    for name in sorted(fields.renamed() - contents):
        if name not in columns:
            raise _no_column(name, columns, path)
    for name in fields.columns():
        if columns.count(name) > 1:
            raise CorpusError(
                f"one column {name!r} in {path}", f"{columns.count(name)} of them", "rename or drop all but one"
            )


def _no_column(name: str, columns: Sequence[str], path: Path) -> CorpusError:
    expected = f"a column {name!r} in {path}"
    # In a file without a header the first row is protected text: quote the columns only if all look like names.
    if not all(_LOOKS_LIKE_A_NAME.fullmatch(column) for column in columns):
        return CorpusError(
            expected=expected,
            found=f"{len(columns)} columns, not all of them named like columns (not shown: they may be text)",
            way_out="put a header in the first line, and separate the columns by commas",
        )
    near = difflib.get_close_matches(name, columns, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return CorpusError(
        expected=expected,
        found=f"the columns {', '.join(columns)}",
        way_out=f"{hint}say which column is which (--text-field and the like, or Fields)",
    )
