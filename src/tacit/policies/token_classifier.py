"""The policy `token-classifier`: entities by a Hugging Face token-classification model in a folder, with scores.

A kind's probability for a token is the sum over its labels (B-, I- and so on); what remains, the label O and the kinds
that were not chosen, is the probability of plain text. A token has the most probable of the chosen kinds and plain.

| policy | threshold | plain_below | a token is found when |
|---|---|---|---|
| balanced (CRT's pi) | .3 | 0 | a kind is the most probable, with at least .3 |
| conservative (CRT's pi_c) | 0 | .9 | a kind is the most probable, or plain text has less than .9 |

(Zhao et al. 2022, appendix A.4; there the probability of a single label is compared, not that of a kind.) A word is
found whole when one of its tokens is. torch and transformers are imported when the first text is read.

A text that the model cannot read at once is read in windows that overlap by a quarter. Where two overlap, they are cut
in the middle, before a word: so each word is decided by the window in which it has most context.
"""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.common.libraries import from_folder, require_library, tokenizer_of
from tacit.common.serialize import read_json
from tacit.data.records import Range, Record, Span
from tacit.errors import PolicyError
from tacit.policies.label_kinds import PLAIN, kinds_of_labels
from tacit.policies.normalize import normalization_digest, normalize
from tacit.policies.policy import Policy
from tacit.policies.tagging import BALANCED, check_kinds, digest_of, kinds_in_id, readable, tidied

_LONGEST_WINDOW = 512
_FEWEST_TOKENS = 8
_SHOWN = 5
_SPACE = re.compile(r"\s")
_SHARED = 4
"""A window shares one token in so many with the next one."""


class _Piece(NamedTuple):
    """A token as the tokenizer cuts it: its place in the window, the number of its word, where it starts and ends."""

    place: int
    word: int | None
    start: int
    end: int


class _Window(NamedTuple):
    """Tokens [first, last) of a text, and what the model gets for them."""

    first: int
    pieces: list[_Piece]
    inputs: dict[str, list[int]]

    @property
    def last(self) -> int:
        return self.first + len(self.pieces)


class _Token(NamedTuple):
    """Where a token's word starts and ends, and the probability of each label of the token."""

    start: int
    end: int
    probabilities: npt.NDArray[np.float64]


@dataclass(frozen=True)
class TokenClassifier(Policy):
    """Entities of the chosen kinds by the model in `folder`; by default all its kinds.

    labels: kinds of some of the model's labels (O for plain text), before those that `kinds_of_labels` gives.

    G1. At a lower `threshold` or a higher `plain_below` no character is lost.
    G2. One text at a time, on one thread, on the processor: the numbers depend on nothing but the text.
    """

    folder: str
    kinds: tuple[str, ...] | None = None
    threshold: float = BALANCED
    plain_below: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for package in ("transformers", "torch"):
            require_library(package, PolicyError)
        for name, value in (("threshold", self.threshold), ("plain_below", self.plain_below)):
            if not 0 <= value <= 1:
                raise PolicyError(f"`{name}` between 0 and 1", repr(value), "give a probability, such as 0.3")
        known = frozenset(self._kinds()) - {PLAIN}
        _check_weights(self.folder)
        object.__setattr__(self, "kinds", check_kinds(self.kinds, known, f"the model in {Path(self.folder).name!r}"))

    @property
    def id(self) -> str:
        kinds = kinds_in_id(self.kinds or (), set(self._kinds()) - {PLAIN})
        return f"token-classifier:{Path(self.folder).name}:{self.threshold:g}:{self.plain_below:g}{kinds}"

    def content(self) -> Any:  # noqa: ANN401
        return {
            "token-classifier": digest_of(Path(self.folder)),
            "libraries": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
            "labels": kinds_of_labels(_labels(self.folder), self.labels),
            "kinds": sorted(self.kinds or ()),
            "threshold": self.threshold,
            "plain_below": self.plain_below,
            "reading": normalization_digest(),
        }

    def _kinds(self) -> tuple[str, ...]:
        """The kind of each of the model's labels, in order."""
        labels = _labels(self.folder)
        kinds = kinds_of_labels(labels, self.labels)
        if not {PLAIN} < set(kinds.values()):
            raise PolicyError(
                expected=f"a label {PLAIN} for plain text, and another, in config.json of {Path(self.folder).name!r}",
                found=f"labels without {PLAIN}, or none but it: {', '.join(labels[:_SHOWN])}",
                way_out=f"say what labels mean, such as `labels: {{LABEL_0: {PLAIN}, LABEL_1: PERSON}}`",
            )
        return tuple(kinds[label] for label in labels)

    def find(self, record: Record) -> tuple[Span, ...]:
        reading = normalize(record.text)
        text, kinds = reading.text, self._kinds()
        found: list[Span] = []
        for start, end, probabilities in _model(self.folder).read(readable(text)):
            kind = self._kind(kinds, probabilities)
            if kind and found and found[-1].kind == kind and not text[found[-1].end : start].strip(" "):
                found[-1] = found[-1]._replace(end=max(found[-1].end, end))
            elif kind:
                found.append(Span(start, end, kind))
        return reading.back(tidied(text, found))

    def _kind(self, kinds: tuple[str, ...], probabilities: npt.NDArray[np.float64]) -> str | None:
        """The kind of a token whose labels of these kinds have these probabilities; None when it is plain."""
        chosen = dict.fromkeys(self.kinds or (), 0.0)
        for kind, probability in zip(kinds, probabilities, strict=True):
            if kind in chosen:
                chosen[kind] += float(probability)
        best = max(chosen, key=lambda kind: (chosen[kind], kind))
        plain = 1.0 - sum(chosen.values())
        tagged = chosen[best] > plain and chosen[best] >= self.threshold
        return best if tagged or plain < self.plain_below else None


