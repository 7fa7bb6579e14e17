"""The corpus of a run: read once, split, marked once, counted, and written to `private/` for all that follows.

G1 (once). Nothing else reads the corpus or asks a policy; a run that was killed goes on from what was written, or marks
   anew where that is not whole.
G2 (held out). A user is on one side only: training, or held out to measure with.

Which rows of a prepared store are protected, whose they are and which of them caps keep: public annotation.

Annotation is fixed before training and treated as public (theory, sections 2 to 5): zeroing out what a unit says leaves
it as it is. It decides which pool a record is in, and nothing else.

G1 (whole records). Every mark is a record's: its pieces share it.
G3 (caps). No user and no entity is in more kept records than its cap.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

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
    Marks,
    Part,
    Shares,
    Split,
    WriteMarked,
    split_of,
)
from tacit.data.ownership import RecordMarks, cap_contributions, dealt_users, salted_order
from tacit.data.records import segment_records
from tacit.data.store import PreparedCorpus
from tacit.errors import ConfigError, PolicyError
from tacit.policies.card import CardCounts, measured
from tacit.policies.coverage import read_population
from tacit.policies.detectors.detector import DetectorOverlap
from tacit.policies.marking import Inside, Policies, RecordSampler, Unmarked, mark_all
from tacit.runs.files import PrivateFile, ReleaseFile
from tacit.runs.folder import RunFolder
from tacit.runs.verify import plant_canaries
from tacit.training.overlap import Overlap
from tacit.training.pools import Annotation, RowEntities

DEALT = (15.0, 2.0)  # records of an invented user: mean and deviation, as UeDP deals AG News


_RECORDS_BETWEEN = 500


@dataclass(frozen=True, slots=True)
class Shared:
    """How many held-out texts also occur in the training corpus."""

    texts: int


def mark_once(experiment: Config, policies: Policies, run: RunFolder, observe: Observer) -> CorpusSummary:
    """The summary of the run's marked corpus, which is written first where it is missing or not whole."""
    marked = marked_corpus(run)
    if run.path(PrivateFile.SUMMARY).exists():
        known = run.read_json(CorpusSummary, PrivateFile.SUMMARY)
        if run.path(ReleaseFile.PLAN).exists() or marked.is_intact(known.files):  # with a plan, all was made of it
            return known
    marking = _Marking(experiment, policies, run)
    with marked.written() as write:
        marking.go(write, observe)
    return marking.summary(marked)


def marked_corpus(run: RunFolder) -> MarkedCorpus:
    """Where the run has its marked records, until it has ended."""
    return MarkedCorpus(run.path(PrivateFile.MARKED))


def side_of(experiment: Config, owner: str) -> Split:
    """On which side the records of the corpus are that belong to this user, or have this id and no user."""
    if experiment.data.held_out_corpus is not None:
        return Split.TRAIN
    return split_of(owner, HELD_OUT_SALT, Shares(1 - experiment.held_out_share, experiment.held_out_share, 0.0))


def training_records(experiment: Config, marked: MarkedCorpus) -> Iterator[MarkedRecord]:
    """The training side, with users as the settings ask, without canaries."""
    records = marked.records(Part.TRAIN)
    if experiment.data.user_source == "given":
        return records
    if experiment.data.user_source == "documents":
        return (_owned(one, one.record.id) for one in records)
    dealt = dealt_users([one.record.id for one in marked.records(Part.TRAIN)], *DEALT, salt=HELD_OUT_SALT)
    return (_owned(one, user) for one, user in zip(records, dealt, strict=True))


def _owned(one: MarkedRecord, user: str) -> MarkedRecord:
    return replace(one, record=replace(one.record, user=user))


