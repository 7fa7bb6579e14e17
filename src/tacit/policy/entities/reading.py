"""spaCy's part of reading: pipelines loaded once a process, texts of any length, one text at a time.

One text at a time, because a batch would make a text's numbers depend on its neighbours': the sums of a matrix product
may round differently in a larger matrix, and a mask must be a function of its own record alone. With the small English
pipeline, batches of 64 took 1.1 (dialogs) to 1.4 times (sentences) less processor time for entities; leaving out the
components that nobody asks for is worth more, about 2.4 times.

G1 (pure). `Reader.read` is a function of the text and of the pipeline's files.
G2 (flat). Memory does not grow with what was read, but for a bounded `Memory`.
"""

import configparser
import re
import threading
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.corpus.record import Span
from tacit.policy.entities.folders import find_pipeline
from tacit.policy.entities.memory import Memory
from tacit.policy.entities.pieces import pieces, readable, tidied

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

LONGEST = 20_000
"""Characters read at once: spaCy's memory grows with the text, and it refuses a million."""

_TOO_LONG = re.compile(r"\S{128}(?=\S)")
_NEEDLESS = frozenset(
    {
        *("tagger", "parser", "senter", "sentencizer", "morphologizer", "attribute_ruler", "lemmatizer"),
        *("trainable_lemmatizer", "textcat", "textcat_multilabel"),
    }
)
_SHARED = frozenset({"tok2vec", "transformer", "curated_transformer"})


class Tagger:
    """A loaded pipeline that reads any text of at most `LONGEST` characters."""

    def __init__(self, pipeline: "Language") -> None:
        self._pipeline = pipeline
        self._lock = threading.Lock()

    @property
    def vocab(self) -> "Vocab":
        """The words it knows."""
        return self._pipeline.vocab

    def __call__(self, text: str) -> "Doc":
        """The text as the pipeline sees it."""
        return self._pipeline(self._in_tokens(text) if _TOO_LONG.search(text) else text)

    def each(self, text: str, extract: "Callable[[Doc], Iterable[Span]]") -> list[Span]:
        """What `extract` takes from each piece of `text`; what spaCy keeps for a piece is freed after it."""
        found = []
        text = readable(text)
        for start, end in pieces(text, LONGEST):
            with self._lock, self._pipeline.memory_zone():
                spans = list(extract(self(text[start:end])))
            found += [Span(start + span.start, start + span.end, span.kind) for span in spans]
        return found

    def _in_tokens(self, text: str) -> "Doc":
        """The text in tokens, where a run without white space is too long: spaCy's time grows with its square."""
        from spacy.tokens import Doc

        cuts = [0, *(match.end() for match in _TOO_LONG.finditer(text)), len(text)]
        parts = [self._pipeline.tokenizer(text[start:end]) for start, end in pairwise(cuts)]
        words = [token.text for part in parts for token in part]
        spaces = [bool(token.whitespace_) for part in parts for token in part]
        return Doc(self._pipeline.vocab, words=words, spaces=spaces)


class Reader:
    """A tagger, what is taken from its texts, and a memory of the last ones."""

    def __init__(self, tagger: Tagger, extract: "Callable[[Doc], Iterable[Span]]") -> None:
        self._tagger = tagger
        self._extract = extract
        self._memory = Memory()

    def read(self, text: str) -> tuple[Span, ...]:
        """What was taken from `text`, tidied, with the tagger's own labels; findings may overlap."""
        found = self._memory.recall(text)
        if found is None:
            found = tuple(tidied(text, self._tagger.each(text, self._extract)))
            self._memory.remember(text, found)
        return found


@cache
def load_tagger(name: str, without: frozenset[str]) -> Tagger:
    """The pipeline `name` without the components `without`, loaded once a process."""
    import spacy

    pipeline = find_pipeline(name)
    return Tagger(spacy.load(pipeline.folder, exclude=sorted(without & set(pipeline.components))))


def needless_for_entities(name: str) -> frozenset[str]:
    """The components that entities do not depend on; none when a component nobody knows here takes part."""
    pipeline = find_pipeline(name)
    components = frozenset(pipeline.components)
    if not components <= _NEEDLESS | _SHARED | {"ner"}:
        return frozenset()
    return components & (_NEEDLESS if _listens(pipeline.folder) else _NEEDLESS | _SHARED)


def _listens(folder: Path) -> bool:
    """Whether the entity recogniser reads what a component before it computed for several."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
    config.read(folder / "config.cfg", encoding="utf-8")
    sections = [section for section in config.sections() if section.startswith("components.ner")]
    return any("Listener" in value for section in sections for value in config[section].values())


def entities_of(doc: "Doc") -> Iterable[Span]:
    """The named entities of a text, with the pipeline's own labels."""
    return (Span(entity.start_char, entity.end_char, entity.label_) for entity in doc.ents)
