"""Records drawn at random to be labeled, and the file in which a person labels them: JSON lines, the header first.

G1 (uniform). Every ordered choice of `size` different records is equally likely, whatever the records contain.
G2 (flat). One pass; memory contains the sample and a hash of the corpus, however long it is.
G3 (blind). Unless asked, the sample contains nothing of what a policy finds or a model drafts; no record is labeled.
G4 (discreet). The file is created for its owner alone (0600) and never over another one; errors quote no text of it.
G5 (labeled). A line that nobody touched is refused, and so is a label that does not occur in its text.
G6 (whole). A line that was dropped, doubled, moved or reworded, and a header that was changed, are refused. This guards
   against accidents: a person who wants to deceive can label wrongly.
"""

import hashlib
import json
import os
import random
import re
import secrets as system_randomness
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from tacit.common.charts import Note, Result
from tacit.common.files import new_key, read_bytes, write_private
from tacit.common.serialize import from_json, json_values, parse_json
from tacit.config.setting import SegmentBy
from tacit.data.marked import CorpusHash
from tacit.data.records import Message, Record, Span, in_messages, resolve_overlaps, segment_records
from tacit.errors import ClaimRefused, ConfigError, CorpusError
from tacit.policies.drafts import Drafter
from tacit.policies.policy import Policy

HOW_TO_LABEL = (
    "Replace null in `secrets` of every line: [] when the text contains no secret, else a list of every secret in it, "
    "each as its exact text (every place where it occurs then counts) or as [start, end], characters from 0, half open."
)

_SEED_BITS = 63
Item = TypeVar("Item")
_Hexadecimal = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class LabelOrigin(StrEnum):
    """Who decides what is secret in the sample."""

    PERSON = "person"
    PERSON_SHOWN_FOUND = "person shown what the policies found"
    PERSON_SHOWN_DRAFT = "person shown a model's draft"
    GOLD = "gold"


@dataclass(frozen=True, slots=True)
class Frozen:
    """A policy as it was when the sample was drawn."""

    id: str
    hash: str


@dataclass(frozen=True, slots=True)
class Population:
    """What the sample was drawn from: all pieces of all usable records of a corpus.

    segment_by: what one unit is, as `train` cuts them. hash: of the units, under `key` (both hexadecimal).
    """

    segment_by: SegmentBy
    records: int
    key: _Hexadecimal
    hash: _Hexadecimal

    def hash_of(self, records: Iterable[Record]) -> CorpusHash:
        """The hash of uncut `records`, to be compared with that of the population."""
        found = CorpusHash(bytes.fromhex(self.key))
        for piece in segment_records(records, self.segment_by):
            found.add(piece)
        return found


@dataclass(frozen=True, slots=True)
class SampleHeader:
    """The first line of a sample. `seal` is a hash of the other fields and of all lines but their labels."""

    tacit_sample: Literal[1]
    how_to_label: str
    policy: Frozen
    conservative: Frozen | None
    labels: LabelOrigin
    population: Population
    sampled: int
    seed: int
    seal: str
    draft: Frozen | None = None


