"""From the fields of one row to a `Record`, or to the reason why not. The same for every format.

A field that is null or "" is absent. Text is needed, or else turns; with both, the text counts. Ids, users and labels
are strings or whole numbers. Spans are given as

    [start, end, kind]                    characters, half open
    [start, end, group, kind, ...]        from four on, the fourth is the kind; what follows is ignored
    {"start": .., "end": .., "kind": ..}

in any order, in a list, in an object of three lists, or as JSON in a string (the only way in csv). Turns are strings,
or objects {"speaker", "text", "spans"} whose spans count from the start of the turn's text; they become lines
"speaker: text". A line break inside a turn becomes a space, so that a line is a turn.

Of a bad record, the quarantine tells why it was set aside and where it is, never what it contains.
"""

import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

from tacit.common.files import owner_alone
from tacit.data.records import Record, Span, spans_fault
from tacit.errors import CorpusError

RawRow = Mapping[str, object]
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


@dataclass(slots=True)
class Tally:
    """How many records were read, how many of them are usable, and how many were set aside for each reason."""

    read: int = 0
    usable: int = 0
    reasons: Counter[FaultReason] = field(default_factory=Counter)

    @property
    def quarantined(self) -> int:
        return self.reasons.total()

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common())
        why = f": {counts}" if counts else ""
        return f"{self.read} read, {self.usable} usable, {self.quarantined} set aside{why}"


class Quarantine:
    """A JSON-lines file with one entry per bad record, made when the first one comes; without a path, none is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        if path is not None:
            try:
                path.unlink(missing_ok=True)  # entries of an earlier reading would accuse today's records
            except OSError as error:
                raise not_writable(path, error.strerror or "an error while deleting it") from error

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()

    def add(self, place: FilePosition, fault: Fault) -> None:
        if self._path is None:
            return
        entry = place._asdict() | {"reason": fault.reason, "detail": fault.detail}
        try:
            if self._file is None:
                opened = owner_alone(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                self._file = os.fdopen(opened, "w", encoding="utf-8", newline="\n")
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        except OSError as error:
            raise not_writable(self._path, error.strerror or "an error while writing") from error


def check_quarantine(quarantine: Path, corpus: Path) -> None:
    """Refuse a quarantine file that cannot be written, or that is (in) the corpus itself, before any work is done."""
    if quarantine.is_dir():
        raise not_writable(quarantine, "a folder")
    if quarantine.exists() and not quarantine.is_file():
        raise not_writable(quarantine, "a device or the like, which a new file would replace")
    if not quarantine.absolute().parent.is_dir():
        raise not_writable(quarantine, "a folder that does not exist")
    resolved, source = quarantine.resolve(), corpus.resolve()
    if resolved == source or source in resolved.parents:
        raise not_writable(quarantine, "the corpus itself, which would be overwritten")
    was_there = quarantine.exists()
    try:
        quarantine.open("ab").close()
    except OSError as error:
        raise not_writable(quarantine, error.strerror or "an error") from error
    if not was_there:
        quarantine.unlink()


def not_writable(path: Path, found: str) -> CorpusError:
    """The error for a quarantine file that cannot be written."""
    return CorpusError(
        expected=f"a quarantine file that can be written at {path}",
        found=found,
        way_out="name a file in a folder you may write to, or leave it out to count bad records only",
    )


@dataclass(frozen=True, slots=True)
class Fields:
    """What a corpus calls the parts of a record."""

    text: str = "text"
    id: str = "id"
    user: str = "user"
    label: str = "label"
    spans: str = "spans"
    turns: str = "turns"

    def names(self) -> tuple[str, ...]:
        """All six, as the corpus spells them."""
        return astuple(self)

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
    text = row.get(fields.text)
    if _absent(text) and not _absent(row.get(fields.turns)):
        if not _absent(row.get(fields.spans)):
            raise Fault(FaultReason.BAD_SPANS, f"{fields.spans!r} beside {fields.turns!r}: spans belong into the turns")
        text, spans = _dialog(_items(row[fields.turns], fields.turns))
    else:
        text = _checked_text(text, fields)
        spans = None if _absent(row.get(fields.spans)) else _spans(row[fields.spans], text, fields.spans)
    record_id, user, label = (_name(row, field) for field in (fields.id, fields.user, fields.label))
    return Record(record_id or made_id, text, user, label, spans)


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
        raise Fault(FaultReason.MISSING_TEXT, f"neither {fields.text!r} nor {fields.turns!r}")
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
    """Refuse a table without text and turns, without a column the person chose, or with one we need twice."""
    if fields.text not in columns and fields.turns not in columns:
        raise _no_column(fields.text, columns, path)
    for name in sorted(fields.renamed()):
        if name not in columns and name not in (fields.text, fields.turns):
            raise _no_column(name, columns, path)
    for name in fields.names():
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
