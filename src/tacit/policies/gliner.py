"""The policy `gliner`: entities of any kind that a person names in words, by a GLiNER model in a folder.

A finding has a score; one of at least `threshold` is found. The package gliner reads as many words at once as its
model was made for and leaves out the rest, so longer texts are read in windows that overlap by a quarter. A finding
counts when one of its words has most context in the window in which it was found. gliner and torch are imported when
the first text is read.
"""

import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tacit.common.libraries import foreign, quietly, require_library
from tacit.common.serialize import read_json
from tacit.data.records import Range, Record, Span
from tacit.errors import PolicyError
from tacit.policies.label_kinds import kinds_of_labels
from tacit.policies.normalize import normalization_digest, normalize
from tacit.policies.policy import Policy
from tacit.policies.tagging import BALANCED, digest_of, readable, tidied

_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
_LONGEST_WINDOW = 512
_SHARED = 4
_NEEDED = ("gliner_config.json", "model.safetensors", "tokenizer.json")


@dataclass(frozen=True)
class Gliner(Policy):
    """Findings of the model in `folder` for `labels`, with a score of at least `threshold`.

    kinds: what some of the labels are called in marks, before what `kinds_of_labels` calls them.

    G1. At a lower threshold no character is lost.
    G2. One text at a time, on one thread, on the processor: the numbers depend on nothing but the text.
    """

    folder: str
    labels: tuple[str, ...]
    threshold: float = BALANCED
    kinds: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _check_installed()
        if not 0 <= self.threshold <= 1:
            raise PolicyError("a threshold between 0 and 1", repr(self.threshold), "give a score, such as 0.3")
        if not self.labels:
            raise PolicyError("labels for GLiNER to look for", "none", "name some, such as `labels: [person, address]`")
        _check_folder(Path(self.folder))
        kinds_of_labels(self.labels, self.kinds)

    @property
    def id(self) -> str:
        return f"gliner:{Path(self.folder).name}:{self.threshold:g}:{'+'.join(self.labels)}"

    def content(self) -> Any:  # noqa: ANN401
        return {
            "gliner": digest_of(Path(self.folder)),
            "libraries": {name: version(name) for name in ("gliner", "torch", "transformers", "tokenizers")},
            "labels": kinds_of_labels(self.labels, self.kinds),
            "order": list(self.labels),
            "threshold": self.threshold,
            "reading": normalization_digest(),
        }

    def find(self, record: Record) -> tuple[Span, ...]:
        kinds = kinds_of_labels(self.labels, self.kinds)
        reading = normalize(record.text)
        found = _reader(self.folder).read(readable(reading.text), self.labels, self.threshold)
        return reading.back(tidied(reading.text, (span._replace(kind=kinds[span.kind]) for span in found)))


class Reader:
    """A model of the package gliner, or one with the same interface, that reads texts of any length."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model
        self._tokenizer = model.data_processor.transformer_tokenizer
        self._lock = threading.Lock()

    def read(self, text: str, labels: tuple[str, ...], threshold: float) -> Iterator[Span]:
        """What the model finds, with its own labels; findings of two windows may overlap."""
        import torch

        words = [match.span() for match in _WORD.finditer(text)]
        if not words:
            return
        windows = self._windows([text[start:end] for start, end in words], labels)
        cuts = [0, *((later[0] + earlier[1]) // 2 for earlier, later in pairwise(windows)), len(words)]
        starts = [start for start, _ in words]
        for (first, last), (begin, end) in zip(windows, pairwise(cuts), strict=True):
            shift = words[first][0]
            with self._lock, torch.inference_mode():
                threads = torch.get_num_threads()
                torch.set_num_threads(1)
                try:
                    found = self._model.predict_entities(
                        text[shift : words[last - 1][1]], list(labels), threshold=threshold
                    )
                finally:
                    torch.set_num_threads(threads)
            for one in found:
                inside = bisect_right(starts, shift + one["start"]) - 1 < end
                if inside and bisect_left(starts, shift + one["end"]) > begin:
                    yield Span(shift + one["start"], shift + one["end"], one["label"])

    def _windows(self, words: list[str], labels: tuple[str, ...]) -> list[Range]:
        """Ranges of words that the model can read at once, beside the labels, which are part of what it reads."""
        longest = min(self._tokenizer.model_max_length, _LONGEST_WINDOW)
        room = longest - 2 - sum(1 + tokens for tokens in self._tokens(list(labels))) - 1
        if room < longest // 2:
            raise PolicyError(
                expected=f"labels that leave half of the {longest} tokens that the model reads at once to the text",
                found=f"{len(labels)} labels, which leave {room}",
                way_out="name fewer labels, and join policies with `any`",
            )
        ends = list(accumulate(self._tokens(words), initial=0))
        windows, first = list[Range](), 0
        while True:
            last = max(first + 1, bisect_right(ends, ends[first] + room) - 1)
            last = min(last, first + self._model.config.max_len)
            windows.append((first, last))
            if last == len(words):
                return windows
            first = max(first + 1, last - (last - first) // _SHARED)

    def _tokens(self, words: list[str]) -> list[int]:
        """How many tokens each of the words has."""
        with self._lock:
            encoded = self._tokenizer(words, is_split_into_words=True, add_special_tokens=False, verbose=False)
        counts = [0] * len(words)
        for word in encoded.word_ids(0):
            counts[word] += 1
        return counts


@cache
def _reader(folder: str) -> Reader:
    _check_folder(Path(folder))
    from gliner import GLiNER

    with foreign(lambda found: _unreadable(Path(folder), found)), quietly():
        return Reader(GLiNER.from_pretrained(folder, local_files_only=True, map_location="cpu").eval())


def _check_installed() -> None:
    """Refuse where gliner is not installed, or wants another transformers than the one that is."""
    require_library("transformers", PolicyError)
    from packaging.requirements import Requirement

    try:
        found = version("gliner")
    except PackageNotFoundError as missing:
        raise PolicyError(
            expected="the package gliner, which is needed here",
            found="a Python without it",
            way_out="pip install gliner, in an environment of its own if it wants another transformers than tacit",
        ) from missing
    for wanted in map(Requirement, requires("gliner") or ()):
        if wanted.name == "transformers" and not wanted.specifier.contains(version("transformers"), prereleases=True):
            raise PolicyError(
                expected=f"a transformers that gliner {found} can read with ({wanted.specifier})",
                found=f"transformers {version('transformers')}",
                way_out=f'pip install "transformers{wanted.specifier}", or train a token classifier: '
                "examples/train_tagger.py",
            )


def _check_folder(folder: Path) -> None:
    """No pickle is read, and what a folder lacks would be fetched from the network."""
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing:
        raise _unreadable(folder, f"no {' and no '.join(missing)}")
    try:
        described = read_json(folder / "gliner_config.json")
        whole = isinstance(described, dict) and isinstance(described.get("encoder_config"), dict)
    except (OSError, ValueError):
        whole = False
    if not whole:
        raise _unreadable(folder, "a gliner_config.json without `encoder_config`")


def _unreadable(folder: Path, found: str) -> PolicyError:
    return PolicyError(
        expected=f"a whole GLiNER model in {folder.name!r}: {', '.join(_NEEDED)}",
        found=found,
        way_out="save it there with gliner's `save_pretrained(folder, safe_serialization=True)`",
    )
