"""A corpus before it is prepared: split by a hash, with canaries planted, and marked on disk until the run has ended.

G1 (stable). Where a record goes depends on its key, the salt and the shares alone: adding or removing records never
   moves another one.
G2 (together). All that has one key, such as the records of a user, is in one split.
G3 (fair). Over keys, each split has its share: positions are 64 bits of BLAKE2b, uniform on [0, 1).
G4 (monotone). Raising the train share only moves records into train.

Canaries are made-up secrets, planted so that an audit can ask whether the model says them. Each is inside or outside by
its own coin, so that an adversary who tells members from non-members can be compared with a coin; its twin is drawn
from the same distribution and never planted.

G5 (distinct). No two values are equal, twins included.
G6 (exchangeable). Values are drawn before and apart from the coins: nothing but chance tells a canary from its twin, or
   one inside from one outside.
G7 (faithful). Planting leaves the corpus's records unchanged and in order, and plants each canary that is inside
   exactly `repetitions` times.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tacit.common.files import Keyed, digest, new_folder, owner_alone, sync_file
from tacit.config.audit_schema import CanaryPlan
from tacit.data.records import Message, Record, Span
from tacit.data.text_files import zstd
from tacit.data.views import PublicChat, PublicText, divide, divide_chat
from tacit.errors import ConfigError, PolicyError, PrepareError

_POSITION_BITS = 64


HELD_OUT_SALT = "tacit held-out"
"""Which users (or records) of a corpus are kept for measuring."""


class Split(StrEnum):
    """The part of a corpus a record belongs to."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Shares:
    """How much of the keys each split gets; together 1."""

    train: float = 0.8
    validation: float = 0.1
    test: float = 0.1

    def __post_init__(self) -> None:
        parts = (self.train, self.validation, self.test)
        if not all(0 <= part <= 1 for part in parts) or not math.isclose(sum(parts), 1, abs_tol=1e-9):
            raise ConfigError(
                expected="three shares between 0 and 1 that sum to 1",
                found=", ".join(map(str, parts)),
                way_out="give for instance 0.8, 0.1 and 0.1",
            )

    def of(self, split: Split) -> float:
        return float(getattr(self, split))


