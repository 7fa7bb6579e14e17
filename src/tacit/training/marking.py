"""The corpus of a run: read once, split, marked once, counted, and written to `private/` for all that follows.

Also which rows of a prepared store are protected, whose they are and which of them caps keep. This annotation is fixed
before training and treated as public (theory, sections 2 to 5); it decides which pool a record is in, and nothing else.

G1 (once). Nothing else reads the corpus or asks a policy; a run that was killed resumes from what was written, or marks
   anew where that is not whole.
G2 (held out). A user is on one side only: training, or held out to measure with.
G3 (whole records). Every mark is a record's: its pieces share it.
G4 (caps). No user and no entity is in more kept records than its cap.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from heapq import heappush, heappushpop
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tacit.common.progress import Observer, Progress
from tacit.config.schema import Config
from tacit.config.setting import Mode
from tacit.data.corpus import read
from tacit.data.fields import fields_of
from tacit.data.marked import (
    HELD_OUT_SALT,
    CorpusHash,
    CorpusSummary,
    MarkedCorpus,
    MarkedRecord,
    Part,
    Shares,
    Split,
    as_answer,
    split_of,
)
from tacit.data.ownership import Capped, RecordMarks, cap_contributions, dealt_users, salted_order
from tacit.data.records import Record, segment_records
from tacit.data.store import PreparedCorpus
from tacit.errors import ConfigError, PolicyError
from tacit.policies.card import CardCounts, card_of_run
from tacit.policies.coverage import read_population
from tacit.policies.detectors.detector import DetectorOverlap
from tacit.policies.marking import Inside, Policies, RecordSampler, Unmarked, mark_all
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.runs.verify import plant_canaries
from tacit.training.canaries import plans_for
from tacit.training.chats import OneKind, measured_characters
from tacit.training.overlap import Overlap
from tacit.training.pools import Annotation, RowEntities, narrow

MOST_MEASURED = 20_000
"""Held-out records that utility is measured with: the standard error of a share is below 0.4 % then, and the noise of
the release far below that, so that more would take time and show the same."""

DEALT = (15.0, 2.0)  # records of an invented user: mean and deviation, as UeDP deals AG News
_RECORDS_BETWEEN = 500
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Shared:
    """How many held-out texts also occur in the training corpus."""

    texts: int


def mark_once(config: Config, policies: Policies, run: RunFolder, observe: Observer) -> CorpusSummary:
    """The summary of the run's marked corpus, which is written first where it is missing or not whole."""
    marked = marked_corpus(run)
    if run.path(PrivateFile.SUMMARY).exists():
        known = run.read_json(CorpusSummary, PrivateFile.SUMMARY)
        if run.path(PrivateFile.NOTED).exists() or marked.is_intact(known.files):  # once noted, all was made of it
            return known
    return _Marking(config, policies, run).carry_out(marked, observe)


def marked_corpus(run: RunFolder) -> MarkedCorpus:
    """Where the run has its marked records, until it has ended."""
    return MarkedCorpus(run.path(PrivateFile.MARKED))


def side_of(config: Config, owner: str) -> Split:
    """On which side the records of the corpus are that belong to this user, or have this id and no user."""
    if config.data.held_out_corpus is not None:
        return Split.TRAIN
    return split_of(owner, HELD_OUT_SALT, Shares(1 - config.held_out_share, config.held_out_share, 0.0))


def training_records(config: Config, marked: MarkedCorpus) -> Iterator[MarkedRecord]:
    """The training side, with users as the settings ask, without canaries."""
    records = marked.records(Part.TRAIN)
    if config.data.user_source == "given":
        return records
    if config.data.user_source == "documents":
        return (_owned(one, one.record.id) for one in records)
    dealt = dealt_users((one.record.id for one in marked.records(Part.TRAIN)), *DEALT, salt=HELD_OUT_SALT)
    return (_owned(one, f"dealt-{number}") for one, number in zip(records, dealt, strict=True))


def _owned(one: MarkedRecord, user: str) -> MarkedRecord:
    return replace(one, record=replace(one.record, user=user))


def counted(
    items: Iterable[Item], observe: Observer, share: Callable[[], float | None] = lambda: None
) -> Iterator[Item]:
    """The same items; `observe` is told now and then how many were done, and which share of the corpus was read."""
    for done, item in enumerate(items, 1):
        yield item
        if done % _RECORDS_BETWEEN == 0:
            observe(Progress("preparing", done, None, share=share()))


@dataclass(slots=True)
class HeldOutSample:
    """The held-out records with the smallest keys, as many as utility is measured with.

    G1 (public). A record's key depends on its id alone: zeroing out what any record says leaves the sample as it is.
    """

    most: int
    characters: int = 0
    _kept: list[tuple[int, int]] = field(default_factory=list)  # the largest key first, as heapq has the smallest

    def see(self, record: Record, characters: int) -> None:
        """Count the characters of a record that is in the sample so far, instead of one that leaves it."""
        one = (-sample_key(record.id), characters)
        self.characters += one[1]
        if len(self._kept) < self.most:
            heappush(self._kept, one)
        else:
            self.characters -= heappushpop(self._kept, one)[1]

    @property
    def limit(self) -> int | None:
        """The largest key in the sample; None where nothing was left out."""
        return -self._kept[0][0] if len(self._kept) == self.most else None


