"""Policies that read with a spaCy pipeline of one's choice.

`spacy`: named entities. `presidio`: personal data as Microsoft's Presidio finds it. `grammar`: who does what to whom,
by a dependency parse, after Selective DP's contextual policy (Shi et al. 2022, section 6), which protects all named
entities and besides every subject, object, proper noun and pronoun. Each is a level that can be chosen by itself.
Subjects and objects are single words, the heads of their phrases: the paper does not define them, and the authors'
script looks at each word's own label.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tacit.common.libraries import require_library
from tacit.data.records import NAMES, Record, Span, common_kind, resolve_overlaps
from tacit.errors import ConfigError, PolicyError
from tacit.policies.naming import back_from, excerpts, named_parts, naming_digest, shown, whole_names
from tacit.policies.normalize import normalization_digest, normalize
from tacit.policies.policy import Policy
from tacit.policies.tagging import (
    BALANCED,
    check_kinds,
    default_pipeline,
    entities_of,
    find_pipeline,
    kinds_in_id,
    load_tagger,
    needless_for_entities,
    reach_of_entities,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


@dataclass(frozen=True)
class SpacyEntities(Policy):
    """Entities of the chosen kinds that the spaCy pipeline `pipeline` finds; by default all its kinds.

    The pipeline is a name or a folder, loaded by each process when it first reads. Only the components that entities
    depend on are run.

    G1. `SpacyEntities(p, kinds)` finds exactly the spans of `SpacyEntities(p)` whose kind is among `kinds`.
    """

    pipeline: str
    kinds: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        found = find_pipeline(self.pipeline)
        if not found.labels:
            raise PolicyError(
                expected="a pipeline that finds named entities",
                found=f"{found.name}, which has no component for them",
                way_out="name a pipeline with `ner`, such as en_core_web_sm",
            )
        object.__setattr__(self, "kinds", check_kinds(self.kinds, found.kinds, found.name))

    @property
    def id(self) -> str:
        found = find_pipeline(self.pipeline)
        return f"spacy:{found.name}{kinds_in_id(self.kinds or (), found.kinds)}"

    def content(self) -> Any:  # noqa: ANN401
        without = sorted(needless_for_entities(self.pipeline))
        return {
            "spacy": find_pipeline(self.pipeline).content(),
            "without": without,
            "kinds": sorted(self.kinds or ()),
            "reading": normalization_digest(),
        }

    def find(self, record: Record) -> tuple[Span, ...]:
        reading = normalize(record.text)
        return reading.back(self._entities(reading.text))

    def _entities(self, text: str) -> Iterator[Span]:
        tagger = load_tagger(self.pipeline, needless_for_entities(self.pipeline))
        renamed = (span._replace(kind=common_kind(span.kind)) for span in tagger.read(text, entities_of))
        return (span for span in renamed if span.kind in (self.kinds or ()))


@dataclass(frozen=True)
class Names(SpacyEntities):
    """The names among the entities, read so that what is found in one place depends little on what another place says.

    The pipeline reads every figure as 0, and addresses of mail and the web as x. An entity is divided at punctuation;
    of each part, words that are no name are left out at its ends (see `naming`). Where a pipeline sees only so many
    words around each, it reads those around words that can be names, which is quicker.

    G1. Every character that is found is one of an entity that the pipeline finds in the text it reads.
    """

    def content(self) -> Any:  # noqa: ANN401
        return {**super().content(), "naming": naming_digest()}

    def find(self, record: Record) -> tuple[Span, ...]:
        reading = normalize(record.text)
        text = reading.text
        parts = (part for span in self._candidates(text) for part in named_parts(text, span))
        return reading.back(whole_names(text, parts))

    def _candidates(self, text: str) -> Iterator[Span]:
        reach = reach_of_entities(self.pipeline)
        if reach is None:
            return self._entities(shown(text))
        places = excerpts(text, reach + 1)
        read = shown(text)
        return back_from(places, self._entities("\n".join(read[start:end] for start, end in places)))


def names(pipeline: str | None = None) -> Policy:
    """Names of persons, places and organizations, as far as the pipeline (the default one) tells them apart."""
    pipeline = pipeline or default_pipeline()
    return Names(pipeline, tuple(kind for kind in NAMES if kind in find_pipeline(pipeline).kinds))


_FROM_PIPELINE = ("DATE", "FAC", "GPE", "LOC", "NORP", "ORG", "PERSON", "TIME")
"""The pipeline's kinds that Presidio makes use of; it ignores amounts, works of art and the like."""

KINDS = frozenset({*_FROM_PIPELINE, "CARD", "EMAIL", "IBAN", "ID", "IP", "PHONE", "SSN", "URL"})
"""What Presidio finds in English text, in the one vocabulary."""

_STEPS = 1_000  # scores are compared in thousandths
_NEEDLESS = frozenset({"parser", "senter", "textcat"})  # Presidio asks for lemmas and entities


