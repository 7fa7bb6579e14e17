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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest

from tacit.config.schema import Config
from tacit.data.corpus import read
from tacit.data.records import Record
from tacit.errors import ConfigError
from tacit.training.checks import public_choice

SHORTEST_COMPARED = 20  # characters of a text that is looked for in the other file
MOST_SHARED = 0.2  # of the texts of a file: from there on it is no other one
MOST_LINES_SHARED = 0.5
_LINES_COMPARED = 10_000


class Overlap:
    """Watches the corpora of a run go by, the held-out one first, and compares them with each other and with files."""

    def __init__(self, config: Config) -> None:
        corpus, apart = config.corpus, config.data.held_out_corpus
        named = {"vocabulary_corpus": config.data.vocabulary_corpus, "eval_on": public_choice(config)}
        public = {setting: file for setting, file in named.items() if file is not None}
        _check_other_file("held_out_corpus", apart, "the corpus", corpus)
        for setting, file in public.items():
            _check_other_file(setting, file, "the corpus", corpus)
            _check_other_file(setting, file, "held_out_corpus", apart)
        self._held_out = _HeldOut()
        files = [_PublicFile(setting, file) for setting, file in public.items()]
        self._with_corpus = [_Comparison(file, "the corpus") for file in files]
        self._with_held_out = [_Comparison(file, "held_out_corpus") for file in files]

    def held_out(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records of `held_out_corpus`, each seen."""
        for record in records:
            self._held_out.add(record)
            for one in self._with_held_out:
                one.see(record)
            yield record

    def corpus(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records of the corpus, each seen."""
        for record in records:
            self._held_out.see(record)
            for one in self._with_corpus:
                one.see(record)
            yield record

    def check(self) -> int:
        """How many held-out texts also occur in the corpus; files that are too much alike are refused."""
        shared = self._held_out.check()
        for with_corpus, with_held_out in zip(self._with_corpus, self._with_held_out, strict=True):
            with_corpus.check()
            with_held_out.check()
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


class _TextMatch:
    """Texts of a file that are looked for in a corpus that goes by, counted in the texts of each."""

    def __init__(self, texts: Counter[int]) -> None:
        self._texts = texts
        self._seen: set[int] = set()
        self.outside = _Texts()

    def see(self, record: Record) -> None:
        text = _text_hash(record)
        common = text in self._texts
        self.outside.compared += common or text % 2
        self.outside.shared += common
        self._seen |= {text} if common else set()

    def inside(self) -> _Texts:
        compared = sum(times for text, times in self._texts.items() if text in self._seen or text % 2)
        return _Texts(compared, sum(self._texts[text] for text in self._seen))


class _LineSample:
    """The smallest hashes among those of all lines: a uniform sample of the different ones, in flat memory."""

    def __init__(self) -> None:
        self._kept = set[int]()
        self._largest = sys.maxsize

    def add(self, record: Record) -> None:
        self._kept.update(line for line in _lines(record) if line <= self._largest)
        if len(self._kept) > 2 * _LINES_COMPARED:
            self._kept = set(nsmallest(_LINES_COMPARED, self._kept))
            self._largest = max(self._kept)

    def lines(self) -> set[int]:
        return set(nsmallest(_LINES_COMPARED, self._kept))


class _HeldOut:
    """Users and texts of `held_out_corpus`, looked for in the corpus."""

    def __init__(self) -> None:
        self._users: set[str] = set()
        self._owned = 0
        self._texts: Counter[int] = Counter()
        self._match = _TextMatch(self._texts)

    def add(self, record: Record) -> None:
        self._texts[_text_hash(record)] += 1
        if record.user is not None:
            self._users.add(record.user)

    def see(self, record: Record) -> None:
        self._owned += record.user in self._users
        if self._texts:
            self._match.see(record)

    def check(self) -> int:
        way_out = "take them out of one of the files, or leave held_out_corpus out: a share is then held out"
        if self._owned:
            found = f"{self._owned:,} records of the corpus whose user is in it too"
            raise ConfigError("a held_out_corpus without a user of the corpus", found, way_out)
        inside = self._match.inside()
        if inside.many:
            found = f"{inside} that also occur in the corpus"
            raise ConfigError("a held_out_corpus without many texts of the corpus", found, way_out)
        return inside.shared


class _PublicFile:
    """A file that is declared public: its texts, and some of its lines."""

    def __init__(self, setting: str, path: str) -> None:
        self.setting, self.path = setting, path
        self.texts: Counter[int] = Counter()
        sample = _LineSample()
        for record in read(path):
            self.texts[_text_hash(record)] += 1
            sample.add(record)
        self.lines = sample.lines()


class _Comparison:
    """A file that is declared public, and a protected corpus that goes by."""

    def __init__(self, file: _PublicFile, whose: str) -> None:
        self._file, self._whose = file, whose
        self._texts = _TextMatch(file.texts)
        self._found: set[int] = set()
        self._sample = _LineSample()

    def see(self, record: Record) -> None:
        self._texts.see(record)
        self._found.update(line for line in _lines(record) if line in self._file.lines)
        self._sample.add(record)

    def check(self) -> None:
        setting, whose = self._file.setting, self._whose
        for inside, outside in ((self._texts.inside(), self._texts.outside), self._lines_compared()):
            if inside.many or outside.many:
                found = f"{outside} of {whose} that occur in it"
                found = f"{inside} that also occur in {whose}" if inside.many else found
                raise ConfigError(f"a {setting} that is public", found, f"name a public file, or leave {setting} out")

    def _lines_compared(self) -> tuple[_Texts, _Texts]:
        some = self._sample.lines()
        here = {line for record in read(self._file.path) for line in _lines(record) if line in some} if some else set()
        return (
            _Texts(len(self._file.lines), len(self._found), MOST_LINES_SHARED, "lines"),
            _Texts(len(some), len(here), MOST_LINES_SHARED, "lines"),
        )


def _check_other_file(setting: str, file: str | None, whose: str, protected: str | None) -> None:
    if file and protected and os.path.exists(file) and os.path.exists(protected) and os.path.samefile(file, protected):
        raise ConfigError(f"a {setting} apart from {whose}", "the same file", f"name another file as {setting}")


def _text_hash(record: Record) -> int:
    """Odd for a text that is long enough to be known by itself."""
    alone = len(record.text) >= SHORTEST_COMPARED
    return hash(record.text if alone else (record.id, record.text)) << 1 | alone


def _lines(record: Record) -> Iterator[int]:
    lines = (line.strip() for line in record.text.splitlines())
    return (hash(line) for line in lines if len(line) >= SHORTEST_COMPARED)
