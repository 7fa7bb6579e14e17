"""How hard an audit attacks, which canaries to plant, and what the slot of a template can contain."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from tacit.common.serialize import LARGEST_SEED
from tacit.config.setting import REQUIRED, VALUE, Method, section, setting
from tacit.errors import AttackError, PrepareError

if TYPE_CHECKING:
    import numpy as np

_SLOT = re.compile(r"\{(?:([1-9]\d{0,2}) )?(digit|letter|word)s?\}")
_ALPHABETS = {"digit": "0123456789", "letter": "abcdefghijklmnopqrstuvwxyz"}
made_up = partial(setting, release=VALUE, why="canaries are made up")


@section
class CanaryPlan:
    """What to plant: `count` canaries of one template, each inside with `inside_probability`, then `repetitions` times.

    A template holds one slot: `{6 digits}`, `{4 letters}`, `{word}` or `{3 words}` (of `words`). When not `known`, the
    planted records carry no span: the canaries are secrets that the policy is not told of.
    """

    template: str = made_up(REQUIRED, "Text with one slot: My ID is {6 digits}, {4 letters} or {3 words}.")
    count: int = made_up(REQUIRED, "How many different canaries of this template.")
    repetitions: int = made_up(1, "How often a planted canary occurs; raise it to test memorization.")
    inside_probability: float = made_up(0.5, "Chance of each canary to be planted; 0.5 is best for a bound on epsilon.")
    known: bool = made_up(True, "Whether the policy marks them; no: they test secrets that the policy misses.")
    words: tuple[str, ...] = setting((), "Words that {word} is drawn from.")

    def __post_init__(self) -> None:
        if self.count < 1 or self.repetitions < 1 or not 0 <= self.inside_probability <= 1:
            raise PrepareError(
                expected="at least one canary, at least one repetition and a probability in [0, 1]",
                found=f"count {self.count}, repetitions {self.repetitions}, probability {self.inside_probability}",
                way_out="mend the canary plan",
            )
        if self.slot.size < 2 * self.count:
            raise PrepareError(
                expected=f"a slot with at least {2 * self.count} values, for {self.count} canaries and their twins",
                found=f"{self.slot.size} values in {self.template!r}",
                way_out="make the slot longer, plant fewer canaries, or give more words",
            )

    @property
    def slot(self) -> "Slot":
        return Slot.of(self.template, self.words)

    @property
    def values(self) -> int:
        """How many values the slot can hold."""
        return self.slot.size


@dataclass(frozen=True, slots=True)
class Slot:
    """The values of a template: `length` of `symbols` with `joint` between them; and the text around them."""

    before: str
    after: str
    symbols: tuple[str, ...]
    length: int
    joint: str

    @classmethod
    def of(cls, template: str, words: tuple[str, ...] = ()) -> "Slot":
        """The slot of a template; `words` are the values of `{word}`."""
        slots = list(_SLOT.finditer(template))
        braces = template.count("{") + template.count("}")
        if len(slots) != 1 or braces != 2:
            raise PrepareError(
                expected="a template with one slot, such as 'My ID is {6 digits}', {4 letters}, {word} or {3 words}",
                found=f"{len(slots)} slots and {braces} braces in {template!r}",
                way_out="write one slot and no other braces",
            )
        length, noun = int(slots[0][1] or 1), slots[0][2]
        symbols = tuple(_ALPHABETS[noun]) if noun in _ALPHABETS else words
        if noun == "word" and not (
            len(set(symbols)) == len(symbols) and all(re.fullmatch(r"\S+", word) for word in symbols)
        ):
            raise PrepareError("different words without white space", f"{len(symbols)} words", "mend the list of words")
        before, after = template[: slots[0].start()], template[slots[0].end() :]
        return cls(before, after, symbols, length, " " if noun == "word" else "")

    @property
    def size(self) -> int:
        size: int = len(self.symbols) ** self.length
        return size

    def values(self) -> Iterator[str]:
        """Every value once, in the order of their numbers."""
        return map(self.joint.join, product(self.symbols, repeat=self.length))

    def number(self, value: str) -> int | None:
        """Which of `values()` it is; none if it is no value."""
        places = {symbol: place for place, symbol in enumerate(self.symbols)}
        symbols = [value] if self.length == 1 else value.split(self.joint) if self.joint else list(value)
        if len(symbols) != self.length or any(symbol not in places for symbol in symbols):
            return None
        number = 0
        for symbol in symbols:
            number = number * len(self.symbols) + places[symbol]
        return number

    def sample(self, count: int, generator: "np.random.Generator") -> list[str]:
        return [self._value(generator) for _ in range(count)]

    def distinct(self, count: int, generator: "np.random.Generator") -> list[str]:
        """`count` different values, uniform among such lists: drawn one by one, repeats thrown away."""
        values: dict[str, None] = {}
        while len(values) < count:
            values.setdefault(self._value(generator))
        return list(values)

    def text(self, value: str) -> str:
        return self.before + value + self.after

    def _value(self, generator: "np.random.Generator") -> str:
        symbols = generator.integers(0, len(self.symbols), size=self.length)
        return self.joint.join(self.symbols[symbol] for symbol in symbols)


@section
class ExposureConfig:
    """No method: exact up to `exact_up_to` candidates, extrapolated above. memory: bytes of model state at a time."""

    method: Method | None = setting(
        None, "exact, sampled or extrapolated ranks.", auto="exact where it is cheap enough"
    )
    exact_up_to: int = setting(10_000_000, "Largest number of candidates that are all scored.")
    draws: int = setting(20_000, "Candidates drawn where not all are scored.")
    memory: int = setting(1 << 30, "Bytes of model state at a time; lower it if you run out of memory.")

    def __post_init__(self) -> None:
        if self.draws < 100 or self.memory < 1:
            found = f"{self.draws} draws and {self.memory} bytes"
            raise AttackError("at least 100 draws and some memory", found, "raise the number")

    def method_for(self, size: int) -> Method:
        """The method for a space of this size."""
        if self.method is not None:
            return self.method
        return Method.EXACT if size <= self.exact_up_to else Method.EXTRAPOLATED

    def scored(self, size: int, values: int) -> int:
        """How many candidates are scored for so many values of a space of this size."""
        return size if self.method_for(size) is Method.EXACT else values + self.draws


@section
class ExtractionConfig:
    """How hard to try. discoverable: pairs (n, p)."""

    tries: int = setting(10, "Generated continuations per secret.", ge=0)
    beams: int = setting(10, "Continuations per secret that a beam search keeps.", ge=1)
    temperature: float = setting(1.0, "Temperature of the generated text.")
    discoverable: tuple[tuple[int, float], ...] = setting(
        ((1, 0.5), (100, 0.5), (10_000, 0.5)), "Pairs (n, p): extracted with chance p within n tries."
    )


@section
class ReconstructionConfig:
    """How many slots are filled, and from how many values each.

    The other values of a slot are found in the texts of `audit.sampling`.
    """

    places: int = setting(1000, "Masked slots of each side, each of another value.", ge=1)
    beams: int = setting(10, "Values per slot from a beam search.", ge=1)
    samples: int = setting(0, "Values per slot that are sampled after the text before it, besides.", ge=0)
    values: int = setting(64, "Values per slot that are ranked by the text on both sides: the likeliest ones.", ge=2)


@section
class SamplingConfig:
    """How much text is generated to look for secrets in."""

    texts: int = setting(1000, "Texts sampled freely, and as many from beginnings of records.", ge=1)
    tokens: int = setting(64, "Tokens of each sampled text.", ge=1)
    temperature: float = setting(0.7, "Temperature of the sampled texts; below 1 more memorized values come out.")
    beginning: int = setting(8, "Tokens of a record that a sampled text begins with; never a secret.", ge=1)


@section
class ParaphrasesConfig:
    """How often the prompt of a canary is said in other words, and how many values are read off each."""

    paraphrases: int = setting(20, "Other wordings of a canary's prompt.", ge=1)
    values: int = setting(100, "Most probable values read off each prompt, at most: as many as were planted.", ge=1)


FEWEST = 10  # candidates of each side


@section
class AuditConfig:
    """candidates: rows of each side; secrets: of each side, for extraction; checkpoints: whether kept models, too."""

    candidates: int = setting(500, "Records attacked on each side; raise it for narrower intervals.")
    secrets: int = setting(200, "Secrets of each side that extraction and inference try.")
    group_size: int = setting(20, "Records per group in the group attack.")
    surrogates: int = setting(5, "Invented secrets that each real one is compared with.")
    longest_prompt: int = setting(
        64, "Tokens before a secret (and after it, in reconstruction) that the attacker knows."
    )
    confidence: float = setting(0.95, "Confidence level for intervals and verdict.")
    seed: int = setting(0, "Seed of the attacks, which repeat exactly.")
    checkpoints: bool = setting(False, "Attack the models kept by `training.save_steps`, too.")
    exposure: ExposureConfig = setting(ExposureConfig, "How exposure is measured.")
    extraction: ExtractionConfig = setting(ExtractionConfig, "How hard extraction tries.")
    reconstruction: ReconstructionConfig = setting(ReconstructionConfig, "How hard reconstruction tries.")
    sampling: SamplingConfig = setting(SamplingConfig, "How much text is sampled.")
    paraphrases: ParaphrasesConfig = setting(ParaphrasesConfig, "How canaries are asked for in other words.")
    canaries: tuple[CanaryPlan, ...] | None = setting(
        None,
        "Made-up secrets to plant before training: {template: My ID is {6 digits}, count: 20}; [] plants none.",
        auto="by the number of records",
    )

    def __post_init__(self) -> None:
        if self.candidates < FEWEST:
            raise AttackError(
                expected=f"at least {FEWEST} candidates of each side",
                found=str(self.candidates),
                way_out="fewer tell nothing from chance: raise --candidates",
            )
        if not 0 < self.confidence < 1:
            raise AttackError("a confidence between 0 and 1", str(self.confidence), "such as 0.95")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise AttackError("a seed from 0 to 2^63 - 1", f"one of {self.seed.bit_length()} bits", "such as 0")