@dataclass(frozen=True, slots=True)
class LabelItem:
    """A sampled record, as policies see it, and its secrets: sorted and disjoint, None until somebody labelled it."""

    record: Record = field(repr=False)
    secrets: tuple[Span, ...] | None = field(repr=False)
    found: tuple[tuple[Span, ...], ...] | None = field(default=None, repr=False)
    draft: tuple[str, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Sample(Result):
    """Records drawn at random, to be labelled or labelled already."""

    header: SampleHeader
    items: tuple[LabelItem, ...]

    def tables(self) -> Iterator[Note]:
        header, population = self.header, self.header.population
        drawn = f"{len(self.items):,} of {population.records:,} {population.segment_by}s drawn with seed {header.seed}."
        secrets = "The file contains secrets: only you can read it (0600). Delete it when you are done with it."
        labels = "Labels: the corpus's gold spans." if header.labels is LabelOrigin.GOLD else header.how_to_label
        yield Note(f"{drawn}\n{secrets}\n{labels}")

    def to_json(self) -> dict[str, Any]:
        """The header as JSON values; the records contain secrets and are left out."""
        values: dict[str, Any] = json_values(self.header)
        return values


def draw_sample(
    records: Iterable[Record],
    policy: Policy,
    conservative: Policy | None = None,
    *,
    size: int = 200,
    seed: int | None = None,
    labels: LabelOrigin = LabelOrigin.PERSON,
    segment_by: SegmentBy = "record",
    drafter: Drafter | None = None,
) -> Sample:
    """`size` of the records, turns or sentences (`segment_by`) of `records`, uniformly, none twice.

    Without a seed the operating system gives one. Draw once: the best of several samples is no random sample.
    """
    if size < 1 or (seed is not None and seed < 0):
        raise ConfigError("1 record or more, and a seed of 0 or more", f"{size} and {seed}", "correct the number")
    seed = system_randomness.randbits(_SEED_BITS) if seed is None else seed
    key = new_key()
    whole = CorpusHash(key)
    drawn = reservoir(_counted(segment_records(records, segment_by), whole), size, random.Random(seed))
    if len(drawn) < size:
        raise ConfigError(
            expected=f"at least {size:,} {segment_by}s to draw from",
            found=f"{len(drawn):,}",
            way_out="draw fewer, with --records",
        )
    if len({record.id for record in drawn}) < size:
        raise CorpusError("records with ids of their own", "two with one id", "give each record its own id")
    policies = [policy] if conservative is None else [policy, conservative]
    items = tuple(_item(record, policies, labels) for record in drawn)
    if drafter is not None:
        items = tuple(replace(item, draft=drafter.draft(item.record.text)) for item in items)
    unsealed = SampleHeader(
        tacit_sample=1,
        how_to_label=HOW_TO_LABEL,
        policy=Frozen(policy.id, policy.hash),
        conservative=None if conservative is None else Frozen(conservative.id, conservative.hash),
        labels=labels,
        population=Population(segment_by, whole.records, key.hex(), whole.hexdigest()),
        sampled=size,
        seed=seed,
        seal="",
        draft=None if drafter is None else Frozen(drafter.id, drafter.hash),
    )
    return Sample(sealed(unsealed, items), items)


def check_corpus(sample: Sample, records: Iterable[Record]) -> None:
    """Refuse a sample that was drawn from other records than these."""
    population = sample.header.population
    found = population.hash_of(records)
    if found.hexdigest() != population.hash:
        raise ClaimRefused(
            expected=f"the corpus that the sample was drawn from ({population.records:,} {population.segment_by}s)",
            found=f"another one ({found.records:,} {population.segment_by}s), or one that was changed since",
            way_out="give the corpus as it was, or draw and label a new sample from this one",
        )


def _counted(records: Iterable[Record], whole: CorpusHash) -> Iterator[Record]:
    for record in records:
        whole.add(record)
        yield record


def reservoir(items: Iterable[Item], size: int, generator: random.Random) -> list[Item]:
    """Algorithm R (Vitter 1985, ACM TOMS 11), shuffled: its places are not random, only its choice is."""
    kept: list[Item] = []
    for number, item in enumerate(items, 1):
        if len(kept) < size:
            kept.append(item)
        elif (place := generator.randrange(number)) < size:
            kept[place] = item
    generator.shuffle(kept)
    return kept


def _item(record: Record, policies: list[Policy], labels: LabelOrigin) -> LabelItem:
    """The record as it will be read back. Policies look at it now: one that cannot is refused before anyone labels."""
    gold = labels == LabelOrigin.GOLD
    if gold and record.spans is None:
        raise CorpusError("gold spans in every record", "a sampled record without", "label the sample by hand")
    seen = replace(record, spans=resolve_overlaps(record.spans or ()) if gold else None)
    found = tuple(policy.marks(seen) for policy in policies)
    return LabelItem(seen, seen.spans, found if labels == LabelOrigin.PERSON_SHOWN_FOUND else None)


def sealed(header: SampleHeader, items: tuple[LabelItem, ...]) -> SampleHeader:
    """`header` with the seal of itself and of `items`."""
    fields = asdict(replace(header, seal=""))
    if header.draft is None:
        del fields["draft"]  # as in samples from before there were drafts
    lines = [(one.id, one.text, one.user, one.label, *(one.messages or ())) for one in (item.record for item in items)]
    gold = [item.record.spans for item in items]  # None where a person labels
    content = json.dumps([fields, lines, gold], sort_keys=True)
    return replace(header, seal=hashlib.sha256(content.encode()).hexdigest())


_LABELED = "LABELED"
_KEYS = {"id", "text", "user", "label", "messages", "found", "draft", "secrets"}
_FAULTS_SHOWN = 10


def write_sample(sample: Sample, path: Path) -> None:
    """A line with the header, then one line per record; for its owner alone, and never over another file."""
    check_free(path)
    rows = [asdict(sample.header), *(_row(item) for item in sample.items)]
    try:
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    except UnicodeEncodeError:  # which contains the text: it is not chained
        raise CorpusError(
            expected="records whose strings are Unicode text",
            found="half a surrogate pair in one of them",
            way_out="correct the text where it comes from",
        ) from None
    write_private(path, content)


def check_free(path: Path) -> None:
    """Refuse a path for the sample where a file is: it may contain a person's labels."""
    if os.path.lexists(path):
        raise ConfigError(
            expected=f"no file at {path} yet",
            found="one that may contain labels",
            way_out="name another file with --out, or remove this one",
        )


def read_labels(path: Path) -> Sample:
    """The sample that a person has labelled; refused unless every line is there, unchanged and labelled."""
    first, *rest = _lines(path)
    header = from_json(SampleHeader, first)
    if len(rest) != header.sampled:
        raise _not_whole(f"{len(rest):,} lines after the header, which counts {header.sampled:,}")
    rows = [_object(line, number) for number, line in enumerate(rest, 2)]
    records = [_record(row, number) for number, row in enumerate(rows, 2)]
    if len({record.id for record in records}) < len(records):
        raise _not_whole("an id that is in two lines")
    unlabelled = sum(row["secrets"] is None for row in rows)
    if unlabelled:
        raise CorpusError(
            expected="a list of secrets in every line, [] where there is none",
            found=f"{unlabelled:,} of {len(rows):,} lines without one (null)",
            way_out="label them: a line that nobody read tells nothing about the policy",
        )
    items = _labelled(records, rows, header.labels)
    if header != sealed(header, items):
        raise _not_whole("a header, a text or a gold label that was changed, or lines in another order")
    return Sample(header, items)


def _row(item: LabelItem) -> dict[str, Any]:
    record = item.record
    row = {name: getattr(record, name) for name in ("id", "text", "user", "label", "messages")}
    row |= {"found": item.found, "draft": item.draft}
    return {name: value for name, value in row.items() if value is not None} | {"secrets": item.secrets}


def _record(row: dict[str, Any], number: int) -> Record:
    given = row.get("messages")
    try:
        messages = None if given is None else tuple(Message(str(role), int(a), int(b)) for role, a, b in given)
    except (TypeError, ValueError):
        raise _changed(number) from None
    return Record(row["id"], row["text"], row.get("user"), row.get("label"), None, messages)


def _lines(path: Path) -> list[str]:
    try:
        text = read_private(path).decode("utf-8-sig")
    except UnicodeDecodeError:  # which contains the text: it is not chained
        raise CorpusError(f"UTF-8 text in {path}", "other bytes", "save it as UTF-8") from None
    lines = [line for line in text.split("\n") if line.strip()]  # str.splitlines would break inside some texts
    if not lines:
        raise CorpusError(f"a sample in {path}", "an empty file", "draw one with `tacit label draw`")
    return lines


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError:  # which may contain the text: it is not chained
        row = None
    if (
        not isinstance(row, dict)
        or not {"id", "text", "secrets"} <= set(row) <= _KEYS
        or not all(isinstance(row[name], str) for name in row.keys() - {"messages", "found", "draft", "secrets"})
    ):
        raise _changed(number)
    return row


def _changed(number: int) -> CorpusError:
    return CorpusError(
        expected=f"a JSON object with the keys it was written with, each once, in line {number} of the sample",
        found="something else",
        way_out="correct the line: change nothing but the value of `secrets`",
    )


def _labelled(records: list[Record], rows: list[dict[str, Any]], labels: LabelOrigin) -> tuple[LabelItem, ...]:
    items, faults = [], []
    for number, (record, row) in enumerate(zip(records, rows, strict=True), 2):
        spans: list[Span] = []
        entries = row["secrets"] if isinstance(row["secrets"], list) else [None]
        for at, entry in enumerate(entries, 1):
            places = _places(entry, record.text)
            spans += places
            if not places:
                faults.append(f"line {number}, secret {at}")
        secrets = in_messages(record, resolve_overlaps(spans))
        items.append(LabelItem(replace(record, spans=secrets) if labels == LabelOrigin.GOLD else record, secrets))
    if faults:
        more = f" and {len(faults) - _FAULTS_SHOWN:,} more" if len(faults) > _FAULTS_SHOWN else ""
        raise CorpusError(
            expected="lists of secrets, each a text that occurs in the record's text or [start, end] inside it",
            found="something else at " + "; ".join(faults[:_FAULTS_SHOWN]) + more,
            way_out="correct these labels; characters count from 0, and `end` is the one after the last",
        )
    return tuple(items)


def _places(entry: object, text: str) -> list[Span]:
    """Where a secret is: everywhere for a text, at [start, end] or [start, end, kind], nowhere when it is wrong."""
    if isinstance(entry, str) and entry.strip():
        places = re.finditer(f"(?={re.escape(entry)})", text)  # also those that overlap
        return [Span(place.start(), place.start() + len(entry), _LABELED) for place in places]
    if not isinstance(entry, list) or len(entry) not in (2, 3) or any(type(end) is not int for end in entry[:2]):
        return []
    start, end, kind = (*entry, _LABELED)[:3]
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
