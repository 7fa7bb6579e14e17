"""The semantic-invariant map phi: ways of paraphrasing, joined, without duplicates and checked for their meaning.

    phi = ParaphraseFunction((Rewording(), RoundTrip.parse("apertium -u eng-spa | apertium -u spa-eng")))
    phi.paraphrases(["My bank security code is"], seed=0)

Round trips go through commands, one text per line and without a shell; or through sequence-to-sequence models of
Hugging Face, from local folders, which may also paraphrase by themselves.

G1 (one result). The same prompts, ways and seed give the same paraphrases, if the ways themselves do.
G2 (apart). No paraphrase of a prompt reads the same as another of it, as a detector reads it.
G3 (own). What is given for a prompt does not depend on the other prompts.
"""

import random
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from tacit.common.libraries import from_folder, tokenizer_of
from tacit.errors import ConfigError
from tacit.policies.detectors.encoder import states_of
from tacit.policies.detectors.linear import masked
from tacit.policies.detectors.rewording import Rewording, rng_for

_FED_ON = 40  # of what earlier ways gave, a later way rewords this many too
_SECONDS_A_PROGRAM = 600
_ROWS_A_BATCH = 16
_LONGEST_SAID = 96
Paraphrases = Callable[[Sequence[str]], Sequence[Sequence[str]]]


class ParaphraseWay(Protocol):
    """One way of saying the same."""

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        """For each text what means the same, by itself; nothing where it knows nothing."""

    def described(self) -> dict[str, Any]:
        """What it is, for the detector's card: JSON."""


@dataclass(frozen=True, slots=True)
class SameMeaning:
    """Whether a paraphrase still means the same: the cosine between the mean states of an encoder.

    folder: an encoder's folder (config.json, tokenizer.json, safetensors), such as a sentence encoder's.
    """

    folder: Path

    def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
        states = states_of(self.folder, [text, *others])
        likeness: list[float] = (states[1:] @ states[0]).tolist()
        return likeness

    def described(self) -> dict[str, Any]:
        return {"encoder": self.folder.name}


@dataclass(frozen=True, slots=True)
class ParaphraseFunction:
    """Several ways, one after the other: a later one also rewords some of what the earlier ones gave.

    most: how many paraphrases a prompt has at most; drawn at random where there are more.
    meaning, alike: a paraphrase is kept only if its likeness to the prompt is at least `alike`.
    """

    ways: tuple[ParaphraseWay, ...]
    most: int = 400
    meaning: SameMeaning | None = None
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
                tidy = [" ".join(one.split()) for _ in texts for one in next(place)]
                for text, line in zip(tidy, masked(tidy), strict=True):
                    if line:  # and it reads differently from all that are known
                        known.setdefault(line, text)
        return [self._kept(list(known.values()), rng) for known, rng in zip(said, rngs, strict=True)]

    def _kept(self, texts: list[str], rng: random.Random) -> list[str]:
        prompt, *others = texts
        if self.meaning is not None and others:
            alike = self.meaning.likeness(prompt, others)
            others = [text for text, share in zip(others, alike, strict=True) if share >= self.alike]
        return _drawn([prompt, *others], self.most, rng)

    def described(self) -> dict[str, Any]:
        meaning = None if self.meaning is None else {**self.meaning.described(), "at_least": self.alike}
        return {"ways": [way.described() for way in self.ways], "most": self.most, "meaning": meaning}


def _drawn(texts: list[str], most: int, rng: random.Random) -> list[str]:
    """At most so many, the first always, in their order."""
    if len(texts) <= most:
        return texts
    chosen = sorted(rng.sample(range(1, len(texts)), most - 1))
    return [texts[0], *(texts[place] for place in chosen)]


def phi_of(
    reword: bool = True,
    round_trips: Sequence[str] = (),
    sequence_models: Sequence[str] = (),
    same_meaning: Path | None = None,
    alike: float = 0.5,
    most: int = 400,
) -> ParaphraseFunction:
    """All ways that were asked for.

    round_trips: commands with | between them. sequence_models: a folder each, or two with a comma between them, there
    and back.
    """
    ways: list[ParaphraseWay] = [Rewording()] if reword else []
    ways += [RoundTrip.parse(words) for words in round_trips]
    ways += [Sequence2Sequence(tuple(Path(one.strip()) for one in words.split(","))) for words in sequence_models]
    if not ways:
        raise ConfigError(
            expected="at least one way of paraphrasing",
            found="none",
            way_out="leave --no-reword out, or name a round trip or a model",
        )
    return ParaphraseFunction(tuple(ways), most, None if same_meaning is None else SameMeaning(same_meaning), alike)


