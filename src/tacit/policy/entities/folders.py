"""Where a tagger's files are, what they say of themselves, and the digest that stands for all of them."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tacit.digests import digest
from tacit.documents import read_json
from tacit.errors import PolicyError
from tacit.policy.kinds import common_kind
from tacit.silence import require_library

DEFAULT_PIPELINE = "en_core_web_sm"
PIPELINE_VARIABLE = "TACIT_SPACY"
_FIND_ENTITIES = ("ner", "entity_ruler", "span_ruler", "beam_ner")


@dataclass(frozen=True)
class Pipeline:
    """A spaCy pipeline on disk: the folder that holds `config.cfg`, its name, its version and its components."""

    folder: Path
    name: str
    version: str
    components: tuple[str, ...]
    labels: frozenset[str]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of entities it can find, in the one vocabulary."""
        return frozenset(common_kind(label) for label in self.labels)

    def content(self) -> dict[str, str]:
        """What decides what it finds: its name, its version and a digest of its files, and spaCy's version."""
        return {
            "pipeline": self.name,
            "version": self.version,
            "files": digest_of(str(self.folder)),
            "spacy": version("spacy"),
        }


def default_pipeline() -> str:
    """The pipeline that `entities`, `names` and `grammar` use: `TACIT_SPACY`, or spaCy's small English one."""
    return os.environ.get(PIPELINE_VARIABLE) or DEFAULT_PIPELINE


@cache
def find_pipeline(name: str) -> Pipeline:
    """The pipeline called `name`: an installed package, or a folder. Nothing of spaCy is loaded for it."""
    require_library("spacy", PolicyError)
    folder = _package_folder(name) or Path(name)
    described = _described(folder / "meta.json")
    if described is None or not (folder / "config.cfg").is_file():
        raise PolicyError(
            expected=f"a spaCy pipeline called {name!r}: an installed one, or a folder with meta.json and config.cfg",
            found="neither",
            way_out=f"python -m spacy download {name if name.isidentifier() else DEFAULT_PIPELINE}, or set "
            f"{PIPELINE_VARIABLE} to the name or folder of another pipeline",
        )
    labels = described.get("labels", {})
    return Pipeline(
        folder=folder,
        name=f"{described.get('lang', '')}_{described.get('name', '')}",
        version=str(described.get("version", "")),
        components=tuple(described.get("pipeline", [])),
        labels=frozenset(label for part in _FIND_ENTITIES for label in labels.get(part, [])),
    )


def _package_folder(name: str) -> Path | None:
    """Where the package `name` keeps its pipeline; None when there is no such package."""
    spec = find_spec(name) if name.isidentifier() else None
    for place in (spec.submodule_search_locations or []) if spec else []:
        described = _described(Path(place) / "meta.json")
        if described:
            return Path(place) / "{lang}_{name}-{version}".format_map(described)
    return None


def _described(path: Path) -> dict[str, Any] | None:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"lang", "name", "version"} <= found.keys() else None


@cache
def digest_of(folder: str) -> str:
    """The digest of a folder, taken once in a process."""
    return digest(Path(folder))


def check_kinds(wanted: tuple[str, ...] | None, known: frozenset[str], whose: str) -> tuple[str, ...]:
    """`wanted` in the one vocabulary and in order, or all that are known; an error for one that is not."""
    if wanted is None:
        return tuple(sorted(known))
    kinds = tuple(sorted({common_kind(kind) for kind in wanted}))
    unknown = [kind for kind in kinds if kind not in known]
    if unknown or not kinds:
        raise PolicyError(
            expected=f"kinds that {whose} can find: {', '.join(sorted(known)) or 'it finds none'}",
            found=", ".join(unknown) or "none",
            way_out="choose among these, or name another tagger",
        )
    return kinds


def kinds_in_id(chosen: Collection[str], known: Collection[str]) -> str:
    """How an id ends that is about some kinds only."""
    return "" if set(chosen) == set(known) else f":{'+'.join(sorted(chosen))}"
