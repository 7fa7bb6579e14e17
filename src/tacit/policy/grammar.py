"""The policy `grammar`: who does what to whom, by a dependency parse, after Selective DP's contextual policy.

Selective DP (Shi et al. 2022, section 6) protects all named entities and besides every subject, object, proper noun and
pronoun. Each is a level that can be chosen by itself. Subjects and objects are single words, the heads of their
phrases: the paper does not say, and the authors' script looks at each word's own label.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.errors import ConfigError, PolicyError
from tacit.policy.base import Policy
from tacit.policy.entities.folders import default_pipeline, find_pipeline
from tacit.policy.entities.reading import Reader, entities_of, load_tagger
from tacit.policy.kinds import common_kind

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

_LEVELS: "dict[str, tuple[str, Callable[[Token], bool]]]" = {
    "subjects": ("SUBJECT", lambda token: "subj" in token.dep_),
    "objects": ("OBJECT", lambda token: "obj" in token.dep_),
    "proper-nouns": ("PROPER_NOUN", lambda token: token.pos_ == "PROPN"),
    "pronouns": ("PRONOUN", lambda token: token.pos_ == "PRON"),
}
"""By level: the kind of its words, and which words those are (labels of English and of universal dependencies)."""

LEVELS = ("entities", *_LEVELS)
"""What can be protected, each by itself."""

_NEEDLESS = frozenset({"lemmatizer", "trainable_lemmatizer", "textcat", "textcat_multilabel"})


@dataclass(frozen=True)
class Grammar(Policy):
    """Words of the chosen levels. An entity keeps its kind, and so does a word of two levels by the first of them.

    G1. The characters found are the union of what the levels find one by one.
    """

    pipeline: str
    levels: tuple[str, ...] = LEVELS

    def __post_init__(self) -> None:
        for level in self.levels:
            if level not in LEVELS:
                raise ConfigError.unknown_name("level of grammar", level, LEVELS)
        if not self.levels:
            raise PolicyError("at least one level of grammar", "none", f"choose among {', '.join(LEVELS)}")
        object.__setattr__(self, "levels", tuple(level for level in LEVELS if level in self.levels))
        found = find_pipeline(self.pipeline)
        missing = [part for part in _needed(self.levels) if part not in found.components]
        if missing:
            raise PolicyError(
                expected=f"a pipeline with {', '.join(_needed(self.levels))}",
                found=f"{found.name}, which has no {' and no '.join(missing)}",
                way_out="name another pipeline, such as en_core_web_sm, or leave out the level that needs it",
            )

    @property
    def id(self) -> str:
        some = "" if self.levels == LEVELS else f":{'+'.join(self.levels)}"
        return f"grammar:{find_pipeline(self.pipeline).name}{some}"

    def content(self) -> Any:  # noqa: ANN401
        without = sorted(_NEEDLESS & set(find_pipeline(self.pipeline).components))
        return {"grammar": find_pipeline(self.pipeline).content(), "without": without, "levels": list(self.levels)}

    def find(self, record: Record) -> tuple[Span, ...]:
        chosen: list[Span] = []
        taken: set[tuple[int, int]] = set()
        for start, end, label in _reader(self.pipeline).read(record.text):
            level, _, kind = label.partition(" ")
            if level in self.levels and (start, end) not in taken:
                taken.add((start, end))
                chosen.append(Span(start, end, kind))
        return resolve_overlaps(chosen)


def grammar() -> Policy:
    """All levels, by the default pipeline."""
    return Grammar(default_pipeline())


def _needed(levels: tuple[str, ...]) -> tuple[str, ...]:
    """The components that some of the levels rest on. Word classes come from several, so they are not asked for."""
    needs = {"entities": "ner", "subjects": "parser", "objects": "parser"}
    return tuple(sorted({needs[level] for level in levels if level in needs}))


def _words_of(doc: "Doc") -> Iterator[Span]:
    """Each finding with its level and its kind, entities first and levels in their order."""
    for entity in entities_of(doc):
        yield Span(entity.start, entity.end, f"entities {common_kind(entity.kind)}")
    for level, (kind, belongs) in _LEVELS.items():
        for token in doc:
            if belongs(token) and not token.is_space:
                yield Span(token.idx, token.idx + len(token), f"{level} {kind}")


@cache
def _reader(pipeline: str) -> Reader:
    return Reader(load_tagger(pipeline, _NEEDLESS), _words_of)