def paraphrases_by(reword: bool, round_trips: Sequence[str], most: int) -> Paraphrases | None:
    """At most `most` paraphrases for each of some texts, not the texts themselves; None when no way is asked for."""
    if not reword and not round_trips:
        return None
    phi = phi_of(reword, round_trips, most=most + 1)
    return lambda texts: [said[1:] for said in phi.paraphrases(texts, seed=0)]  # the first is the text itself


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Programs, each with its arguments, through which texts go one after the other; each keeps the lines apart."""

    programs: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.programs or not all(self.programs):
            raise ConfigError(
                expected="one or more programs with | between them", found="an empty one", way_out="name them all"
            )

    @classmethod
    def parse(cls, words: str) -> "RoundTrip":
        """From a command line; | (even in quotes) separates two programs, and no other shell syntax is known."""
        lexer = shlex.shlex(words, posix=True, punctuation_chars="|")
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            parts = list(lexer)
        except ValueError as error:
            raise ConfigError("a command with its quotes closed", str(error), "correct the command") from error
        bars = [-1, *(place for place, part in enumerate(parts) if part == "|"), len(parts)]
        return cls(tuple(tuple(parts[left + 1 : right]) for left, right in pairwise(bars)))

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        lines = [" ".join(text.split()) for text in texts]
        for program in self.programs:
            lines = self._through(program, lines)
        return [[line] for line in lines]

    def described(self) -> dict[str, Any]:
        return {"way": "round trip", "programs": [list(program) for program in self.programs]}

    def _through(self, program: tuple[str, ...], lines: list[str]) -> list[str]:
        if not lines:
            return []
        content = ("\n".join(lines) + "\n").encode("utf-8", "replace")
        try:
            done = subprocess.run(program, input=content, capture_output=True, timeout=_SECONDS_A_PROGRAM, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            code = getattr(error, "returncode", None)
            missing = "none of that name" if isinstance(error, FileNotFoundError) else type(error).__name__
            raise ConfigError(
                expected=f"a program that translates lines: {program[0]}",
                found=missing if code is None else f"it ended with {code}",
                way_out="install it, or check its name, its arguments and its own messages",
            ) from error
        out = done.stdout.decode("utf-8", "replace").removesuffix("\n").split("\n")
        if len(out) != len(lines):
            raise ConfigError(
                expected=f"as many lines from {program[0]} as it was given: {len(lines)}",
                found=str(len(out)),
                way_out="use a program, or an option of it, that keeps lines apart",
            )
        return [line.strip() for line in out]


@dataclass(frozen=True, slots=True)
class Sequence2Sequence:
    """One folder that paraphrases, or two that translate there and back; `prefix` is put before each text.

    beams: how many paraphrases of a text the last model gives, the most probable ones: nothing is drawn.
    """

    folders: tuple[Path, ...]
    prefix: str = ""
    beams: int = 4

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        now = [[text] for text in texts]
        for number, folder in enumerate(self.folders):
            beams = self.beams if number == len(self.folders) - 1 else 1
            spoken = [place for place, row in enumerate(now) if row[0].strip()]  # a model may have said nothing
            given = _generated(folder, [self.prefix + now[place][0] for place in spoken], beams)
            now = [[""]] * len(now)
            for place, said in zip(spoken, given, strict=True):
                now[place] = said
        return now

    def described(self) -> dict[str, Any]:
        names = [folder.name for folder in self.folders]
        return {"way": "sequence to sequence", "models": names, "prefix": self.prefix, "beams": self.beams}


def _generated(folder: Path, texts: Sequence[str], beams: int) -> list[list[str]]:
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model, tokenizer = from_folder(AutoModelForSeq2SeqLM, folder), tokenizer_of(folder)
    said: list[list[str]] = []
    with torch.inference_mode():
        for first in range(0, len(texts), _ROWS_A_BATCH):
            batch = tokenizer(
                list(texts[first : first + _ROWS_A_BATCH]), return_tensors="pt", padding=True, truncation=True
            )
            out = model.eval().generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=_LONGEST_SAID,
                do_sample=False,
                num_beams=beams,
                num_return_sequences=beams,
            )
            words = tokenizer.batch_decode(out, skip_special_tokens=True)
            said += [words[at : at + beams] for at in range(0, len(words), beams)]
    return said
