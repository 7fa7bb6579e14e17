"""The policy `spacy`: named entities as a spaCy pipeline finds them."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.errors import PolicyError
from tacit.policy.base import Policy
from tacit.policy.entities.folders import check_kinds, default_pipeline, find_pipeline, kinds_in_id
from tacit.policy.entities.reading import Reader, entities_of, load_tagger, needless_for_entities
from tacit.policy.kinds import NAMES, common_kind


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
        return f"spacy:{found.name}{kinds_in_id(self._chosen, found.kinds)}"

    def content(self) -> Any:  # noqa: ANN401
        without = sorted(needless_for_entities(self.pipeline))
        return {"spacy": find_pipeline(self.pipeline).content(), "without": without, "kinds": sorted(self._chosen)}

    def find(self, record: Record) -> tuple[Span, ...]:
        return of_kinds(_reader(self.pipeline).read(record.text), self._chosen)

    @property
    def _chosen(self) -> frozenset[str]:
        return frozenset(self.kinds or ())


def entities() -> Policy:
    """All entities of the default pipeline."""
    return SpacyEntities(default_pipeline())


def names() -> Policy:
    """Names of persons, places and organisations, as far as the default pipeline tells them apart."""
    pipeline = default_pipeline()
    return SpacyEntities(pipeline, tuple(kind for kind in NAMES if kind in find_pipeline(pipeline).kinds))


def of_kinds(found: tuple[Span, ...], kinds: frozenset[str]) -> tuple[Span, ...]:
    """The findings of the chosen kinds, with their kinds in the one vocabulary, without overlaps."""
    renamed = (Span(span.start, span.end, common_kind(span.kind)) for span in found)
    return resolve_overlaps(span for span in renamed if span.kind in kinds)


@cache
def _reader(pipeline: str) -> Reader:
    return Reader(load_tagger(pipeline, needless_for_entities(pipeline)), entities_of)
