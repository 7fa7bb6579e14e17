"""The policy `token-classifier`: entities by a Hugging Face token-classification model in a folder, with scores.

A kind's probability for a token is the sum over its labels (B-, I- and so on); what remains, the label O and the kinds
that were not chosen, is the probability of plain text. A token has the most probable of the chosen kinds and plain.

| policy | threshold | plain_below | a token is found when |
|---|---|---|---|
| balanced (CRT's pi) | .3 | 0 | a kind is the most probable, with at least .3 |
| conservative (CRT's pi_c) | 0 | .9 | a kind is the most probable, or plain text has less than .9 |

(Zhao et al. 2022, appendix A.4; there the probability of a single label is compared, not that of a kind.) A word is
found whole when one of its tokens is. torch and transformers are imported when the first text is read.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.common.libraries import from_folder, require_library, tokenizer_of
from tacit.common.serialize import read_json
from tacit.data.records import Record, Span, common_kind, resolve_overlaps
from tacit.errors import PolicyError
from tacit.policies.policy import Policy
from tacit.policies.tagging import BALANCED, check_kinds, digest_of, kinds_in_id, pieces, readable, tidied

_PLAIN = "O"
_CHARACTERS_A_TOKEN = 3
_LONGEST_WINDOW = 512
_FEWEST_TOKENS = 8


_Word = tuple[int, int, npt.NDArray[np.float64]]
"""Where a token's word starts and ends, and the probability of each label of the token."""


@dataclass(frozen=True)
class TokenClassifier(Policy):
    """Entities of the chosen kinds by the model in `folder`; by default all its kinds.

    G1. At a lower `threshold` or a higher `plain_below` no character is lost.
    G2. One text at a time, on one thread, on the processor: the numbers depend on nothing but the text.
    """

    folder: str
    kinds: tuple[str, ...] | None = None
    threshold: float = BALANCED
    plain_below: float = 0.0

    def __post_init__(self) -> None:
        for package in ("transformers", "torch"):
            require_library(package, PolicyError)
        for name, value in (("threshold", self.threshold), ("plain_below", self.plain_below)):
            if not 0 <= value <= 1:
                raise PolicyError(f"`{name}` between 0 and 1", repr(value), "give a probability, such as 0.3")
        known = frozenset(_labels(self.folder)) - {_PLAIN}
        _check_weights(self.folder)
        object.__setattr__(self, "kinds", check_kinds(self.kinds, known, f"the model in {Path(self.folder).name!r}"))

    @property
    def id(self) -> str:
        kinds = kinds_in_id(self.kinds or (), set(_labels(self.folder)) - {_PLAIN})
        return f"token-classifier:{Path(self.folder).name}:{self.threshold:g}:{self.plain_below:g}{kinds}"

    def content(self) -> Any:  # noqa: ANN401
        return {
            "token-classifier": digest_of(Path(self.folder)),
            "libraries": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
            "kinds": sorted(self.kinds or ()),
            "threshold": self.threshold,
            "plain_below": self.plain_below,
        }

    def find(self, record: Record) -> tuple[Span, ...]:
        text = record.text
        labels = _labels(self.folder)
        found: list[Span] = []
        for start, end, probabilities in _model(self.folder).read(readable(text)):
            kind = self._kind(labels, probabilities)
            if kind and found and found[-1].kind == kind and not text[found[-1].end : start].strip(" "):
                found[-1] = found[-1]._replace(end=max(found[-1].end, end))
            elif kind:
                found.append(Span(start, end, kind))
        return resolve_overlaps(tidied(text, found))

    def _kind(self, labels: tuple[str, ...], probabilities: npt.NDArray[np.float64]) -> str | None:
        """The kind of a token with these probabilities; None when it is plain."""
        chosen = dict.fromkeys(self.kinds or (), 0.0)
        for label, probability in zip(labels, probabilities, strict=True):
            if label in chosen:
                chosen[label] += float(probability)
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

    def read(self, text: str) -> Iterator[_Word]:
        """The words of `text`, as the tokenizer cuts them, with the probabilities of each of their tokens."""
        for start, end in pieces(text, self._window * _CHARACTERS_A_TOKEN):
            yield from self._read(text, start, end)

    def _read(self, text: str, start: int, end: int) -> Iterator[_Word]:
        with self._lock:
            encoded = self._tokenizer(text[start:end], return_offsets_mapping=True, return_tensors="pt", verbose=False)
        if encoded["input_ids"].shape[1] > self._window and end - start > 1:
            for first, last in pieces(text[start:end], (end - start + 1) // 2):
                yield from self._read(text, start + first, start + last)
            return
        offsets = encoded.pop("offset_mapping")[0].tolist()
        words = encoded.word_ids(0)
        whole: dict[int, tuple[int, int]] = {}
        for word, (first, last) in zip(words, offsets, strict=True):
            if word is not None:
                begin, finish = whole.get(word, (first, last))
                whole[word] = (min(begin, first), max(finish, last))
        for word, row in zip(words, self._probabilities(encoded), strict=True):
            if word is not None and whole[word][0] < whole[word][1]:
                yield start + whole[word][0], start + whole[word][1], row

    def _probabilities(self, encoded: Any) -> npt.NDArray[np.float64]:  # noqa: ANN401
        import torch

        with self._lock, torch.inference_mode():
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                logits = self._model(**encoded).logits[0]
            finally:
                torch.set_num_threads(threads)
        found: npt.NDArray[np.float64] = torch.softmax(logits.double(), -1).numpy()
        return found


_model = cache(_Model)


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
    """The kind of each of the model's labels, in the one vocabulary; O for plain text."""
    try:
        config = read_json(Path(folder) / "config.json")
        named = {int(number): str(label) for number, label in config["id2label"].items()}
        labels = tuple(named[number] for number in range(len(named)))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _unreadable(folder, f"{type(error).__name__} while reading `id2label` of config.json") from error
    if _PLAIN not in labels or len(labels) < 2:
        raise _unreadable(folder, f"labels without {_PLAIN}, which says that a token is plain")
    return tuple(_PLAIN if label == _PLAIN else common_kind(label) for label in labels)


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
