"""The semantic-invariant map phi: ways of saying the same, joined, de-duplicated and checked for their meaning.

    phi = Phi((Rewording(), RoundTrip.parse("apertium -u eng-spa | apertium -u spa-eng")))
    phi.paraphrases(["My bank security code is"], seed=0)

G1 (one result). The same prompts, ways and seed give the same paraphrases, if the ways themselves do.
G2 (apart). No paraphrase of a prompt reads the same as another of it, as a detector reads it.
G3 (own). What is given for a prompt does not depend on the other prompts.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tacit.errors import ConfigError
from tacit.policy.detector.encoder import states_of
from tacit.policy.detector.features import masked

_FED_ON = 40  # of what earlier ways gave, a later way rewords this many too


class Way(Protocol):
    """One way of saying the same."""

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        """For each text what means the same, by itself; nothing where it knows nothing."""

    def described(self) -> dict[str, Any]:
        """What it is, for the detector's card: JSON."""


class Meaning(Protocol):
    """Says how alike texts are to one text."""

    def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
        """From -1 to 1, for each of `others`."""

    def described(self) -> dict[str, Any]:
        """What it is, for the detector's card: JSON."""


@dataclass(frozen=True, slots=True)
class Phi:
    """Several ways, one after the other: a later one also rewords some of what the earlier ones gave.

    most: how many paraphrases a prompt has at most; drawn at random where there are more.
    meaning, alike: a paraphrase is kept only if its likeness to the prompt is at least `alike`.
    """

    ways: tuple[Way, ...]
    most: int = 400
    meaning: Meaning | None = None
    alike: float = 0.5

    def __post_init__(self) -> None:
        if self.most < 1 or not -1 <= self.alike <= 1:
            raise ConfigError(
                expected="1 paraphrase or more, and a likeness from -1 to 1",
                found=f"{self.most} and {self.alike}",
                way_out="correct the number",
            )

    def paraphrases(self, prompts: Sequence[str], seed: int) -> list[list[str]]:
        """For each prompt its paraphrases, the prompt itself first."""
        rngs = [rng_for(seed, prompt) for prompt in prompts]
        said: list[dict[str, str]] = [{masked([prompt])[0]: prompt} for prompt in prompts]
        for way in self.ways:
            fed = [_drawn(list(texts.values()), _FED_ON, rng) for texts, rng in zip(said, rngs, strict=True)]
            place = iter(way.say([text for texts in fed for text in texts], seed))
            for texts, known in zip(fed, said, strict=True):
                _add(known, [one for _ in texts for one in next(place)])
        return [self._kept(list(known.values()), rng) for known, rng in zip(said, rngs, strict=True)]

    def _kept(self, texts: list[str], rng: random.Random) -> list[str]:
        prompt, others = texts[0], texts[1:]
        if self.meaning is not None and others:
            alike = self.meaning.likeness(prompt, others)
            others = [text for text, share in zip(others, alike, strict=True) if share >= self.alike]
        return [prompt, *_drawn([prompt, *others], self.most, rng)[1:]]

    def described(self) -> dict[str, Any]:
        """All of it, for the detector's card."""
        meaning = None if self.meaning is None else {**self.meaning.described(), "at_least": self.alike}
        return {"ways": [way.described() for way in self.ways], "most": self.most, "meaning": meaning}


def _add(known: dict[str, str], texts: Sequence[str]) -> None:
    """Those that read differently from all that are known."""
    tidy = [" ".join(text.split()) for text in texts]
    for text, line in zip(tidy, masked(tidy), strict=True):
        if line:
            known.setdefault(line, text)


def _drawn(texts: list[str], most: int, rng: random.Random) -> list[str]:
    """At most so many, the first always, in their order."""
    if len(texts) <= most:
        return texts
    chosen = sorted(rng.sample(range(1, len(texts)), most - 1))
    return [texts[0], *(texts[place] for place in chosen)]


def rng_for(seed: int, text: str) -> random.Random:
    """Randomness that depends on the seed and one text."""
    key = f"{seed}\0{text}".encode("utf-8", "surrogatepass")
    return random.Random(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big"))


@dataclass(frozen=True, slots=True)
class SameMeaning:
    """Whether a paraphrase still means the same: the cosine between the mean states of an encoder.

    folder: an encoder's folder (config.json, tokenizer.json, safetensors), such as a sentence encoder's.
    """

    folder: Path

    def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
        """The cosine of each of `others` with `text`."""
        states = states_of(self.folder, [text, *others])
        likeness: list[float] = (states[1:] @ states[0]).tolist()
        return likeness

    def described(self) -> dict[str, Any]:
        """Which encoder."""
        return {"encoder": self.folder.name}
