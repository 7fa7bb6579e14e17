"""The sample as a file that a person fills in: JSON lines, the header first.

G4 (discreet). The file is created for its owner alone (0600) and never over another one; errors hold no text of it.
G5 (labelled). A line that nobody touched is refused, and so is a label that stands nowhere in its text.
G6 (whole). A line that was dropped, doubled, moved or reworded, and a header that was changed, are refused. This guards
   against accidents: whoever means to deceive can label wrongly.
"""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tacit.codec import from_json
from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.documents import parse_json
from tacit.errors import ConfigError, CorpusError
from tacit.given import read_bytes
from tacit.labelling.sample import Header, Item, Labels, Sample, sealed
from tacit.private_files import write_private

_LABELLED = "LABELLED"
_KEYS = {"id", "text", "user", "label", "found", "secrets"}
_FAULTS_SHOWN = 10


def write_sample(sample: Sample, path: Path) -> None:
    """A line with the header, then a line a record; for its owner alone, and never over another file."""
    check_free(path)
    rows = [asdict(sample.header), *(_row(item) for item in sample.items)]
    try:
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    except UnicodeEncodeError:  # which holds the text: it is not chained
        raise CorpusError(
            expected="records whose strings are Unicode text",
            found="half a surrogate pair in one of them",
            way_out="mend the text where it comes from",
        ) from None
    write_private(path, content)


def check_free(path: Path) -> None:
    """Refuse a place for the sample where something is: it may hold a person's labels."""
    if os.path.lexists(path):
        raise ConfigError(
            expected=f"no file at {path} yet",
            found="one that may hold labels",
            way_out="name another file with --out, or remove this one",
        )


def read_labels(path: Path) -> Sample:
    """The sample that a person has labelled; refused unless every line is there, unchanged and labelled."""
    first, *rest = _lines(path)
    header = from_json(Header, first)
    if len(rest) != header.sampled:
        raise _not_whole(f"{len(rest):,} lines after the header, which counts {header.sampled:,}")
    rows = [_object(line, number) for number, line in enumerate(rest, 2)]
    records = [_record(row, number) for number, row in enumerate(rows, 2)]
    if len({record.id for record in records}) < len(records):
        raise _not_whole("an id that stands in two lines")
    unlabelled = sum(row["secrets"] is None for row in rows)
    if unlabelled:
        raise CorpusError(
            expected="a list of secrets in every line, [] where there is none",
            found=f"{unlabelled:,} of {len(rows):,} lines without one (null)",
            way_out="label them: a line that nobody read says nothing about the policy",
        )
    items = _labelled(records, rows, header.labels)
    if header != sealed(header, items):
        raise _not_whole("a header, a text or a gold label that was changed, or lines in another order")
    return Sample(header, items)


def _row(item: Item) -> dict[str, Any]:
    record = item.record
    row: dict[str, Any] = {"id": record.id, "text": record.text, "user": record.user, "label": record.label}
    row = {name: value for name, value in row.items() if value is not None}
    if item.found is not None:
        row["found"] = item.found
    return row | {"secrets": item.secrets}


def _lines(path: Path) -> list[str]:
    try:
        text = read_private(path).decode("utf-8-sig")
    except UnicodeDecodeError:  # which holds the text: it is not chained
        raise CorpusError(f"UTF-8 text in {path}", "other bytes", "save it as UTF-8") from None
    lines = [line for line in text.split("\n") if line.strip()]  # str.splitlines would break inside some texts
    if not lines:
        raise CorpusError(f"a sample in {path}", "an empty file", "draw one with `tacit label draw`")
    return lines


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError:  # which may hold the text: it is not chained
        row = None
    if not isinstance(row, dict) or "secrets" not in row or set(row) - _KEYS:
        raise CorpusError(
            expected=f"a JSON object with the keys it was written with, each once, in line {number} of the sample",
            found="something else",
            way_out="mend the line: change nothing but the value of `secrets`",
        )
    return row


def _record(row: dict[str, Any], number: int) -> Record:
    needed, others = [row.get("id"), row.get("text")], [row.get("user"), row.get("label")]
    if not all(isinstance(value, str) for value in needed + [other for other in others if other is not None]):
        raise _not_whole(f"no id or no text in line {number}")
    return Record(row["id"], row["text"], row.get("user"), row.get("label"))


def _labelled(records: list[Record], rows: list[dict[str, Any]], labels: Labels) -> tuple[Item, ...]:
    items, faults = [], []
    for number, (record, row) in enumerate(zip(records, rows, strict=True), 2):
        spans: list[Span] = []
        entries = row["secrets"] if isinstance(row["secrets"], list) else [None]
        for at, entry in enumerate(entries, 1):
            places = _places(entry, record.text)
            spans += places
            if not places:
                faults.append(f"line {number}, secret {at}")
        secrets = resolve_overlaps(spans)
        items.append(Item(replace(record, spans=secrets) if labels == Labels.GOLD else record, secrets))
    if faults:
        more = f" and {len(faults) - _FAULTS_SHOWN:,} more" if len(faults) > _FAULTS_SHOWN else ""
        raise CorpusError(
            expected="lists of secrets, each a text that stands in the record's text or [start, end] inside it",
            found="something else at " + "; ".join(faults[:_FAULTS_SHOWN]) + more,
            way_out="correct these labels; characters count from 0, and `end` is the one after the last",
        )
    return tuple(items)


def _places(entry: object, text: str) -> list[Span]:
    """Where a secret stands: everywhere for a text, at [start, end] or [start, end, kind], nowhere when it is wrong."""
    if isinstance(entry, str) and entry.strip():
        starts, at = [], text.find(entry)
        while at >= 0:
            starts.append(at)
            at = text.find(entry, at + 1)
        return [Span(start, start + len(entry), _LABELLED) for start in starts]
    if not isinstance(entry, list) or len(entry) not in (2, 3) or any(type(end) is not int for end in entry[:2]):
        return []
    start, end, kind = (*entry, _LABELLED)[:3]
    inside = isinstance(kind, str) and 0 <= start < end <= len(text)
    return [Span(start, end, kind)] if inside else []


def _not_whole(found: str) -> CorpusError:
    return CorpusError(
        expected="a sample with the header and the lines it was written with, changed in `secrets` alone",
        found=found,
        way_out="undo the other changes, or draw and label a new sample",
    )


def read_private(path: Path) -> bytes:
    """The content of a file that a person named."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise CorpusError(f"a file at {path}", error.strerror or "an error", "check the path") from error
