"""Drawing records at random, to be labelled.

G1 (uniform). Every ordered choice of `size` different records is equally likely, whatever the records hold.
G2 (flat). One pass; memory holds the sample and a hash of the corpus, however long it is.
G3 (blind). Unless asked, the sample holds nothing of what a policy finds, and no record in it is labelled.
"""

import hashlib
import json
import random
import secrets as system_randomness
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field

from tacit.corpus.identity import CorpusHash
from tacit.corpus.pieces import Pieces, in_pieces
from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.digests import new_key
from tacit.errors import ClaimRefused, ConfigError, CorpusError
from tacit.policy.base import Policy

HOW_TO_LABEL = (
    "Replace null in `secrets` of every line: [] when the text holds no secret, else a list of every secret in it, "
    "each as its exact text (every place where it stands then counts) or as [start, end], characters from 0, half open."
)
_SEED_BITS = 63
_Hexadecimal = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Labels(StrEnum):
    """Who says what is secret in the sample."""

    PERSON = "person"
    PERSON_SHOWN_FOUND = "person shown what the policies found"
    GOLD = "gold"


@dataclass(frozen=True, slots=True)
class Frozen:
    """A policy as it was when the sample was drawn."""

    id: str
    hash: str

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """What is kept of `policy`."""
        return cls(policy.id, policy.hash)


@dataclass(frozen=True, slots=True)
class Population:
    """What the sample was drawn from: all pieces of all usable records of a corpus.

    pieces: what one unit is, as `train` cuts them. hash: of the units, under `key` (both hexadecimal).
    """

    pieces: Pieces
    records: int
    key: _Hexadecimal
    hash: _Hexadecimal

    def hash_of(self, records: Iterable[Record]) -> CorpusHash:
        """The hash of uncut `records`, to be compared with that of the population."""
        found = CorpusHash(bytes.fromhex(self.key))
        for piece in in_pieces(records, self.pieces):
            found.add(piece)
        return found


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a sample. `seal` is a hash of the other fields and of all lines but their labels."""

    tacit_sample: Literal[1]
    how_to_label: str
    policy: Frozen
    conservative: Frozen | None
    labels: Labels
    population: Population
    sampled: int
    seed: int
    seal: str


@dataclass(frozen=True, slots=True)
class Item:
    """A sampled record, as policies see it, and its secrets: sorted and disjoint, None until somebody labelled it."""

    record: Record = field(repr=False)
    secrets: tuple[Span, ...] | None = field(repr=False)
    found: tuple[tuple[Span, ...], ...] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Sample:
    """Records drawn at random, to be labelled or labelled already."""

    header: Header
    items: tuple[Item, ...]


def draw_sample(
    records: Iterable[Record],
    policy: Policy,
    conservative: Policy | None = None,
    *,
    size: int = 200,
    seed: int | None = None,
    labels: Labels = Labels.PERSON,
    pieces: Pieces = "record",
) -> Sample:
    """`size` of the `pieces` of `records`, uniformly, none twice.

    Without a seed the operating system gives one. Draw once: the best of several samples is no random sample.
    """
    if size < 1 or (seed is not None and seed < 0):
        raise ConfigError("1 record or more, and a seed of 0 or more", f"{size} and {seed}", "correct the number")
    seed = system_randomness.randbits(_SEED_BITS) if seed is None else seed
    key = new_key()
    whole = CorpusHash(key)
    drawn = _reservoir(_counted(in_pieces(records, pieces), whole), size, random.Random(seed))
    if len(drawn) < size:
        raise ConfigError(
            expected=f"at least {size:,} {pieces}s to draw from",
            found=f"{len(drawn):,}",
            way_out="draw fewer, with --records",
        )
    if len({record.id for record in drawn}) < size:
        raise CorpusError("records with ids of their own", "two with one id", "give each record its own id")
    policies = [policy] if conservative is None else [policy, conservative]
    items = tuple(_item(record, policies, labels) for record in drawn)
    unsealed = Header(
        tacit_sample=1,
        how_to_label=HOW_TO_LABEL,
        policy=Frozen.of(policy),
        conservative=None if conservative is None else Frozen.of(conservative),
        labels=labels,
        population=Population(pieces, whole.records, key.hex(), whole.hexdigest()),
        sampled=size,
        seed=seed,
        seal="",
    )
    return Sample(sealed(unsealed, items), items)


def check_corpus(sample: Sample, records: Iterable[Record]) -> None:
    """Refuse a sample that was drawn from other records than these."""
    population = sample.header.population
    found = population.hash_of(records)
    if found.hexdigest() != population.hash:
        raise ClaimRefused(
            expected=f"the corpus that the sample was drawn from ({population.records:,} {population.pieces}s)",
            found=f"another one ({found.records:,} {population.pieces}s), or one that was changed since",
            way_out="give the corpus as it was, or draw and label a new sample from this one",
        )


def _counted(records: Iterable[Record], whole: CorpusHash) -> Iterator[Record]:
    for record in records:
        whole.add(record)
        yield record


def _reservoir(records: Iterable[Record], size: int, generator: random.Random) -> list[Record]:
    """Algorithm R (Vitter 1985, ACM TOMS 11), shuffled: its places are not random, only its choice is."""
    kept: list[Record] = []
    for number, record in enumerate(records, 1):
        if len(kept) < size:
            kept.append(record)
        elif (place := generator.randrange(number)) < size:
            kept[place] = record
    generator.shuffle(kept)
    return kept


def _item(record: Record, policies: list[Policy], labels: Labels) -> Item:
    """The record as it will be read back. Policies look at it now: one that cannot is refused before anyone labels."""
    gold = labels == Labels.GOLD
    if gold and record.spans is None:
        raise CorpusError("gold spans in every record", "a sampled record without", "label the sample by hand")
    seen = replace(record, spans=resolve_overlaps(record.spans or ()) if gold else None)
    found = tuple(policy.find(seen) for policy in policies)
    return Item(seen, seen.spans, found if labels == Labels.PERSON_SHOWN_FOUND else None)


def sealed(header: Header, items: tuple[Item, ...]) -> Header:
    """`header` with the seal of itself and of `items`."""
    fields = asdict(replace(header, seal=""))
    lines = [(item.record.id, item.record.text, item.record.user, item.record.label) for item in items]
    gold = [item.record.spans for item in items]  # None where a person labels
    content = json.dumps([fields, lines, gold], sort_keys=True)
    return replace(header, seal=hashlib.sha256(content.encode()).hexdigest())