def sample_key(record_id: str) -> int:
    """64 bits of the hash of an id."""
    return int.from_bytes(hashlib.blake2b(record_id.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def held_out_records(limit: int | None, marked: MarkedCorpus) -> Iterator[MarkedRecord]:
    """The records that utility is measured with."""
    records = marked.records(Part.HELD_OUT)
    return (one for one in records if limit is None or sample_key(one.record.id) <= limit)


class _Marking:
    """One pass over the corpus of a run."""

    def __init__(self, config: Config, policies: Policies, run: RunFolder) -> None:
        self._config, self._policies, self._run = config, policies, run
        coverage = config.marking.coverage
        self._population = None if coverage is None else CorpusHash(bytes.fromhex(read_population(Path(coverage)).key))
        self._fields = fields_of(asdict(config.data))
        self._corpus = read(config.corpus, self._fields)
        self._overlap = Overlap(config)
        self._detectors = DetectorOverlap(policies.together())
        self._sampler, self._card, self._held_out = RecordSampler(), CardCounts(), HeldOutSample(MOST_MEASURED)

    def carry_out(self, marked: MarkedCorpus, observe: Observer) -> CorpusSummary:
        """Mark, count and write every record, and the summary last; refuse files that are too much alike."""
        run, held_out = self._run, self._held_out
        with marked.written() as write, closing(mark_all(self._policies, self._records())) as found:
            for one, marks in counted(found, observe, lambda: self._corpus.share_read):
                if marks.refusal is not None and one.part != Part.HELD_OUT:
                    raise PolicyError(*marks.refusal)
                if one.part == Part.TRAIN:
                    self._sampler.see(one.record, marks)
                elif one.part == Part.HELD_OUT:
                    held_out.see(one.record, measured_characters(one.record, self._config))
                    if marks.refusal is None:
                        self._card.add_usable(one.record, marks.spans)
                write(one.part, MarkedRecord(one.record, marks))
            run.write_json(PrivateFile.SHARED, Shared(self._overlap.check()))
        run.write_json(PrivateFile.SAMPLE, Inside(self._sampler.excerpts(), ()))
        card = card_of_run(self._policies.marking, self._card)
        if card is not None:
            run.write_json(PrivateFile.POLICY, card)
        population = None if self._population is None else self._population.hexdigest()
        counts = (held_out.limit, held_out.characters, population)
        summary = CorpusSummary(marked.hashes(), *counts, self._detectors.found())
        run.write_json(PrivateFile.SUMMARY, summary)
        return summary

    def _records(self) -> Iterator[Unmarked]:
        """Held-out records of a file of their own, those of the corpus in its order, and canaries last."""
        config = self._config
        seed = config.seed or 0 if config.mode == Mode.RESEARCH else None
        kind, trained = OneKind(), 0
        if config.data.held_out_corpus is not None:
            apart = self._overlap.held_out(read(config.data.held_out_corpus, self._fields))
            for record in segment_records(apart, config.data.segment_by):
                yield Unmarked(Part.HELD_OUT, kind.see(record))
        corpus = self._detectors.watching(self._overlap.corpus(self._corpus))
        for record in segment_records(corpus, config.data.segment_by):
            if self._population is not None:
                self._population.add(record)
            trains = side_of(config, record.user or record.id) == Split.TRAIN
            trained += trains
            yield Unmarked(Part.TRAIN if trains else Part.HELD_OUT, kind.see(record))
        for record in plant_canaries(self._run, plans_for(config, trained), seed).records():
            yield Unmarked(Part.PLANTED, as_answer(record) if kind.chats else record)


_CAP_SALT = "tacit caps"


@dataclass(frozen=True, slots=True)
class Caps:
    """The most records that a user and an entity keep; None is no limit."""

    user: int | None = None
    entity: int | None = None


def annotate(store: PreparedCorpus, marks: RecordMarks, caps: Caps) -> tuple[Annotation, float | None]:
    """The annotation of every row of `store`, and the share of records that the caps dropped."""
    numbers = store.records.astype(np.int64)
    entities = _row_entities(marks, numbers)
    kept, dropped = None, None
    if caps != Caps():
        records, first = np.unique(numbers, return_index=True)
        kept_records = _kept(store, records, first, marks, caps)
        kept = np.isin(numbers, records[kept_records])
        dropped = 1 - float(kept_records.mean()) if len(records) else 0.0
    annotation = Annotation.of(store, flagged=marks.flagged[numbers], kept=kept, entities=entities)
    store.release_pages()
    return annotation, dropped


def _row_entities(marks: RecordMarks, numbers: npt.NDArray[np.int64]) -> RowEntities:
    """Of each row the entities of its record."""
    if not len(marks.entity_ids):
        return RowEntities(np.zeros(len(numbers) + 1, np.int32), np.zeros(0, np.int32), 0)
    offsets, ids = _entities_of(marks, numbers)
    return RowEntities(narrow(offsets), narrow(ids), int(marks.entity_ids.max()) + 1)


def _entities_of(
    marks: RecordMarks, records: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Offsets and ids of the entities of `records`."""
    starts, ends = marks.entity_offsets[records], marks.entity_offsets[records + 1]
    offsets = np.concatenate(([0], np.cumsum(ends - starts)))
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], ends - starts)
    return offsets, marks.entity_ids[places]


def _kept(
    store: PreparedCorpus, records: npt.NDArray[np.int64], first: npt.NDArray[np.int64], marks: RecordMarks, caps: Caps
) -> npt.NDArray[np.bool_]:
    """Which of `records`, each with its `first` row, the caps keep."""
    capped = []
    if caps.user is not None:
        owners = store.users[first]
        if not owners.all():
            raise ConfigError(
                expected="a user for every record whose users are capped",
                found=f"{int(np.count_nonzero(owners == 0))} records without one",
                way_out="name the user of every record, or set users: documents, or users: dealt",
            )
        capped.append(Capped(np.arange(len(records) + 1), np.unique(owners, return_inverse=True)[1], caps.user))
    if caps.entity is not None:
        capped.append(Capped(*_entities_of(marks, records), caps.entity))
    return cap_contributions(capped, salted_order((store.record_id(int(row)) for row in first), _CAP_SALT))