class _Marking:
    """One pass over the corpus of a run."""

    def __init__(self, experiment: Config, policies: Policies, run: RunFolder) -> None:
        self._experiment, self._policies, self._run = experiment, policies, run
        coverage = experiment.marking.coverage
        self._population = None if coverage is None else CorpusHash(bytes.fromhex(read_population(Path(coverage)).key))
        self._overlap = Overlap(experiment)
        self._detectors = DetectorOverlap(policies.together())
        self._sampler, self._card, self._characters = RecordSampler(), CardCounts(), 0

    def go(self, write: WriteMarked, observe: Observer) -> None:
        """Mark and write every record; refuse files that are too much alike."""
        with closing(mark_all(self._policies, self._records())) as found:
            for done, (one, marks) in enumerate(found, 1):
                if marks.refusal is not None and one.part != Part.HELD_OUT:
                    raise PolicyError(*marks.refusal)
                self._count(one, marks)
                write(one.part, MarkedRecord(one.record, marks))
                if done % _RECORDS_BETWEEN == 0:
                    observe(Progress("preparing", done, None))
        self._run.write_json(PrivateFile.SHARED, Shared(self._overlap.check()))

    def summary(self, marked: MarkedCorpus) -> CorpusSummary:
        """What was counted, also written to the run; the summary comes last."""
        run = self._run
        run.write_json(PrivateFile.SAMPLE, Inside(self._sampler.excerpts(), ()))
        card = measured(self._policies.marking, self._card)
        if card is not None:
            run.write_json(PrivateFile.POLICY, card)
        population = None if self._population is None else self._population.hexdigest()
        summary = CorpusSummary(marked.hashes(), self._characters, population, self._detectors.found())
        run.write_json(PrivateFile.SUMMARY, summary)
        return summary

    def _records(self) -> Iterator[Unmarked]:
        """Held-out records of a file of their own, those of the corpus in its order, and canaries last."""
        experiment = self._experiment
        seed = experiment.seed or 0 if experiment.mode == Mode.RESEARCH else None
        fields = fields_of(asdict(experiment.data))
        planted = plant_canaries(self._run, experiment.audit.canaries, seed)
        if experiment.data.held_out_corpus is not None:
            apart = self._overlap.held_out(read(experiment.data.held_out_corpus, fields))
            for record in segment_records(apart, experiment.data.segment_by):
                yield Unmarked(Part.HELD_OUT, record)
        corpus = self._detectors.watching(self._overlap.corpus(read(experiment.corpus, fields)))
        for record in segment_records(corpus, experiment.data.segment_by):
            if self._population is not None:
                self._population.add(record)
            trains = side_of(experiment, record.user or record.id) == Split.TRAIN
            yield Unmarked(Part.TRAIN if trains else Part.HELD_OUT, record)
        for record in planted.records():
            yield Unmarked(Part.PLANTED, record)

    def _count(self, one: Unmarked, marks: Marks) -> None:
        if one.part == Part.TRAIN:
            self._sampler.see(one.record, marks)
        elif one.part == Part.HELD_OUT:
            self._characters += len(one.record.text)
            if marks.refusal is None:
                self._card.add_usable(one.record, marks.spans)


_CAP_SALT = "tacit caps"


@dataclass(frozen=True, slots=True)
class Caps:
    """The most records that a user and an entity keep; None is no limit."""

    user: int | None = None
    entity: int | None = None

    def limits(self) -> dict[str, int]:
        """By noun, as `cap_contributions` wants them."""
        return {noun: cap for noun, cap in (("user", self.user), ("entity", self.entity)) if cap is not None}


def annotate(store: PreparedCorpus, marks: RecordMarks, caps: Caps) -> tuple[Annotation, float | None]:
    """The annotation of every row of `store`, and the share of records that the caps dropped."""
    numbers = store.records.astype(np.int64)
    entities = _row_entities(marks, numbers)
    kept, dropped = _kept(store, numbers, marks, caps) if caps.limits() else (None, None)
    return Annotation.of(store, flagged=marks.flagged[numbers], kept=kept, entities=entities), dropped


def _row_entities(marks: RecordMarks, numbers: npt.NDArray[np.int64]) -> RowEntities:
    """Of each row the entities of its record."""
    starts, ends = marks.entity_offsets[numbers], marks.entity_offsets[numbers + 1]
    offsets = np.concatenate(([0], np.cumsum(ends - starts)))
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], ends - starts)
    count = int(marks.entity_ids.max(initial=-1)) + 1
    small = np.int32 if count <= np.iinfo(np.int32).max else np.int64
    return RowEntities(offsets, marks.entity_ids[places].astype(small), count)


def _kept(
    store: PreparedCorpus, numbers: npt.NDArray[np.int64], marks: RecordMarks, caps: Caps
) -> tuple[npt.NDArray[np.bool_], float]:
    records, first = np.unique(numbers, return_index=True)
    owners = store.users[first]
    if caps.user is not None and not owners.all():
        raise ConfigError(
            expected="a user for every record whose users are capped",
            found=f"{int(np.count_nonzero(owners == 0))} records without one",
            way_out="name the user of every record, or set users: documents, or users: dealt",
        )
    units = [
        {"user": [int(owner)], "entity": marks.entities(int(record))}
        for record, owner in zip(records, owners, strict=True)
    ]
    order = salted_order([store.record_id(int(row)) for row in first], _CAP_SALT)
    kept, report = cap_contributions(units, caps.limits(), order)
    return np.isin(numbers, records[kept]), report.share_dropped
