"""A labelled sample of a corpus, and the miss rates of frozen policies that follow from it (theory, sections 4 and 7).

    sample = draw_sample(read("chats.jsonl"), policy)       # freeze the policy, then draw
    write_sample(sample, Path("sample.jsonl"))              # a person fills in `secrets`, line by line
    result = measured(read_labels(Path("sample.jsonl")), policy)
    result.coverage.miss_rate

Guarantees: G1 to G3 in `sample`, G4 to G6 in `files`, G7 and G8 in `coverage`.
"""

from tacit.labelling.coverage import Covered, Measured, TrainedOn, measured, read_coverage, write_coverage
from tacit.labelling.files import check_free, read_labels, write_sample
from tacit.labelling.sample import Item, Labels, Sample, check_corpus, draw_sample

__all__ = [
    "Covered",
    "Item",
    "Labels",
    "Measured",
    "Sample",
    "TrainedOn",
    "check_corpus",
    "check_free",
    "draw_sample",
    "measured",
    "read_coverage",
    "read_labels",
    "write_coverage",
    "write_sample",
]
