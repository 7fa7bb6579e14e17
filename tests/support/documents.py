"""What the tests of documents share: fenced blocks, command lines, and small runs of what a document says.

Rules, for README.md and docs/*.md but docs/results.md:

- Blocks run in order, in one temporary folder a document. A language that is not named here is a failure.
- `python`: run, in one namespace a document. After a line `<!-- slow -->` in the long test alone.
- `yaml`: read by the reader that its top key belongs to: `policy`, `plan`, or the settings of an experiment (in which
  a corpus need not exist). After a line `<!-- file: NAME -->` it is also written to that file.
- `jsonl`, `text`: written to the file that `<!-- file: NAME -->` names; or, after `<!-- folder: NAME -->`, a list of
  files that must be in that folder after the long test, a first word a line.
- `sh`: a command a line (`\\` goes on), `#` begins a comment. `console`: commands after `$ `, below each what it
  prints: white space does not count, `[...]` stands for anything. A shown error (`expected`) must come.
- Commands: `tacit` is run in this process; `make TARGET` must be in the Makefile; `python FILE` and `pytest FILE` name
  files of this project, which other tests run; `source .venv/bin/activate` is taken for done.
- In the short test SLOW_VERBS are only read: their options exist and, for `train`, the settings are good. Of README.md
  only `quickstart` is.
- After a line `<!-- needs: NAME -->` a block is carried out where NAME is there: `spacy`, a pipeline that is installed
  (TACIT_SPACY names it then: nobody has to install one to pass the tests); any other, a file or folder that one of
  SLOW_VERBS makes. Elsewhere it is only read. A test without a pipeline plays the rest, and then is skipped.
- For speed, and nothing else, numbers are made smaller: those of SMALLER, and for a new LSTM LESS of everything.
"""

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer.main
import yaml
from typer.core import TyperCommand, TyperGroup

from tacit.api import five_ways as quick
from tacit.cli.main import app, main
from tacit.config.load import check_used, load_config
from tacit.errors import TacitError
from tacit.mechanisms.build import plan
from tacit.policies.registry import build_policy

