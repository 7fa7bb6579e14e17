"""The words with which a person asks for a mechanism: each is used, or refused."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tacit.config.schema import Vocabulary
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import Needs, PrivateSteps, PublicSteps

DEFAULT_EPOCHS = 20.0
DEFAULT_PUBLIC_BATCH = 32
CorpusCounts = Mapping[str, Callable[[], float]]
"""Public numbers of a corpus, by the word that they stand for; what a person gives goes first."""

START_NOISE = 1.0
"""The noise a mechanism is built with before it is calibrated to a target epsilon."""


def default_batch(population: int) -> float:
    """Expected units in a private draw when nobody says how many."""
    return float(min(population, max(64, population // 40)))


class PlanSettings:
    """The words a person gave, handed out one by one, so that what nobody took can be refused."""

    def __init__(self, vocabulary: Vocabulary, measured: CorpusCounts, needs: Needs) -> None:
        self._measured, self._needs = measured, needs
        self._given = vocabulary.model_dump(exclude_none=True)
        self._mechanism = vocabulary.mechanism
        self._left = set(self._given) - {"mechanism", "epsilon"}
        if "epsilon" in self._given and "noise_multiplier" in self._given:
            raise ConfigError("epsilon or noise_multiplier", "both", "give the target epsilon, or the noise by hand")

    def take(self, word: str, default: Any = None) -> Any:  # noqa: ANN401  (the vocabulary has the types)
        """The value of an optional word."""
        self._left.discard(word)
        if word in self._measured and word not in self._given:
            return self._measured[word]()
        return self._given.get(word, default)

    def need(self, word: str) -> Any:  # noqa: ANN401
        """The value of a word this mechanism cannot do without."""
        if word not in self._given and word not in self._measured:
            meaning = Vocabulary.model_fields[word].description
            raise ConfigError(
                expected=f"{word} ({meaning})", found="nothing", way_out=f"add --{word.replace('_', '-')} NUMBER"
            )
        return self.take(word)

    def count(self, word: str) -> int:
        """How many units there are: a number of the corpus, or all its records."""
        return int(self.take(word) or self.need("records"))

    def given(self, word: str) -> bool:
        """Whether a person gave it."""
        return word in self._given

    def finish(self) -> None:
        """Refuse words that this mechanism has no use for."""
        if self._left:
            raise ConfigError(
                expected=f"settings that {self._mechanism} uses",
                found=", ".join(sorted(self._left)),
                way_out="leave them out, or choose a mechanism that uses them",
            )

    def private(self, population: int, *, as_printed: bool = False) -> PrivateSteps:
        """Private steps over `population` units: batch or sampling rate, epochs or steps, noise or the start of one.

        Algorithms as printed clip and move as printed: the words for other ways are left, and refused.
        """
        batch = self._one_of("batch", "sampling_rate", default_batch(population))
        expected = batch * population if "sampling_rate" in self._given else batch
        if expected > population:
            raise ConfigError(f"a batch of at most {population} units", str(expected), "make --batch smaller")
        epochs = self._one_of("epochs", "steps", DEFAULT_EPOCHS)
        steps = epochs if "steps" in self._given else math.ceil(epochs * population / expected)
        noise = self.take("noise_multiplier", START_NOISE)
        if "noise_multiplier" not in self._given and "epsilon" not in self._given:
            raise ConfigError("a price or a noise", "neither", "add --epsilon NUMBER (or --noise-multiplier NUMBER)")
        norm, delta = self.take("clip_norm", 1.0), self.take("delta")
        if as_printed:
            return PrivateSteps(population, expected, steps, noise, norm, delta)
        style, moves = self.take("clip_style", "flat"), self.take("moves", "all")
        return PrivateSteps(population, expected, steps, noise, norm, delta, style, moves)

    def passes(self, population: int) -> PrivateSteps:
        """As `private` as printed, for a mechanism whose steps are whole passes: epochs are steps."""
        private = self.private(population, as_printed=True)
        return (
            private
            if "steps" in self._given
            else replace(private, steps=math.ceil(self.take("epochs", DEFAULT_EPOCHS)))
        )

    def without_secrets(self, records: int) -> PublicSteps:
        """As `public`, of text without its secrets: with placeholders, or with invented ones."""
        view = self.take("public_view", self._needs.public_view)
        return replace(self.public(records), invents=view == "invented")

    def public(self, records: int) -> PublicSteps:
        """Public steps over `records` records; as many epochs as the private ones unless said otherwise."""
        batch = min(records, self.take("public_batch", DEFAULT_PUBLIC_BATCH))
        epochs = self.take("public_epochs", self.take("epochs", DEFAULT_EPOCHS))
        return PublicSteps(batch, math.ceil(epochs * records / batch))

    def _one_of(self, first: str, second: str, default: float) -> Any:  # noqa: ANN401
        if first in self._given and second in self._given:
            raise ConfigError(f"{first} or {second}", "both", "each decides the other: give one")
        return self.take(first, self.take(second, default))
