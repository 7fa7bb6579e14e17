"""The policy `presidio`: personal data as Microsoft's Presidio finds it, with a spaCy pipeline of one's choice."""

import logging
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.errors import PolicyError
from tacit.policy.base import Policy
from tacit.policy.entities.folders import check_kinds, find_pipeline, kinds_in_id
from tacit.policy.entities.memory import Memory
from tacit.policy.entities.pieces import tidied
from tacit.policy.entities.reading import Tagger, load_tagger
from tacit.policy.kinds import common_kind
from tacit.silence import require_library

if TYPE_CHECKING:
    from presidio_analyzer import AnalyzerEngine
    from spacy.tokens import Doc

_FROM_PIPELINE = ("DATE", "FAC", "GPE", "LOC", "NORP", "ORG", "PERSON", "TIME")
"""The pipeline's kinds that Presidio makes use of; it ignores amounts, works of art and the like."""

KINDS = frozenset({*_FROM_PIPELINE, "CARD", "EMAIL", "IBAN", "ID", "IP", "PHONE", "SSN", "URL"})
"""What Presidio finds in English text, in the one vocabulary."""

BALANCED = 0.3
"""The threshold of CRT's policy pi (Zhao et al. 2022, appendix A.4)."""

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
        for start, end, label in _reader(self.pipeline).read(record.text):
            kind, _, score = label.rpartition(" ")
            if int(score) >= least and kind in (self.kinds or ()):
                found.append(Span(start, end, kind))
        return resolve_overlaps(found)


def _known(pipeline: str) -> frozenset[str]:
    """The kinds that Presidio can find with a pipeline."""
    return (KINDS - set(_FROM_PIPELINE)) | (find_pipeline(pipeline).kinds & set(_FROM_PIPELINE))


class _Reader:
    """Presidio's analyser over a pipeline; what it finds carries its kind and its score in thousandths."""

    def __init__(self, tagger: Tagger) -> None:
        self._tagger = tagger
        self._analyzer = _analyzer(tagger)
        self._memory = Memory()

    def read(self, text: str) -> tuple[Span, ...]:
        """All findings, whatever their score; they may overlap."""
        found = self._memory.recall(text)
        if found is None:
            found = tuple(tidied(text, self._tagger.each(text, self._analyzed)))
            self._memory.remember(text, found)
        return found

    def _analyzed(self, doc: "Doc") -> list[Span]:
        engine: Any = self._analyzer.nlp_engine
        artifacts = engine._doc_to_nlp_artifact(doc, "en")
        results = self._analyzer.analyze(doc.text, "en", score_threshold=0.0, nlp_artifacts=artifacts)
        return [
            Span(result.start, result.end, f"{common_kind(result.entity_type)} {round(result.score * _STEPS)}")
            for result in results
        ]


@cache
def _reader(pipeline: str) -> _Reader:
    return _Reader(load_tagger(pipeline, _NEEDLESS))


def _analyzer(tagger: Tagger) -> "AnalyzerEngine":
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import EmailRecognizer
    from tldextract import TLDExtract

    extract = TLDExtract(cache_dir=None, suffix_list_urls=())

    class OfflineEmails(EmailRecognizer):
        """Presidio's own would fetch the list of top-level domains, and find what the list of the day says."""

        def validate_result(self, pattern_text: str) -> bool:
            return bool(extract(pattern_text).fqdn)

    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    mapping = {label: common_kind(label) for label in (*_FROM_PIPELINE, "PER")}
    engine: Any = SpacyNlpEngine(
        models=[{"lang_code": "en", "model_name": "given"}],
        ner_model_configuration=NerModelConfiguration(model_to_presidio_entity_mapping=mapping),
    )
    engine.nlp = {"en": tagger}
    analyzer = AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
    analyzer.registry.remove_recognizer("EmailRecognizer")
    analyzer.registry.add_recognizer(OfflineEmails())
    return analyzer
