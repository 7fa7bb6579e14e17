"""The map phi from the words of a person: which ways to paraphrase, and how alike they must stay.

Round trips go through commands, `apertium -u eng-spa | apertium -u spa-eng`, one text a line and without a shell; or
through sequence-to-sequence models of Hugging Face, from local folders, which may paraphrase by themselves too.
"""

import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.detecting.paraphrase import Phi, SameMeaning, Way
from tacit.detecting.rewording import Rewording
from tacit.errors import ConfigError
from tacit.pretrained import from_folder, tokenizer_of

Paraphrases = Callable[[Sequence[str]], Sequence[Sequence[str]]]
_SECONDS_A_PROGRAM = 600
_ROWS_A_BATCH = 16
_LONGEST_SAID = 96


def phi_of(
    reword: bool = True,
    round_trips: Sequence[str] = (),
    sequence_models: Sequence[str] = (),
    same_meaning: Path | None = None,
    alike: float = 0.5,
    most: int = 400,
) -> Phi:
    """All ways that were asked for.

    round_trips: commands with | between them. sequence_models: a folder each, or two with a comma between them, there
    and back.
    """
    ways: list[Way] = [Rewording()] if reword else []
    ways += [RoundTrip.parse(words) for words in round_trips]
    ways += [Sequence2Sequence(tuple(Path(one.strip()) for one in words.split(","))) for words in sequence_models]
    if not ways:
        raise ConfigError(
            expected="at least one way of paraphrasing",
            found="none",
            way_out="leave --no-reword out, or name a round trip or a model",
        )
    return Phi(tuple(ways), most, None if same_meaning is None else SameMeaning(same_meaning), alike)


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
        """From what a person writes; | (even in quotes) parts two programs, and nothing else of a shell is known."""
        lexer = shlex.shlex(words, posix=True, punctuation_chars="|")
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            parts = list(lexer)
        except ValueError as error:
            raise ConfigError("a command with its quotes closed", str(error), "correct the command") from error
        programs: list[list[str]] = [[]]
        for part in parts:
            if part == "|":
                programs.append([])
            else:
                programs[-1].append(part)
        return cls(tuple(tuple(program) for program in programs))

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        """One paraphrase a text."""
        lines = [" ".join(text.split()) for text in texts]
        for program in self.programs:
            lines = self._through(program, lines)
        return [[line] for line in lines]

    def described(self) -> dict[str, Any]:
        """The programs and their arguments."""
        return {"way": "round trip", "programs": [list(program) for program in self.programs]}

    def _through(self, program: tuple[str, ...], lines: list[str]) -> list[str]:
        if not lines:
            return []
        content = ("\n".join(lines) + "\n").encode("utf-8", "replace")
        try:
            done = subprocess.run(program, input=content, capture_output=True, timeout=_SECONDS_A_PROGRAM, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(
                expected=f"a program that translates lines: {program[0]}",
                found=_trouble(error),
                way_out="install it, or check its name, its arguments and what it says of itself",
            ) from error
        out = done.stdout.decode("utf-8", "replace").removesuffix("\n").split("\n")
        if len(out) != len(lines):
            raise ConfigError(
                expected=f"as many lines from {program[0]} as it was given: {len(lines)}",
                found=str(len(out)),
                way_out="use a program, or an option of it, that keeps lines apart",
            )
        return [line.strip() for line in out]


def _trouble(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"it ended with {error.returncode}"
    return "none of that name" if isinstance(error, FileNotFoundError) else type(error).__name__


@dataclass(frozen=True, slots=True)
class Sequence2Sequence:
    """One folder that paraphrases, or two that translate there and back; `prefix` is put before each text.

    beams: how many paraphrases of a text the last model gives.
    """

    folders: tuple[Path, ...]
    prefix: str = ""
    beams: int = 4

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        """The best beams of each text: nothing is drawn."""
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
        """The names of the folders."""
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