ROOT = Path(__file__).parents[2]
SLOW_VERBS = {"train", "audit", "report", "generate", "quickstart", "sweep"}
SMALLER = {"--dialogs": 80, "--epochs": 1, "--expected-batch-size": 16, "--candidates": 10}
FEWER_LABELS = 40  # records of `tacit label draw`
LESS_PREPARED = ("held_out=0.3", "max_tokens=64")
LESS = (*LESS_PREPARED, "max_full_tokens=64", "hidden_size=8", "embedding_size=8")
LESS_PLAN = ("plan.public_epochs=1",)
ACTIVATE = ["source", ".venv/bin/activate"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (\w+)(?:: (\S+))? -->\n\Z")


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is the comment on the line before it."""

    language: str
    text: str
    line: int
    mark: str | None = None
    name: str | None = None


def blocks(document: str) -> list[Block]:
    """The fenced blocks, in order; the README's tree, which has a test of its own, is none."""
    parts = document.split("<!-- tree -->")
    document = "\n".join((parts[0], *parts[2:]))
    found = []
    for match in _FENCE.finditer(document):
        mark = _MARK.search(document[: match.start()])
        line = document[: match.start()].count("\n") + 1
        found.append(Block(match[1], match[2], line, *(mark.groups() if mark else (None, None))))
    assert document.count("```") == 2 * len(found), "a fence that does not end, or is indented"
    return found


@dataclass
class Command:
    """A command line, and what the document says that it prints."""

    words: list[str]
    shown: str = ""


def commands(block: Block) -> list[Command]:
    """The commands of a `sh` or `console` block."""
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "sh" or line.startswith("$ "):
            words = shlex.split(line.removeprefix("$ "), comments=True)
            found += [Command(words)] if words else []
        else:
            assert found, f"line {block.line}: output before the first command"
            found[-1].shown += line + "\n"
    return found


def verb_of(words: list[str]) -> tuple[TyperCommand, list[str]]:
    """The command of the command line that `tacit WORDS` asks for, and the words that are left for it."""
    at: Any = typer.main.get_command(app)
    rest = words
    while isinstance(at, TyperGroup) and rest and not rest[0].startswith("-"):
        assert rest[0] in at.commands, f"no verb tacit {rest[0]}"
        at, rest = at.commands[rest[0]], rest[1:]
    return at, rest


def check_words(words: list[str]) -> None:
    """Refuse options that `tacit` does not know, and values of the wrong type; nothing is run."""
    verb, rest = verb_of(words)
    verb.make_context("tacit", list(rest), resilient_parsing=False).close()


@dataclass
class Played:
    """A document that is carried out in `folder`."""

    name: str
    long: bool
    folder: Path
    pipeline: str | None = None
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "document"})
    unplayed: list[int] = field(default_factory=list)
    """Lines of blocks that were only read, for want of a pipeline."""

    def play(self, block: Block) -> None:
        """One block, by the rules above."""
        if block.mark == "needs" and not self._is_there(block):
            only_read(block)
        elif block.language == "python":
            if self.long or block.mark != "slow":
                exec(compile(block.text, f"{self.name}:{block.line}", "exec"), self.namespace)
        elif block.language == "yaml":
            self._read_yaml(block)
        elif block.language in ("jsonl", "text"):
            self._keep(block)
        elif block.language in ("sh", "console"):
            for command in commands(block):
                self._command(command)
        else:
            pytest.fail(f"{self.name}:{block.line}: no rule for a block of language {block.language!r}")

    def _is_there(self, block: Block) -> bool:
        """Whether what a block needs is there; in the long test a file must be."""
        assert block.name is not None
        if block.name == "spacy":
            self.unplayed += [] if self.pipeline else [block.line]
            return self.pipeline is not None
        there = (self.folder / block.name).exists()
        assert there or not self.long, f"{self.name}:{block.line}: no {block.name}"
        return there

    def _keep(self, block: Block) -> None:
        assert block.mark in ("file", "folder"), f"{self.name}:{block.line}: say what it is: <!-- file: NAME -->"
        assert block.name is not None
        place = self.folder / block.name
        if block.mark == "file":
            place.write_text(block.text, encoding="utf-8")
        elif self.long:
            listed = [line.split()[0] for line in block.text.splitlines() if line.strip()]
            missing = [name for name in listed if not (place / name).exists()]
            assert not missing, f"{self.name}:{block.line}: not in {block.name}: {missing}"

    def _read_yaml(self, block: Block) -> None:
        if block.mark == "file" and block.name is not None:
            (self.folder / block.name).write_text(block.text, encoding="utf-8")
        content = yaml.safe_load(block.text)
        if set(content) == {"policy"}:
            build_policy(content["policy"], self.folder)
        elif set(content) == {"plan"}:
            plan(content["plan"])
        else:
            check_used(load_config({"corpus": "c.jsonl", "plan.mechanism": "plain"}, content))

    def _command(self, command: Command) -> None:
        words = command.words
        if words[0] == "make":
            for target in words[1:]:
                assert re.search(f"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
        elif words[0] in ("python", "pytest"):
            check_file(words)
        elif words != ACTIVATE:
            assert words[0] == "tacit", f"{self.name}: no rule for the command {words[0]!r}"
            self._tacit(command)

    def _tacit(self, command: Command) -> None:
        words = command.words[1:]
        check_words(words)
        unread = {"quickstart"} if self.name == "README.md" else SLOW_VERBS
        if words[0] in unread and not self.long:
            if words[0] != "train" or "--resume" in words:
                return
            words = ["config", *_without(words[1:], "--out")]
        expects_error = re.search(r"^ *expected ", command.shown, re.MULTILINE) is not None
        code, said = run(smaller(words))
        assert code == (2 if expects_error else 0), f"{self.name}: tacit {shlex.join(words)}: exit {code}\n{said}"
        check_shown(command.shown, said)


def only_read(block: Block) -> None:
    """A block that cannot be carried out here: its commands exist, its YAML and its Python can be read."""
    if block.language == "yaml":
        assert isinstance(yaml.safe_load(block.text), dict)
    elif block.language == "python":
        compile(block.text, "document", "exec")
    else:
        for command in commands(block):
            assert command.words[0] == "tacit", f"line {block.line}: no rule to read the command {command.words[0]!r}"
            check_words(command.words[1:])


def _without(words: list[str], option: str) -> list[str]:
    """`words` without an option and its value."""
    at = words.index(option) if option in words else len(words)
    return words[:at] + words[at + 2 :]


def check_file(words: list[str]) -> None:
    """`python FILE` and `pytest FILE`: the files are there."""
    files = [word for word in words[1:] if word.endswith(".py")]
    assert files, f"no file in {shlex.join(words)}"
    for file in files:
        assert (ROOT / file).is_file(), f"no file {file}"


def smaller(words: list[str]) -> list[str]:
    """The same command with less work (see the module's docstring)."""
    less = list(words)
    for option, most in SMALLER.items():
        if option in less and less[0] != "plan":
            at = less.index(option) + 1
            with contextlib.suppress(ValueError):
                less[at] = f"{min(float(less[at]), most):g}"
    if less[:2] == ["label", "draw"]:
        less += [] if "--records" in less else ["--records", str(FEWER_LABELS)]
    if less[0] == "prepare":
        less += [word for setting in LESS_PREPARED for word in ("--set", setting)]
    if less[0] == "train" and "--model" not in less and "--resume" not in less:
        without_public = {"dpsgd", "user", "uedp", "user-level"} & set(less) or any("published" in one for one in less)
        for setting in (*LESS, *(() if without_public else LESS_PLAN)):
            less += ["--set", setting]
    return less


def run(words: list[str]) -> tuple[int, str]:
    """The exit code of `tacit WORDS` in this process, and what it prints on both streams."""
    said = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["tacit", *words]),
        mock.patch.object(quick, "DIALOGS", 12),
        mock.patch.dict(quick.SHARED, {"model_config": {"embedding_size": 8, "hidden_size": 8, "dropout": 0.0}}),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
        except TacitError as error:
            return 2, str(error)
    return 0, said.getvalue()


def check_shown(shown: str, said: str) -> None:
    """What the document shows stands in what was printed; `[...]` is anything, white space does not count."""
    rest = " ".join(said.split())
    for piece in shown.split("[...]"):
        wanted = " ".join(piece.split())
        assert wanted in rest, f"not printed: {wanted!r}\nprinted: {said}"
        rest = rest[rest.index(wanted) + len(wanted) :]


def shell_lines(text: str) -> Iterator[list[str]]:
    """The simple commands of a script of `docs/results.md`: variables replaced, here-documents passed over."""
    variables: dict[str, str] = {}
    text = re.sub(r"<<(\w+)\n.*?^\1$", "", text.replace("\\\n", " "), flags=re.MULTILINE | re.DOTALL)
    for line in text.splitlines():
        line = re.sub(r"\$(\w+)", lambda match: variables.get(match[1], match[0]), line)
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|>&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";|&"):
                words = words[1:] if words[:1] == ["do"] else words
                if words and "=" in words[0]:
                    assigned, _, value = words[0].partition("=")
                    if len(words) == 1:
                        variables[assigned] = value
                    words = words[1:]
                if words:
                    yield words[: words.index(">")] if ">" in words else words
                words = []
            else:
                words.append(word)
