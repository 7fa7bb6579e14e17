"""spaCy pipelines: where they are, what they can find, and texts of any length read with them one at a time.

One text at a time, because in a batch a text's numbers would depend on its neighbors': the sums of a matrix product
may round differently in a larger matrix, and a mask must be a function of its own record alone. With the small English
pipeline, batches of 64 took 1.1 (dialogs) to 1.4 times (sentences) less processor time for entities; leaving out the
components that nobody asks for is worth more, about 2.4 times.

G1 (pure). `Tagger.read` is a function of the text and of the pipeline's files.
G2 (flat). Memory does not grow with what was read.
G3 (covering). `pieces` covers the text: every character is in exactly one piece, none longer than asked for. A cut
   follows a line break, else a sentence, else white space; it is inside a word only where a word alone is too long.
G4 (tidy). `tidied` never adds a character, and removes only white space at the ends of a finding's lines, line
   breaks, and labels of a speaker's role.
"""

import configparser
import os
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tacit.common.files import digest
from tacit.common.libraries import require_library
from tacit.common.serialize import read_json
from tacit.data.records import Range, Span, common_kind, sentences
from tacit.errors import PolicyError

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

DEFAULT_PIPELINE = "en_core_web_sm"
PIPELINE_VARIABLE = "TACIT_SPACY"
BALANCED = 0.3
"""The threshold of CRT's policy pi (Zhao et al. 2022, appendix A.4)."""

_WEB = ("en", "zh")  # whose pipelines spaCy calls core_web, not core_news
_LANGUAGE = re.compile("[a-z]{2,3}")
_FIND_ENTITIES = ("ner", "entity_ruler", "span_ruler", "beam_ner")


@dataclass(frozen=True)
class Pipeline:
    """A spaCy pipeline on disk: the folder with its `config.cfg`, its name, its version and its components."""

    folder: Path
    name: str
    version: str
    components: tuple[str, ...]
    labels: frozenset[str]
    language: str

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of entities it can find, in the one vocabulary."""
        return frozenset(common_kind(label) for label in self.labels)

    def content(self) -> dict[str, str]:
        """What decides what it finds: its name, its version and a digest of its files, and spaCy's version."""
        return {
            "pipeline": self.name,
            "version": self.version,
            "files": digest_of(self.folder),
            "spacy": version("spacy"),
        }


def default_pipeline() -> str:
    """The pipeline that `entities`, `names` and `grammar` use: `TACIT_SPACY`, else the one that is installed.

    Of several installed ones it is spaCy's small English pipeline; without that one nothing is guessed.
    """
    if chosen := os.environ.get(PIPELINE_VARIABLE):
        return chosen
    installed = sorted({model.name for model in entry_points(group="spacy_models")})
    if len(installed) > 1 and DEFAULT_PIPELINE not in installed:
        raise PolicyError(
            expected=f"one spaCy pipeline, or {DEFAULT_PIPELINE} among several",
            found=", ".join(installed),
            way_out=f"set {PIPELINE_VARIABLE} to the name of one of them",
        )
    return installed[0] if len(installed) == 1 else DEFAULT_PIPELINE


def pipeline_of_language(language: str) -> str:
    """The pipeline for `language` (such as es), installed or named by `TACIT_SPACY`; of several, spaCy's small one."""
    installed = {model.name for model in entry_points(group="spacy_models")}
    chosen = {name for name in (os.environ.get(PIPELINE_VARIABLE),) if name}
    found = sorted(name for name in installed | chosen if find_pipeline(name).language == language)
    small = f"{language}_core_{'web' if language in _WEB else 'news'}_sm"
    if len(found) == 1 or small in found:
        return small if small in found else found[0]
    if found:
        raise PolicyError(
            expected=f"one spaCy pipeline for {language!r}, or {small} among several",
            found=", ".join(found),
            way_out="name one of them as `pipeline`, without `language`",
        )
    raise PolicyError(
        expected=f"an installed spaCy pipeline for the language {language!r}",
        found=f"none; installed: {', '.join(sorted(installed)) or 'no pipeline'}",
        way_out=f"python -m spacy download {small if _LANGUAGE.fullmatch(language) else DEFAULT_PIPELINE}, or name a "
        "pipeline's folder as `pipeline`",
    )


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
        language=str(described.get("lang", "")),
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


