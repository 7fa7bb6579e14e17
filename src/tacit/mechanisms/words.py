"""The words with which a person asks for a mechanism: each is used, or refused."""

import math
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tacit.errors import ConfigError
from tacit.mechanisms.base import PrivateSteps, PublicSteps
from tacit.plan import Targets

DEFAULT_EPOCHS = 20.0
DEFAULT_PUBLIC_BATCH = 32
START_NOISE = 1.0
"""The noise a mechanism is built with before it is calibrated to a target epsilon."""


class Vocabulary(BaseModel):
    """Every word, its type and its meaning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mechanism: str = Field(description="Name of the mechanism; `tacit plan --list` lists them.")
    epsilon: float | None = Field(None, gt=0, allow_inf_nan=False, description="Target; the noise is derived from it.")
    noise_multiplier: float | None = Field(None, gt=0, allow_inf_nan=False, description="Noise / clip norm, by hand.")
    delta: float | None = Field(None, gt=0, lt=1, description="Default: 1 / (10 x units).")
    records: int | None = Field(None, ge=1, description="Records in the corpus.")
    secret_records: int | None = Field(None, ge=1, description="Records with marked secrets. Default: all records.")
    flagged: int | None = Field(None, ge=1, description="Records routed to the protected set.")
    users: int | None = Field(None, ge=1, description="Users in the corpus.")
    batch: float | None = Field(None, gt=0, description="Expected units in a private draw.")
    sampling_rate: float | None = Field(None, gt=0, le=1, description="Probability of a unit in a private draw.")
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False, description="Expected passes over the private units.")
    steps: int | None = Field(None, ge=1, description="Private steps.")
    clip_norm: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Largest norm a unit's gradient keeps."
    )
    public_batch: int | None = Field(None, ge=1, description="Records in a public batch.")
    public_epochs: float | None = Field(None, ge=0, allow_inf_nan=False, description="Passes over the public text.")
    targets: Targets | None = Field(None, description="Losses of private steps: private (default) or all tokens.")
    weight_cap: int | None = Field(None, ge=1, description="Records from which a user has full weight.")
    local_epochs: int | None = Field(None, ge=1, description="Passes of a user's local update.")
    user_cap: int | None = Field(None, ge=1, description="Most records a user keeps.")
    entity_cap: int | None = Field(None, ge=1, description="Most records an entity keeps.")
    entity_rate: float | None = Field(None, gt=0, le=1, description="UeDP as printed: q_e.")
    other_rate: float | None = Field(None, ge=0, le=1, description="UeDP as printed: q_s; 0 is the estimator f_E.")
    sensitive_share: float | None = Field(None, gt=0, le=1, description="UeDP as printed: sensitive / all sentences.")
    recall: float | None = Field(None, gt=0, le=1, description="CADP as printed: the detector's recall.")
    events_per_batch: float | None = Field(None, gt=0, description="S-DP as printed: private updates a batch.")
    segments_per_record: int | None = Field(None, ge=1, description="S-DP as printed: secrets of one record.")
    noised_states: int | None = Field(None, ge=0, description="S-DP as printed: hidden states noised a segment.")


class Words:
    """The words a person gave, handed out one by one, so that what nobody took can be refused."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._given = vocabulary.model_dump(exclude_none=True)
        self._mechanism = vocabulary.mechanism
        self._left = set(self._given) - {"mechanism", "epsilon"}
        if "epsilon" in self._given and "noise_multiplier" in self._given:
            raise ConfigError("epsilon or noise_multiplier", "both", "give the target epsilon, or the noise by hand")

    def take(self, word: str, default: Any = None) -> Any:  # noqa: ANN401  (the vocabulary has the types)
        """The value of an optional word."""
        self._left.discard(word)
        return self._given.get(word, default)

    def need(self, word: str) -> Any:  # noqa: ANN401
        """The value of a word this mechanism cannot do without."""
        if word not in self._given:
            meaning = Vocabulary.model_fields[word].description
            raise ConfigError(
                expected=f"{word} ({meaning})", found="nothing", way_out=f"add --{word.replace('_', '-')} NUMBER"
            )
        return self.take(word)

    def finish(self) -> None:
        """Refuse words that this mechanism has no use for."""
        if self._left:
            raise ConfigError(
                expected=f"settings that {self._mechanism} uses",
                found=", ".join(sorted(self._left)),
                way_out="leave them out, or choose a mechanism that uses them",
            )

    def private(self, population: int) -> PrivateSteps:
        """Private steps over `population` units: batch or sampling rate, epochs or steps, noise or the start of one."""
        batch = self._one_of("batch", "sampling_rate", float(min(population, max(64, population // 40))))
        expected = batch * population if "sampling_rate" in self._given else batch
        if expected > population:
            raise ConfigError(f"a batch of at most {population} units", str(expected), "make --batch smaller")
        epochs = self._one_of("epochs", "steps", DEFAULT_EPOCHS)
        steps = epochs if "steps" in self._given else math.ceil(epochs * population / expected)
        noise = self.take("noise_multiplier", START_NOISE)
        if "noise_multiplier" not in self._given and "epsilon" not in self._given:
            raise ConfigError("a price or a noise", "neither", "add --epsilon NUMBER (or --noise-multiplier NUMBER)")
        return PrivateSteps(population, expected, steps, noise, self.take("clip_norm", 1.0), self.take("delta"))

    def passes(self, population: int) -> PrivateSteps:
        """As `private`, for a mechanism whose steps are whole passes: epochs are steps."""
        private = self.private(population)
        return (
            private
            if "steps" in self._given
            else replace(private, steps=math.ceil(self.take("epochs", DEFAULT_EPOCHS)))
        )

    def public(self, records: int) -> PublicSteps:
        """Public steps over `records` records; as many epochs as the private ones unless said otherwise."""
        batch = min(records, self.take("public_batch", DEFAULT_PUBLIC_BATCH))
        epochs = self.take("public_epochs", self.take("epochs", DEFAULT_EPOCHS))
        return PublicSteps(batch, math.ceil(epochs * records / batch))

    def _one_of(self, first: str, second: str, default: float) -> Any:  # noqa: ANN401
        if first in self._given and second in self._given:
            raise ConfigError(f"{first} or {second}", "both", "each decides the other: give one")
        return self.take(first, self.take(second, default))
