"""Marked records for tests: as `tacit train` makes them, in memory and without files."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tacit.config.schema import Config
from tacit.data.corpus import read
from tacit.data.marked import MarkedRecord, Part, Split, public_text
from tacit.data.ownership import Annotator
from tacit.data.prepare import PrepareConfig
from tacit.data.prepare import prepare as prepare_marked
from tacit.data.records import Record, segment_records
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer
from tacit.policies.card import CardCounts, PolicyCard, card_of_run
from tacit.policies.detectors.detector import DetectorOverlap
from tacit.policies.detectors.detector import check_detector_data as check_overlap
from tacit.policies.marking import Policies, RecordSampler, Unmarked
from tacit.policies.policy import Policy
from tacit.training.marking import side_of
from tacit.training.overlap import Overlap


def mark(
    records: Iterable[Record], policy: Policy, conservative: Policy | None = None, part: Part = Part.TRAIN
) -> Iterator[MarkedRecord]:
    """Each record with its marks."""
    policies = Policies(policy, conservative)
    return (MarkedRecord(record, policies.mark(Unmarked(part, record))) for record in records)


def prepare(
    records: Iterable[Record],
    policy: Policy,
    tokenizer: Tokenizer,
    out: Path,
    settings: PrepareConfig = PrepareConfig(),  # noqa: B008  (frozen)
    conservative: Policy | None = None,
    annotator: Annotator | None = None,
    part: Part = Part.TRAIN,
) -> PreparedCorpus:
    """Records marked and prepared; `annotator` sees them on the way."""
    marked = mark(records, policy, conservative, part)
    return prepare_marked(marked if annotator is None else annotator.watching(marked), policy, tokenizer, out, settings)


def public_segments(records: Iterable[Record], policy: Policy) -> Iterator[str]:
    """The public text of records."""
    return public_text(mark(records, policy))


def sampled(records: Iterable[Record], policy: Policy) -> RecordSampler:
    """A sampler that saw the records."""
    sampler = RecordSampler()
    for one in mark(records, policy, part=Part.HELD_OUT):
        sampler.see(one.record, one.marks)
    return sampler


def measured(policy: Policy, records: Iterable[Record]) -> PolicyCard | None:
    """The policy against the labels of records."""
    counts = CardCounts()
    for one in mark(records, policy):
        if one.marks.refusal is None:
            counts.add_usable(one.record, one.marks.spans)
    return card_of_run(policy, counts)


def check_detector_data(policy: Policy, corpus: Callable[[], Iterable[Record]]) -> None:
    """Refuse a policy whose detector learned from the records."""
    overlap = DetectorOverlap(policy)
    for _ in overlap.watching(corpus()):
        pass
    check_overlap(overlap.found())


def check_apart(experiment: Config) -> int:
    """How many held-out texts also occur in the corpus; files that are too much alike are refused."""
    overlap = Overlap(experiment)
    if experiment.data.held_out_corpus is not None:
        list(overlap.held_out(read(experiment.data.held_out_corpus)))
    list(overlap.corpus(read(experiment.corpus)))
    return overlap.check()


def records_of(experiment: Config, side: Split) -> Iterator[Record]:
    """The records of one side, as the corpus has them."""
    apart = experiment.data.held_out_corpus
    if apart is not None:
        yield from segment_records(
            read(apart if side == Split.VALIDATION else experiment.corpus), experiment.data.segment_by
        )
        return
    for record in segment_records(read(experiment.corpus), experiment.data.segment_by):
        if side_of(experiment, record.user or record.id) == side:
            yield record