class _Model:
    """A model and its tokenizer, loaded: safetensors only, no code from the folder, no network."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoModelForTokenClassification

        _check_weights(folder)
        self._tokenizer = tokenizer_of(Path(folder))
        self._model = from_folder(AutoModelForTokenClassification, Path(folder))
        if not self._tokenizer.is_fast:
            raise _unreadable(folder, "a tokenizer that does not say which characters a token stands for")
        self._model.eval()
        self._window = _window(self._model.config, self._tokenizer.model_max_length)
        self._lock = threading.Lock()

    def read(self, text: str) -> Iterator[_Token]:
        """The tokens of `text`, each with its word and its probabilities."""
        windows = self._windows(text)
        pieces: list[_Piece] = []
        for window in windows:
            pieces[window.first :] = window.pieces
        words = _words(text, pieces)
        cuts = [0, *(_cut(words, later.first, earlier.last) for earlier, later in pairwise(windows)), len(pieces)]
        for window, (begin, end) in zip(windows, pairwise(cuts), strict=True):
            rows = self._probabilities(window.inputs)
            for number in range(begin, end):
                start, stop = words[number]
                if start < stop:
                    yield _Token(start, stop, rows[window.pieces[number - window.first].place])

    def _windows(self, text: str) -> list[_Window]:
        shared = self._window // _SHARED
        with self._lock:
            encoded = self._tokenizer(
                text,
                truncation=True,
                max_length=self._window,
                stride=shared,
                return_overflowing_tokens=True,
                verbose=False,
            )
        windows: list[_Window] = []
        for row, encoding in enumerate(encoded.encodings):
            columns = zip(encoding.word_ids, encoding.offsets, encoding.special_tokens_mask, strict=True)
            pieces = [
                _Piece(place, word, *offsets) for place, (word, offsets, added) in enumerate(columns) if not added
            ]
            inputs = {name: encoded[name][row] for name in self._tokenizer.model_input_names}
            windows.append(_Window(windows[-1].last - shared if windows else 0, pieces, inputs))
        return windows

    def _probabilities(self, inputs: dict[str, list[int]]) -> npt.NDArray[np.float64]:
        import torch

        with self._lock, torch.inference_mode():
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                logits = self._model(**{name: torch.tensor([row]) for name, row in inputs.items()}).logits[0]
            finally:
                torch.set_num_threads(threads)
        found: npt.NDArray[np.float64] = torch.softmax(logits.double(), -1).numpy()
        return found


_model = cache(_Model)


def _words(text: str, pieces: Sequence[_Piece]) -> list[Range]:
    """Where the word of each token starts and ends: as the tokenizer cuts it, and besides at white space."""
    words, numbers = list[Range](), list[int]()
    last = None
    for piece in pieces:
        if last and piece.word == last.word is not None and not _SPACE.search(text, last.end, piece.start + 1):
            words[-1] = (min(words[-1][0], piece.start), max(words[-1][1], piece.end))
        else:
            words.append((piece.start, piece.end))
        numbers.append(len(words) - 1)
        last = piece
    return [words[number] for number in numbers]


def _cut(words: Sequence[Range], begin: int, end: int) -> int:
    """Where two windows that share the tokens [begin, end) are cut.

    In the middle, but the word there is left to the window that has more around it, if it has the word whole.
    """
    start = stop = (begin + end) // 2
    while start > 0 and words[start - 1] == words[start] and start >= begin:
        start -= 1
    while stop < len(words) and words[stop] == words[start] and stop <= end:
        stop += 1
    if stop <= end and end - stop > start - begin:
        return stop
    return start if start >= begin else (begin + end) // 2


def _window(config: Any, tokenizer_longest: int) -> int:  # noqa: ANN401
    """How many tokens the model reads at once, with the special ones."""
    positions = getattr(config, "max_position_embeddings", None) or _LONGEST_WINDOW
    padding = getattr(config, "pad_token_id", None) or 0
    shifted = positions - padding - 1 if config.model_type in ("roberta", "xlm-roberta", "camembert") else positions
    window = min(shifted, tokenizer_longest, _LONGEST_WINDOW)
    if window < _FEWEST_TOKENS:
        raise PolicyError(
            f"a model that reads {_FEWEST_TOKENS} tokens or more at once", str(window), "name another model"
        )
    return window


@cache
def _labels(folder: str) -> tuple[str, ...]:
    """The model's labels, by their numbers."""
    try:
        config = read_json(Path(folder) / "config.json")
        named = {int(number): str(label) for number, label in config["id2label"].items()}
        return tuple(named[number] for number in range(len(named)))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _unreadable(folder, f"{type(error).__name__} while reading `id2label` of config.json") from error


def _check_weights(folder: str) -> None:
    """Weights in other files are pickles, and reading a pickle runs what its author wrote."""
    if not any(Path(folder).glob("*.safetensors")):
        raise _unreadable(folder, "no weights in safetensors; those in a pickle (.bin, .pt) are never read")


def _unreadable(folder: str, found: str) -> PolicyError:
    return PolicyError(
        expected=f"a token-classification model in {Path(folder).name!r}: config.json with named labels, weights in "
        "safetensors and a fast tokenizer",
        found=found,
        way_out="save model and tokenizer there with `save_pretrained`, which writes safetensors",
    )