def split_of(key: str, salt: str, shares: Shares) -> Split:
    """The split of a key. The salt is public; another salt gives an independent split."""
    # The salt's length keeps ("a", "bc") and ("ab", "c") apart.
    salt_bytes = salt.encode("utf-8", "surrogatepass")
    message = len(salt_bytes).to_bytes(8) + salt_bytes + key.encode("utf-8", "surrogatepass")
    position = int.from_bytes(hashlib.blake2b(message, digest_size=_POSITION_BITS // 8).digest())
    *first, last = (split for split in Split if shares.of(split) > 0)
    end = 0.0
    for split in first:
        end += shares.of(split)
        if position < end * 2**_POSITION_BITS:
            return split
    return last


class CorpusHash:
    """The hash of records that stream by, and how many they were."""

    def __init__(self, key: bytes) -> None:
        self._state = Keyed(key)
        self.records = 0

    def add(self, record: Record) -> None:
        """Its id, its text, and what else policies and splits look at."""
        said = () if record.messages is None else (record.messages,)
        self._state.add(record.id, record.text, repr((record.user, record.label, record.spans, *said)))
        self.records += 1

    def hexdigest(self) -> str:
        return self._state.hexdigest()


class Part(StrEnum):
    """Where a marked record is used: to train, to measure with, or as a planted canary."""

    TRAIN = "train"
    HELD_OUT = "held-out"
    PLANTED = "planted"


class Refusal(NamedTuple):
    """Why a policy could not mark a record, as the three parts of an error."""

    expected: str
    found: str
    way_out: str


class Marks(NamedTuple):
    """What policies found in a record. `flagged`: it is routed to the protected set."""

    spans: tuple[Span, ...]
    flagged: bool
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class MarkedRecord:
    """A record without its gold spans, and its marks."""

    record: Record
    marks: Marks

    @property
    def doubtful(self) -> bool:
        """Whether the conservative policy alone flagged it."""
        return self.marks.flagged and not self.marks.spans

    def divided(self) -> tuple[PublicText | PublicChat, tuple[str, ...]]:
        """Its public text and its secrets; a record without sensible spans is refused."""
        if self.marks.refusal is not None:
            raise PolicyError(*self.marks.refusal)
        if self.record.messages is not None:
            return divide_chat(self.record.text, self.record.messages, self.marks.spans)
        return divide(self.record.text, self.marks.spans)


def public_text(records: Iterable[MarkedRecord]) -> Iterator[str]:
    """The public text of records, segment by segment, without placeholders and without what `prepare` quarantines."""
    for one in records:
        try:
            public, _ = one.divided()
        except (PolicyError, PrepareError):
            continue
        yield from filter(None, public.segments)


@dataclass(frozen=True, slots=True)
class CorpusSummary:
    """What was counted while a corpus was marked; it outlives the marked records.

    files: hashes of the marked records. held_out_limit: held-out records are measured with up to this `sample_key`;
    None is all of them. held_out_characters: of their texts. population_hash: of the corpus under the key of a labeled
    sample, if there is one. detector_overlap: whether a policy's detector learned from it.
    """

    files: dict[str, str]
    held_out_limit: int | None
    held_out_characters: int
    population_hash: str | None
    detector_overlap: bool


WriteMarked = Callable[[Part, MarkedRecord], None]


class MarkedCorpus:
    """Marked records on disk, for their owner alone: one file of compressed JSON lines for each part.

    G1 (all or nothing). The folder appears whole, by one rename.
    G2 (as written). `is_intact` tells files that were cut or changed since their hashes were taken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def written(self) -> Iterator[WriteMarked]:
        """A function that adds one record to its part; an older corpus in this place is replaced."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with new_folder(self._folder) as draft, ExitStack() as stack:
            files = {part: stack.enter_context(_compressed(draft / _name(part))) for part in Part}
            yield lambda part, one: _write(files[part], one)

    def records(self, part: Part) -> Iterator[MarkedRecord]:
        """The records of one part, in their order."""
        path = self._folder / _name(part)
        if not path.stat().st_size:  # without a record there is no frame either
            return
        with zstd.open(path, "rt", encoding="ascii") as lines:
            yield from map(_read, lines)

    def hashes(self) -> dict[str, str]:
        """SHA-256 of each file."""
        return {_name(part): digest(self._folder / _name(part)) for part in Part}

    def is_intact(self, hashes: Mapping[str, str]) -> bool:
        return all((self._folder / _name(part)).is_file() for part in Part) and self.hashes() == hashes

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _name(part: Part) -> str:
    return f"{part}.jsonl.zst"


@contextmanager
def _compressed(path: Path) -> Iterator[zstd.ZstdFile]:
    with open(path, "xb", opener=owner_alone) as file, zstd.ZstdFile(file, "wb") as stream:
        yield stream
    sync_file(path)


def _write(file: zstd.ZstdFile, one: MarkedRecord) -> None:
    record = one.record
    whole = [record.id, record.text, record.user, record.label, record.messages, *one.marks]
    file.write(json.dumps(whole).encode() + b"\n")


def _read(line: str) -> MarkedRecord:
    name, text, user, label, said, spans, flagged, refusal = json.loads(line)
    messages = None if said is None else tuple(Message(*message) for message in said)
    marks = Marks(tuple(Span(*span) for span in spans), flagged, None if refusal is None else Refusal(*refusal))
    return MarkedRecord(Record(name, text, user, label, None, messages), marks)


CANARY = "CANARY"


@dataclass(frozen=True, slots=True)
class CanaryRecord:
    """One canary, for the audit; `dataclasses.asdict` of it is JSON. The twin is never planted."""

    id: str
    text: str
    value: str
    inside: bool
    repetitions: int
    twin_text: str
    twin_value: str


def draw_canaries(plan: CanaryPlan, generator: np.random.Generator, name: str = "canary") -> tuple[CanaryRecord, ...]:
    """Values, then coins; ids are `name` and a number."""
    slot = plan.slot
    values = slot.distinct(2 * plan.count, generator)
    coins = generator.random(plan.count) < plan.inside_probability
    return tuple(
        CanaryRecord(
            id=f"{name}-{number}",
            text=slot.text(value),
            value=value,
            inside=bool(inside),
            repetitions=plan.repetitions,
            twin_text=slot.text(twin),
            twin_value=twin,
        )
        for number, (value, twin, inside) in enumerate(zip(values[::2], values[1::2], coins, strict=True))
    )


QUESTION = ("user", "Hello.")
"""What a canary in a corpus of chats is the answer to: an answer is learned whatever `train_on` says."""


def as_answer(record: Record) -> Record:
    """The record as a chat: the assistant's answer to a fixed question."""
    opened = f"{QUESTION[0]}: {QUESTION[1]}\nassistant: "
    asked = Message(QUESTION[0], len(QUESTION[0]) + 2, len(QUESTION[0]) + 2 + len(QUESTION[1]))
    start = len(opened)
    answer = Message("assistant", start, start + len(record.text))
    spans = tuple(Span(start + span.start, start + span.end, span.kind) for span in record.spans or ())
    return replace(record, text=f"{opened}{record.text}\n", spans=spans, messages=(asked, answer))


def plant(
    records: Iterable[Record],
    plan: CanaryPlan,
    canaries: Sequence[CanaryRecord],
    corpus_size: int,
    generator: np.random.Generator,
) -> Iterator[Record]:
    """The records, streaming, with the canaries that are inside at random places among the first `corpus_size`.

    Each canary has a made-up user of its own. Copies have the ids `canary-3/0`, `canary-3/1`, ...
    Places beyond the end of a corpus that is shorter than said are at its end.
    """
    start, copies = len(plan.slot.before), []
    for canary in canaries:
        spans = (Span(start, start + len(canary.value), CANARY),) if plan.known else ()
        numbers = range(canary.repetitions if canary.inside else 0)
        copies += [Record(f"{canary.id}/{copy}", canary.text, user=canary.id, spans=spans) for copy in numbers]
    places = generator.integers(0, corpus_size, size=len(copies), endpoint=True)
    arrivals = [(int(places[number]), copies[number]) for number in np.argsort(places, kind="stable")[::-1]]
    for number, record in enumerate(records):
        while arrivals and arrivals[-1][0] <= number:
            yield arrivals.pop()[1]
        yield record
    while arrivals:
        yield arrivals.pop()[1]
