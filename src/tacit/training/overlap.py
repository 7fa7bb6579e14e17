"""Files that must be others than the corpus: the held-out one, and those that are declared public.

G1 (same). A file that is the corpus is refused, whatever its name: a link, a hard link, or a copy in any order.
G2 (shared). So is a file of which a fifth of the texts also occur in the corpus, and a file declared public in which a
   fifth of the texts of the corpus occur. A text of fewer than 20 characters may well be written twice: it counts only
   where its id is the same too. Fewer texts in common are public by declaration.
G3 (lines). So is a file declared public if half of its different lines of 20 characters or more occur in the corpus, or
   half of the corpus's in it: as when the texts of dialogs were printed to a text file. Of many lines 10,000 are
   compared, each as likely as any other. (Two corpora of one simulator have up to 40 % of the lines in common.)
G4 (held out). A file declared public is compared with `held_out_corpus` as with the corpus. No user of the corpus is in
   `held_out_corpus`.

That the file of a tokenizer and the examples of inventions do not come from the corpus stays a condition.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest

from tacit.config.schema import Config
from tacit.data.corpus import read
from tacit.data.records import Record
from tacit.errors import ConfigError

SHORTEST_COMPARED = 20  # characters of a text that is looked for in the other file
MOST_SHARED = 0.2  # of the texts of a file: from there on it is no other one
MOST_LINES_SHARED = 0.5
_LINES_COMPARED = 10_000


def check_apart(experiment: Config) -> int:
    """How many held-out texts also occur in the corpus; files that are too much alike are refused."""
    apart = experiment.data.held_out_corpus
    shared = 0 if apart is None else _held_out(apart, experiment.corpus)
    for setting, file in _declared_public(experiment).items():
        for whose, protected in (("the corpus", experiment.corpus), ("held_out_corpus", apart)):
            if protected is not None:
                _check_public(setting, file, whose, protected)
    return shared


@dataclass(slots=True)
class _Texts:
    """How many texts of a file were compared, and how many of them also occur in the other one."""

    compared: int = 0
    shared: int = 0
    most: float = MOST_SHARED
    what: str = "texts"

    @property
    def many(self) -> bool:
        return self.shared > 0 and self.shared >= self.most * self.compared

    def __str__(self) -> str:
        return f"{self.shared:,} of the {self.compared:,} {self.what} compared"


def _declared_public(experiment: Config) -> dict[str, str]:
    looks = experiment.training.eval_steps is not None and experiment.training.eval_on not in ("redacted", "full")
    files = {
        "vocabulary_corpus": experiment.data.vocabulary_corpus,
        "eval_on": experiment.training.eval_on if looks else None,
    }
    return {setting: file for setting, file in files.items() if file is not None}


def _held_out(apart: str, corpus: str) -> int:
    way_out = "take them out of one of the files, or leave held_out_corpus out: a share is then held out"
    users = {record.user for record in read(apart)} - {None}
    owned = sum(record.user in users for record in read(corpus)) if users else 0
    if owned:
        found = f"{owned:,} records of the corpus whose user is in it too"
        raise ConfigError("a held_out_corpus without a user of the corpus", found, way_out)
    inside, _ = _compared("held_out_corpus", apart, "the corpus", corpus)
    if inside.many:
        found = f"{inside} that also occur in the corpus"
        raise ConfigError("a held_out_corpus without many texts of the corpus", found, way_out)
    return inside.shared


def _check_public(setting: str, file: str, whose: str, protected: str) -> None:
    for inside, outside in (_compared(setting, file, whose, protected), _lines_compared(file, protected)):
        if inside.many or outside.many:
            found = f"{inside} that also occur in {whose}" if inside.many else f"{outside} of {whose} that occur in it"
            raise ConfigError(f"a {setting} that is public", found, f"name a public file, or leave {setting} out")


def _compared(setting: str, file: str, whose: str, protected: str) -> tuple[_Texts, _Texts]:
    """What the two files have in common, counted in the texts of each."""
    if os.path.exists(file) and os.path.exists(protected) and os.path.samefile(file, protected):
        raise ConfigError(f"a {setting} apart from {whose}", "the same file", f"name another file as {setting}")
    texts = Counter(_text_hash(record) for record in read(file))
    outside, seen = _Texts(), set[int]()
    for record in read(protected):
        text = _text_hash(record)
        common = text in texts
        outside.compared += common or text % 2
        outside.shared += common
        seen |= {text} if common else set()
    compared = sum(times for text, times in texts.items() if text in seen or text % 2)
    return _Texts(compared, sum(texts[text] for text in seen)), outside


def _text_hash(record: Record) -> int:
    """Odd for a text that is long enough to be known by itself."""
    alone = len(record.text) >= SHORTEST_COMPARED
    return hash(record.text if alone else (record.id, record.text)) << 1 | alone


def _lines_compared(file: str, protected: str) -> tuple[_Texts, _Texts]:
    """The same of their lines."""
    inside, outside = (_in_common(one, other) for one, other in ((file, protected), (protected, file)))
    return inside, outside


def _in_common(file: str, other: str) -> _Texts:
    some = _some_lines(file)
    found = {line for record in read(other) for line in _lines(record) if line in some}
    return _Texts(len(some), len(found), MOST_LINES_SHARED, "lines")


def _some_lines(file: str) -> set[int]:
    """The smallest hashes among those of all lines: a uniform sample of the different ones, in flat memory."""
    kept, largest = set[int](), sys.maxsize
    for record in read(file):
        kept.update(line for line in _lines(record) if line <= largest)
        if len(kept) > 2 * _LINES_COMPARED:
            kept = set(nsmallest(_LINES_COMPARED, kept))
            largest = max(kept)
    return set(nsmallest(_LINES_COMPARED, kept))


def _lines(record: Record) -> Iterator[int]:
    lines = (line.strip() for line in record.text.splitlines())
    return (hash(line) for line in lines if len(line) >= SHORTEST_COMPARED)