digest_of = cache(digest)  # of a folder, taken once per process


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


_ROLES = (
    "sys|system|usr|user|customer|client|caller|agent|assistant|bot|chatbot|ai|human|operator|representative|rep|"
    "support|advisor|adviser|speaker|interviewer|interviewee|moderator|host|guest|patient|doctor|nurse|student|"
    "teacher|tutor|buyer|seller|q|a"
)

_LABEL = re.compile(
    rf"^[ \t]{{0,4}}[\[<(*]{{0,2}}(?:{_ROLES})(?:[ _]?\d{{1,3}})?[\])>*]{{0,2}}[ ]?[:\t]", re.IGNORECASE | re.MULTILINE
)

_LINE = re.compile(r"[^\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE_BEFORE_END = re.compile(r"\s\S*\Z")


def readable(text: str) -> str:
    """The text with a `?` for each half of a broken pair of surrogates, which no tagger reads; offsets stay true."""
    return text if text.isascii() else _SURROGATE.sub("?", text)


def pieces(text: str, longest: int) -> Iterator[Range]:
    """`text` in pieces of at most `longest` characters."""
    start = 0
    while len(text) - start > longest:
        end = start + _cut(text[start : start + longest])
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


def _cut(window: str) -> int:
    """Where a window that is full is best cut."""
    space = _SPACE_BEFORE_END.search(window)
    in_sentence = space.start() + 1 if space else len(window)
    return window.rfind("\n") + 1 or sentences(window)[-1][0] or in_sentence


def tidied(text: str, spans: Iterable[Span]) -> list[Span]:
    """Each finding line by line, without white space at the ends and without labels of roles, such as `USR:`.

    A turn's label is structure, not speech. Only role words count as labels: a name before a colon stays found.
    """
    found = list(spans)
    if not found:
        return []
    labels = [(0, 0), *(match.span() for match in _LABEL.finditer(text))]
    tidy = []
    for span in found:
        for line in _LINE.finditer(text, span.start, span.end):
            start = max(line.start(), labels[bisect_left(labels, (line.end(), 0)) - 1][1])
            inside = text[start : line.end()]
            begin, end = start + len(inside) - len(inside.lstrip()), start + len(inside.rstrip())
            if begin < end:
                tidy.append(Span(begin, end, span.kind))
    return tidy


LONGEST = 20_000
"""Characters read at once: spaCy's memory grows with the text, and it refuses a million."""

_TOO_LONG = re.compile(r"\S{128}(?=\S)")

_NEEDLESS = frozenset(
    {
        *("tagger", "parser", "senter", "sentencizer", "morphologizer", "attribute_ruler", "lemmatizer"),
        *("trainable_lemmatizer", "textcat", "textcat_multilabel"),
    }
)

_OF_SPACY = _NEEDLESS | {"tok2vec", *_FIND_ENTITIES}
_COMPONENT = re.compile(r"components\.[^.]+")
_WINDOWS = ('"spacy.MaxoutWindowEncoder', '"spacy.MishWindowEncoder')
_SHARED = frozenset({"tok2vec", "transformer", "curated_transformer"})


class Tagger:
    """A loaded pipeline that reads any text of at most `LONGEST` characters."""

    def __init__(self, pipeline: "Language") -> None:
        self._pipeline = pipeline
        self._lock = threading.Lock()

    @property
    def vocab(self) -> "Vocab":
        return self._pipeline.vocab

    def __call__(self, text: str) -> "Doc":
        """The text as the pipeline sees it."""
        return self._pipeline(self._in_tokens(text) if _TOO_LONG.search(text) else text)

    def read(self, text: str, extract: "Callable[[Doc], Iterable[Span]]") -> tuple[Span, ...]:
        """What `extract` takes from each piece of `text`, tidied, with the tagger's own labels; it may overlap.

        What spaCy keeps for a piece is freed after it.
        """
        found = []
        whole = readable(text)
        for start, end in pieces(whole, LONGEST):
            with self._lock, self._pipeline.memory_zone():
                spans = list(extract(self(whole[start:end])))
            found += [Span(start + span.start, start + span.end, span.kind) for span in spans]
        return tuple(tidied(text, found))

    def _in_tokens(self, text: str) -> "Doc":
        """The text in tokens, where a run without white space is too long: spaCy's time grows with its square."""
        from spacy.tokens import Doc

        cuts = [0, *(match.end() for match in _TOO_LONG.finditer(text)), len(text)]
        parts = [self._pipeline.tokenizer(text[start:end]) for start, end in pairwise(cuts)]
        words = [token.text for part in parts for token in part]
        spaces = [bool(token.whitespace_) for part in parts for token in part]
        return Doc(self._pipeline.vocab, words=words, spaces=spaces)


@cache
def load_tagger(name: str, without: frozenset[str]) -> Tagger:
    """The pipeline `name` without the components `without`, loaded once per process."""
    import spacy

    pipeline = find_pipeline(name)
    with _plugins_left_out(pipeline.folder):
        return Tagger(spacy.load(pipeline.folder, exclude=sorted(without & set(pipeline.components))))


@contextmanager
def _plugins_left_out(folder: Path) -> Iterator[None]:
    """Inside, spaCy does not import components of other packages that the pipeline does not use.

    It would import all that are installed, and Presidio's takes ten times as long as a small pipeline.
    """
    from spacy.util import registry

    plugins: Any = getattr(registry, "_entry_point_factories", SimpleNamespace(entry_points=True))
    config = _read_config(folder)
    used = [config[name].get("factory", "").strip('"') for name in config.sections() if _COMPONENT.fullmatch(name)]
    before = plugins.entry_points
    plugins.entry_points = before and not _OF_SPACY.issuperset(used)
    try:
        yield
    finally:
        plugins.entry_points = before


@cache
def needless_for_entities(name: str) -> frozenset[str]:
    """The components that entities do not depend on; none when a component nobody knows here takes part."""
    pipeline = find_pipeline(name)
    components = frozenset(pipeline.components)
    if not components <= _NEEDLESS | _SHARED | {"ner"}:
        return frozenset()
    config = _read_config(pipeline.folder)
    sections = [section for section in config.sections() if section.startswith("components.ner")]
    listens = any("Listener" in value for section in sections for value in config[section].values())
    return components & (_NEEDLESS if listens else _NEEDLESS | _SHARED)  # it reads what an earlier one computed


@cache
def reach_of_entities(name: str) -> int | None:
    """How many tokens before and after a token decide about it beside its entity; None where it may be all of them."""
    pipeline = find_pipeline(name)
    config = _read_config(pipeline.folder)
    encoder = "components.ner.model.tok2vec.encode"
    if set(pipeline.components) - needless_for_entities(name) != {"ner"} or encoder not in config:
        return None
    layer = config[encoder]
    if not layer.get("@architectures", "").startswith(_WINDOWS):
        return None
    return int(layer.get("depth", "0")) * int(layer.get("window_size", "0")) or None


def _read_config(folder: Path) -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None, strict=False)
    config.read(folder / "config.cfg", encoding="utf-8")
    return config


def entities_of(doc: "Doc") -> Iterable[Span]:
    """The named entities of a text, with the pipeline's own labels."""
    return (Span(entity.start_char, entity.end_char, entity.label_) for entity in doc.ents)
