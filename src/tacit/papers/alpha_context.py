"""The alpha-context of a secret (CADP-LM, definition 2): which words before it make a model expect it.

Notation: x_i is the target, any part of a text; x what precedes it; x~ a suffix of x, cut before a word or a mark.

    the alpha-context is the shortest suffix x~ with |p(x_i | x) - p(x_i | x~)| <= alpha

and with a map phi to texts that mean the same, the inequality must hold for x~ and for all of phi(x~). "Shortest" is
meant as it is written: the first that satisfies it, counted from the empty one. A longer suffix need not satisfy it, so
that a short one may do so by accident; `settled` is the shortest from which on all longer ones do.

A target of several tokens has the product of their probabilities. Every text begins with the token that texts of the
model begin with, so that the empty suffix has a probability too. A suffix takes the white space before its first word
along; it is encoded anew, which for byte-level BPE gives the tokens it has in the text but where a word is cut ("'t").
White space alone is no context. Where x is too long for the model, x is the longest suffix that fits; of a paraphrase
that is too long, the last tokens are read.

G1 (definition). The result is that of trying all suffixes one by one, up to rounding in float32.
G2 (always). Without phi there is an alpha-context: x itself satisfies the inequality. With phi there may be none.
G3 (nested). The alpha-context for a larger alpha is the same or shorter.
G4 (fixed). Same model, text and place, same result: nothing is drawn, and what is computed together does not depend
    on anything else.

`WithAlphaContext` is the policy. What is marked is public annotation, so it may depend on public things alone (theory,
Pub(D) hygiene): a model that learned from the corpus at hand would carry its secrets into the mask, unaccounted. Nobody
can see from a model what it learned from, so a person must state it: `public` text, or data `disjoint` from the
corpus. Where a context begins depends on the secret's content, as far as the model expects one secret more than
another: `tacit scan` measures how often (mask stability).

G5 (covers). The policy marks every character that the inner policy finds, and all between it and the first word of its
   alpha-context; nothing else. A secret that is too long for the model has no context. Overlapping spans become one
   with the kind of the longest.
G6 (same model). The same record gives the same spans, in float32 on the same library; a folder whose model is no longer
   the one of `model_hash` is refused.
"""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch

from tacit.common.charts import Result
from tacit.common.serialize import read_json
from tacit.data.batches import TextBatch
from tacit.data.corpus import read
from tacit.data.fields import fields_of
from tacit.data.records import Record, Span, resolve_overlaps
from tacit.data.tokenizer import Tokenizer
from tacit.errors import ConfigError, ModelError, PolicyError
from tacit.models.language_model import Learner, Speaker
from tacit.models.loading import load, load_foreign
from tacit.policies.detectors.detector import TextDigest
from tacit.policies.policy import Policy
from tacit.runs.folder import MARK

Paraphrases = Callable[[Sequence[str]], Sequence[Sequence[str]]]
"""A semantic-invariant map: for each text, others that mean the same; it should be a pure function of each."""

_WORD = re.compile(r"\w+|[^\w\s]")
_FIRST_TRIED = 8  # suffixes at once; then twice as many, and so on
_NUMBERS_AT_ONCE = 1 << 26  # of the scores of all positions