@dataclass(frozen=True)
class Presidio(Policy):
    """Findings of Presidio with a score of at least `threshold`; 0 takes every one, for a conservative policy.

    G1. At a lower threshold no character is lost.
    G2. Nothing is asked of the network: the list of top-level domains is the one that came with the package.
    """

    pipeline: str
    kinds: tuple[str, ...] | None = None
    threshold: float = BALANCED

    def __post_init__(self) -> None:
        require_library("presidio-analyzer", PolicyError)
        found = find_pipeline(self.pipeline)
        if not 0 <= self.threshold <= 1:
            raise PolicyError("a threshold between 0 and 1", repr(self.threshold), "give a score, such as 0.3")
        kinds = check_kinds(self.kinds, _known(self.pipeline), f"Presidio with {found.name}")
        object.__setattr__(self, "kinds", kinds)

    @property
    def id(self) -> str:
        kinds = kinds_in_id(self.kinds or (), _known(self.pipeline))
        return f"presidio:{find_pipeline(self.pipeline).name}:{self.threshold:g}{kinds}"

    def content(self) -> Any:  # noqa: ANN401
        return {
            "presidio": version("presidio-analyzer"),
            "libraries": {name: version(name) for name in ("phonenumbers", "tldextract")},
            "spacy": find_pipeline(self.pipeline).content(),
            "kinds": sorted(self.kinds or ()),
            "threshold": self.threshold,
        }

    def find(self, record: Record) -> tuple[Span, ...]:
        least = round(self.threshold * _STEPS)
        found = []
        for start, end, label in load_tagger(self.pipeline, _NEEDLESS).read(record.text, _analysis(self.pipeline)):
            kind, _, score = label.rpartition(" ")
            if int(score) >= least and kind in (self.kinds or ()):
                found.append(Span(start, end, kind))
        return resolve_overlaps(found)


def _known(pipeline: str) -> frozenset[str]:
    """The kinds that Presidio can find with a pipeline."""
    return (KINDS - set(_FROM_PIPELINE)) | (find_pipeline(pipeline).kinds & set(_FROM_PIPELINE))


@cache
def _analysis(pipeline: str) -> "Callable[[Doc], list[Span]]":
    """What Presidio finds in a text, whatever its score; labels are a kind and a score in thousandths."""
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import EmailRecognizer
    from tldextract import TLDExtract

    extract = TLDExtract(cache_dir=None, suffix_list_urls=())

    class OfflineEmails(EmailRecognizer):
        """Presidio's own would fetch the list of top-level domains, and depend on the list of the day."""

        def validate_result(self, pattern_text: str) -> bool:
            return bool(extract(pattern_text).fqdn)

    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    mapping = {label: common_kind(label) for label in (*_FROM_PIPELINE, "PER")}
    engine: Any = SpacyNlpEngine(
        models=[{"lang_code": "en", "model_name": "given"}],
        ner_model_configuration=NerModelConfiguration(model_to_presidio_entity_mapping=mapping),
    )
    engine.nlp = {"en": load_tagger(pipeline, _NEEDLESS)}
    analyzer = AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
    analyzer.registry.remove_recognizer("EmailRecognizer")
    analyzer.registry.add_recognizer(OfflineEmails())

    def analyzed(doc: "Doc") -> list[Span]:
        artifacts = engine._doc_to_nlp_artifact(doc, "en")
        results = analyzer.analyze(doc.text, "en", score_threshold=0.0, nlp_artifacts=artifacts)
        return [
            Span(result.start, result.end, f"{common_kind(result.entity_type)} {round(result.score * _STEPS)}")
            for result in results
        ]

    return analyzed


_LEVELS: "dict[str, tuple[str, Callable[[Token], bool]]]" = {
    "subjects": ("SUBJECT", lambda token: "subj" in token.dep_),
    "objects": ("OBJECT", lambda token: "obj" in token.dep_),
    "proper-nouns": ("PROPER_NOUN", lambda token: token.pos_ == "PROPN"),
    "pronouns": ("PRONOUN", lambda token: token.pos_ == "PRON"),
}
"""By level: the kind of its words, and which words those are (labels of English and of universal dependencies)."""

LEVELS = ("entities", *_LEVELS)
"""What can be protected, each by itself."""

_NEEDLESS_FOR_GRAMMAR = frozenset({"lemmatizer", "trainable_lemmatizer", "textcat", "textcat_multilabel"})


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
        without = sorted(_NEEDLESS_FOR_GRAMMAR & set(find_pipeline(self.pipeline).components))
        return {"grammar": find_pipeline(self.pipeline).content(), "without": without, "levels": list(self.levels)}

    def find(self, record: Record) -> tuple[Span, ...]:
        chosen: list[Span] = []
        taken: set[tuple[int, int]] = set()
        for start, end, label in load_tagger(self.pipeline, _NEEDLESS_FOR_GRAMMAR).read(record.text, _words_of):
            level, _, kind = label.partition(" ")
            if level in self.levels and (start, end) not in taken:
                taken.add((start, end))
                chosen.append(Span(start, end, kind))
        return resolve_overlaps(chosen)


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
