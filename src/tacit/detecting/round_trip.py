"""Round-trip translation by commands: `apertium -u eng-spa | apertium -u spa-eng`, one text a line, without a shell."""

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.errors import ConfigError

_SECONDS = 600


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
            done = subprocess.run(program, input=content, capture_output=True, timeout=_SECONDS, check=True)
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