@dataclass(frozen=True, slots=True, eq=False)
class ContextModel:
    """A language model that gives the probability of a target after a context.

    opening: the token that texts begin with. joined: the white space before a target is encoded with it, as in running
    text; else the target is encoded apart, as training encodes marked secrets. hash: of all of it.
    """

    speaker: Speaker
    tokenizer: Tokenizer
    opening: int
    joined: bool
    hash: str

    @classmethod
    def of(cls, learner: Learner, tokenizer: Tokenizer, opening: int, joined: bool) -> "ContextModel":
        """With the hash of its weights, its shape and its tokenizer, and of the library that computes with them."""
        learner.module.eval()
        shape = [learner.description(), tokenizer.hash, opening, joined, str(torch.__version__)]
        digest = hashlib.sha256(json.dumps(shape, sort_keys=True, default=str).encode())
        for name, value in sorted(learner.module.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return cls(learner, tokenizer, opening, joined, digest.hexdigest())

    def length(self, context: str, target: str) -> int:
        """How many tokens the model must read for it."""
        return len(self.tokenizer.encode(context)) + len(self.tokenizer.encode(target))

    def reads(self, target: str) -> bool:
        """Whether it can give the probability of the target, if only after nothing."""
        return self.length("", target) <= self.speaker.context

    def probabilities(self, contexts: Sequence[str], target: str) -> list[float]:
        """The probability of `target` after each of `contexts`; of one that is too long, after its last tokens."""
        ending = self.tokenizer.encode(target)
        room = self.speaker.context - len(ending)
        encoded = self.tokenizer.encode_batch(contexts)
        rows = [[self.opening, *tokens[max(0, len(tokens) - room) :], *ending] for tokens in encoded]
        most = max(1, _NUMBERS_AT_ONCE // (self.speaker.vocabulary_size * max(map(len, rows), default=1)))
        found: list[float] = []
        for start in range(0, len(rows), most):
            part = rows[start : start + most]
            scores = self.speaker.log_probabilities(TextBatch.of_rows(part)).double()
            ends = [len(row) - 1 for row in part]  # the first token of a row is no target
            totals = torch.stack([row[end - len(ending) : end].sum() for row, end in zip(scores, ends, strict=True)])
            if bool(torch.isnan(totals).any()):
                raise ModelError("probabilities", "a model that gives NaN", "its training diverged: train it again")
            found += totals.exp().tolist()
        return found


@lru_cache(2)
def context_model(folder: Path) -> ContextModel:
    """The model of a finished run, or of a local Hugging Face folder; read once in a process."""
    if (folder / MARK).is_file():
        learner, tokenizer = load(folder)
        return ContextModel.of(learner, tokenizer, tokenizer.begin, joined=False)
    if not (folder / "config.json").is_file():
        raise ConfigError(
            expected="a finished run, or a local folder of a Hugging Face causal model",
            found=f"neither in {folder}",
            way_out="name a folder that `tacit train` wrote, or one with config.json, tokenizer.json and safetensors",
        )
    foreign, its_tokenizer, opening = load_foreign(folder)
    return ContextModel.of(foreign, its_tokenizer, opening, joined=True)


@dataclass(frozen=True, slots=True)
class Suffix:
    """A suffix of so many words and marks, whose first one begins at character `start` of the text.

    probabilities: of the target after the suffix, and after each of its paraphrases.
    """

    words: int
    start: int
    probabilities: tuple[float, ...]

    def gap(self, whole: float) -> float:
        """How far the probability is from that after the whole context; the farthest one with paraphrases."""
        return max(abs(one - whole) for one in self.probabilities)


@dataclass(frozen=True, eq=False)
class LeftContext:
    """What precedes the target at characters `start` to `end` of `text`, as far as `model` can read it."""

    model: ContextModel
    text: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= len(self.text):
            raise ConfigError(
                expected=f"a target inside a text of {len(self.text):,} characters",
                found=f"characters {self.start:,} to {self.end:,}",
                way_out="name a part of the text that is not empty",
            )
        if not self.model.reads(self._target):
            raise ConfigError(
                expected=f"a target of at most {self.model.speaker.context:,} tokens, which the model can read",
                found="a longer one",
                way_out="name a shorter part of it",
            )

    def alpha_context(self, alpha: float, phi: Paraphrases | None = None) -> Suffix | None:
        """The alpha-context; None if not even the whole context satisfies the inequality, which only phi can bring."""
        check_alpha(alpha)
        return next((suffix for suffix in self.suffixes(phi) if suffix.gap(self.probability) <= alpha), None)

    @cached_property
    def probability(self) -> float:
        """Of the target after the whole context."""
        return self.model.probabilities([self.text[self._starts[-1] : self._border]], self._target)[0]

    def suffixes(self, phi: Paraphrases | None = None) -> Iterator[Suffix]:
        """All suffixes, from the empty one to the whole context; computed as they are asked for."""
        starts = self._starts
        done, at_once = 0, _FIRST_TRIED
        while done < len(starts):
            numbers = range(done, min(done + at_once, len(starts)))
            texts = _with_paraphrases([self.text[starts[words] : self._border] for words in numbers], phi)
            flat = [one for some in texts for one in some]
            values = iter(self.model.probabilities(flat, self._target))
            for words, some in zip(numbers, texts, strict=True):
                own, *others = (next(values) for _ in some)
                own = self.probability if words == len(starts) - 1 else own  # what was rounded otherwise is no gap
                yield Suffix(words, self._first_letter(starts[words]), (own, *others))
            done, at_once = numbers.stop, 2 * at_once

    @property
    def _border(self) -> int:
        """Where the context ends and what is scored begins."""
        return len(self.text[: self.start].rstrip()) if self.model.joined else self.start

    @property
    def _target(self) -> str:
        return self.text[self._border : self.end]

    @cached_property
    def _starts(self) -> list[int]:
        """Where the suffix of 0, 1, 2, ... words begins, as far as the model can read."""
        found = list(_WORD.finditer(self.text, 0, self._border))
        starts = [self._border, *(one.end() for one in reversed(found[:-1])), *([0] if found else [])]
        room = self.model.speaker.context
        if self.model.length(self.text[starts[-1] : self._border], self._target) <= room:
            return starts
        fits = bisect_right(
            starts, room, key=lambda start: self.model.length(self.text[start : self._border], self._target)
        )
        return starts[:fits]

    def _first_letter(self, start: int) -> int:
        found = _WORD.search(self.text, start, self._border)
        return self.start if found is None or start == self._border else found.start()


def _with_paraphrases(suffixes: list[str], phi: Paraphrases | None) -> list[list[str]]:
    """Each suffix and its paraphrases by phi, with the white space around it; no words have none."""
    bare = [suffix.strip() for suffix in suffixes]
    said = iter([] if phi is None else phi([one for one in bare if one]))
    texts = []
    for suffix, inside in zip(suffixes, bare, strict=True):
        before, _, after = suffix.partition(inside) if inside else (suffix, "", "")
        others = next(said) if phi is not None and inside else ()
        texts.append([suffix, *(f"{before}{one.strip()}{after}" for one in others)])
    return texts


@dataclass(frozen=True, slots=True)
class Contexts(Result):
    """The result of `tacit context`: the probability of the target after the whole context and after every suffix.

    start: where the target begins in the text. suffixes: from the empty one to the whole context.
    """

    start: int
    probability: float
    alpha: float
    suffixes: tuple[Suffix, ...]

    @property
    def shortest(self) -> Suffix | None:
        """The alpha-context; None if not even the whole context satisfies the inequality (G2)."""
        return next((suffix for suffix in self.suffixes if suffix.gap(self.probability) <= self.alpha), None)

    @property
    def settled(self) -> Suffix | None:
        """The shortest suffix such that every longer one is within alpha, too."""
        last: Suffix | None = None
        for suffix in reversed(self.suffixes):
            if suffix.gap(self.probability) > self.alpha:
                break
            last = suffix
        return last


def contexts_of(
    text: str, target: str, model: Path, alpha: float, occurrence: int | None = None, phi: Paraphrases | None = None
) -> Contexts:
    """Every suffix before an occurrence of `target` in `text`, counted from 1; by default before the last one."""
    check_alpha(alpha)
    start = _place(text, target, occurrence)
    left = LeftContext(context_model(model.resolve()), text, start, start + len(target))
    return Contexts(start, left.probability, alpha, tuple(left.suffixes(phi)))


def _place(text: str, target: str, occurrence: int | None) -> int:
    if not target:
        raise ConfigError("a target", "an empty one", "name the part of the text that is the target")
    places = [found.start() for found in re.finditer(f"(?={re.escape(target)})", text)]
    if not places:
        raise ConfigError(
            "a target that occurs in the text", "a text without it", "write it as it is written in the text"
        )
    if occurrence is not None and not 1 <= occurrence <= len(places):
        raise ConfigError(
            expected=f"an occurrence of the target from 1 to {len(places)}",
            found=f"occurrence {occurrence}",
            way_out="name one that the text has",
        )
    return places[-1 if occurrence is None else occurrence - 1]


def check_alpha(alpha: float) -> None:
    """Refuse what is no difference of probabilities."""
    if not 0 <= alpha < 1:
        raise ConfigError("an alpha from 0 to below 1", f"{alpha:g}", "0.01 is a usual one")


ALPHA_CONTEXT = "alpha-context"
TRAINED_ON = ("public", "disjoint")


@dataclass(frozen=True)
class WithAlphaContext(Policy):
    """What `policy` finds, each with its alpha-context under the model of a folder."""

    policy: Policy
    model: Path
    alpha: float
    trained_on: str
    model_hash: str

    @classmethod
    def of(cls, policy: Policy, model: Path | None, alpha: float, trained_on: str | None) -> "WithAlphaContext":
        """With the model as it is in its folder now."""
        if model is None:
            raise PolicyError(
                expected="the field `model` for a policy widened to the alpha-context",
                found="none",
                way_out="write `model:` with a run folder or a local Hugging Face causal model",
            )
        if trained_on is None:
            raise PolicyError(
                expected="what the model of the alpha-context learned from",
                found="no statement about it",
                way_out="write `trained_on: public` or `trained_on: disjoint`; with a model that learned from this "
                "corpus the mask would reveal its secrets",
            )
        if trained_on not in TRAINED_ON:
            raise ConfigError.unknown_name("data that a model may have learned from", trained_on, TRAINED_ON)
        check_alpha(alpha)
        return cls(policy, model, alpha, trained_on, context_model(model.resolve()).hash)

    @property
    def id(self) -> str:
        learned = f"model {self.model_hash[:12]} trained on {self.trained_on} data"
        return f"widened({self.policy.id}, {ALPHA_CONTEXT} {self.alpha:g}, {learned})"

    def content(self) -> Any:  # noqa: ANN401
        return {
            "widened": self.policy.content(),
            "to": ALPHA_CONTEXT,
            "alpha": self.alpha,
            "model": self.model_hash,
            "trained_on": self.trained_on,
        }

    def learned_from(self) -> Iterable[tuple[str, frozenset[int]]]:
        """Of the corpora that the settings of a run folder name, as far as they exist; of other models none is known.

        Their paths are as they were written: relative ones are relative to the working directory.
        """
        try:
            settings = read_json(self.model / "private" / "settings.json")
            data = settings.get("data", {})
            named = [settings.get("corpus"), data.get("held_out_corpus")]
        except (OSError, ValueError, AttributeError):
            return
        fields = fields_of(data)
        for name in named:
            if isinstance(name, str) and Path(name).exists():
                digest = TextDigest()
                for record in read(name, fields):
                    digest.add(record)
                yield digest.hexdigest(), frozenset(digest.sketch())

    def find(self, record: Record) -> tuple[Span, ...]:
        found = self.policy.find(record)
        if not found:
            return ()
        model = context_model(self.model.resolve())
        if model.hash != self.model_hash:
            raise PolicyError(
                expected=f"the model {self.model_hash[:12]} that the policy was made with",
                found=f"{model.hash[:12]} in its folder",
                way_out="put the model back, or make the policy anew",
            )
        widened = []
        for span in found:
            context = None
            if model.reads(record.text[span.start : span.end]):
                context = LeftContext(model, record.text, span.start, span.end).alpha_context(self.alpha)
            widened.append(span if context is None else span._replace(start=context.start))
        return resolve_overlaps(widened)
