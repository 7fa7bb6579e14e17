"""Whether two commits do the same: both train small models from one seed, and all that they write is compared.

    python benchmarks/same_as.py OLD_COMMIT [NEW_COMMIT] [--only PATTERN] [--allow PATTERN] [--tolerance X] [--keep DIR]

Both commits are checked out into temporary worktrees and driven through their command line with one thread: every
mechanism with an LSTM, a GPT and a classifier, some runs with unusual settings, an audit, a scan. Compared are weights
byte for byte, ledger, plan, guarantee, utility, tokenizer, prepared text, the numbers of the audit and the scan. One
line per case; exit code 1 on a difference. `--allow 'crt-*: prepared*'` expects a difference (any number of them);
`--only 'crt-*'` runs some cases; `--keep` keeps the results, and takes those of a commit that are there already.

What the commits call a setting, a file or a field may differ: tables in `same_as_cases.py` (SETTINGS) and
`same_as_compare.py` (FILES, KEYS, IGNORED, COLUMNS) translate.
"""

import argparse
import importlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from same_as_cases import MECHANISMS, POLICIES, REFUSED, Case, cases, translate
from same_as_compare import audit_differences, cleaned, json_differences, run_differences

PROJECT = Path(__file__).resolve().parents[1]
FAULT = 70  # the exit code of a fault in tacit itself
SHOWN = 3  # differences of a case that are printed


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    output: str
    errors: str

    @property
    def reason(self) -> str:
        """What it printed of an error, on one line."""
        return " ".join(self.errors.rpartition("expected")[2].split())[:160]


def serve(tree: Path) -> None:
    """Run commands of the tacit in `tree`: one per line of standard input, each in a fork that need not load torch."""
    module, _, name = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]["tacit"].partition(":")
    main = getattr(importlib.import_module(module), name)
    package = importlib.import_module("tacit")
    if not Path(str(package.__file__)).is_relative_to(tree):
        raise SystemExit(f"tacit was imported from {package.__file__}, not from {tree}")
    for found in pkgutil.walk_packages(package.__path__, "tacit."):
        if not found.name.endswith("__main__"):
            with suppress(ImportError):  # optional libraries
                importlib.import_module(found.name)
    for line in sys.stdin:
        arguments, place = json.loads(line)
        child = os.fork()
        if child == 0:
            _command(main, arguments, Path(place))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _command(main: Any, arguments: list[str], place: Path) -> None:  # noqa: ANN401
    """Become the command line; the output goes to files."""
    code: Any = FAULT
    for stream, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(place.with_suffix(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    sys.argv = ["tacit", *arguments]
    try:
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


class Side:
    """One commit in a worktree of its own, and what it writes."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.folder = folder
        self._tree = folder / "tree"
        folder.mkdir(parents=True, exist_ok=True)
        self.remove()
        _git("worktree", "add", "--quiet", "--detach", "--force", str(self._tree), commit)
        self.kernels = self._copy_kernels()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """The side itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, remove the worktree."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
        self.remove()

    def remove(self) -> None:
        """Remove the worktree, if there is one."""
        if self._tree.exists():
            _git("worktree", "remove", "--force", str(self._tree))

    def _copy_kernels(self) -> bool:
        """Put the kernels that were built in this checkout beside their source, if their source is the same."""
        built = next((PROJECT / "src").glob("**/_kernels*.so"), None)
        here = next((PROJECT / "src").glob("**/kernels.cpp"), None)
        there = next((self._tree / "src").glob("**/kernels.cpp"), None)
        if built is None or here is None or there is None or here.read_bytes() != there.read_bytes():
            return False
        shutil.copy(built, there.parent)
        return True

    def tacit(self, name: str, *arguments: str) -> Outcome:
        """What the command does; `name` is that of its files. One that was run before is not run again."""
        place = self.folder / "commands" / name
        place.parent.mkdir(exist_ok=True)
        done = place.with_suffix(".json")
        if not done.exists() or json.loads(done.read_text())["arguments"] != list(arguments):
            self._forget(self.run(name))
            code = self._served(list(arguments), place)
            done.write_text(json.dumps({"arguments": list(arguments), "code": code}))
        code = json.loads(done.read_text())["code"]
        return Outcome(code, place.with_suffix(".out").read_text(), place.with_suffix(".err").read_text())

    def _forget(self, run: Path) -> None:
        """Remove a run, and have commands that used it run again."""
        shutil.rmtree(run, ignore_errors=True)
        for done in (self.folder / "commands").glob("*.json"):
            if str(run) in json.loads(done.read_text())["arguments"]:
                done.unlink()

    def run(self, name: str) -> Path:
        """The run folder of a case."""
        return self.folder / "runs" / name

    def _served(self, arguments: list[str], place: Path) -> int:
        if self._process is None:
            wanted = {"PYTHONPATH": str(self._tree / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--serve", str(self._tree)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self.folder,
                env={**os.environ, **wanted, "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([arguments, str(place)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"tacit of {self.folder.name} does not start")
        return int(answer)

    def known_settings(self, corpus: Path) -> set[str]:
        """The names of settings that this side shows, sections included."""
        shown = self.tacit("config", "config", str(corpus), "--mechanism", "plain")
        flags = self.tacit("plan-help", "plan", "--help")
        if shown.code or flags.code:
            raise SystemExit(f"{self.folder.name} does not show its settings: {shown.reason}{flags.reason}")
        words = re.findall(r"--([a-z][a-z-]+)", flags.output)
        return {*_paths(yaml.safe_load(shown.output)), *(f"plan.{word.replace('-', '_')}" for word in words)}

    def mechanisms(self) -> set[str]:
        """The names in the registry."""
        listed = self.tacit("plan-list", "plan", "--list").output
        return set(re.findall(r"^([a-z][a-z-]*)\s{2,}", listed, re.MULTILINE)) - {"mechanism"}


def _git(*arguments: str) -> str:
    answer = subprocess.run(["git", "-C", str(PROJECT), *arguments], check=True, capture_output=True, text=True)
    return answer.stdout.strip()


def _paths(content: object, path: str = "") -> Iterator[str]:
    """Every field of a mapping, dotted."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield f"{path}{key}"
            yield from _paths(value, f"{path}{key}.")


def refusal(old: Outcome, new: Outcome, may_refuse: bool) -> str:
    """What to report of a case that not both sides trained: a difference, or nothing."""
    if FAULT in (old.code, new.code) or old.code != new.code:
        return f"ends with {old.code} in old, {new.code} in new: {(new if new.code else old).reason}"
    return "" if may_refuse else f"is refused by both, and should be trained: {old.reason}"


@dataclass(slots=True)
class Comparison:
    """Two sides, and what was found so far."""

    old: Side
    new: Side
    tolerance: float
    allowed: list[str]
    differing: list[str] = field(default_factory=list)

    def report(self, name: str, found: list[str], otherwise: str = "equal") -> None:
        """Print the line of a case."""
        unexpected = [one for one in found if not any(fnmatch(f"{name}: {one}", pattern) for pattern in self.allowed)]
        if unexpected:
            self.differing.append(name)
            more = f"; and {len(unexpected) - SHOWN} more" if len(unexpected) > SHOWN else ""
            otherwise = f"DIFFERS: {'; '.join(unexpected[:SHOWN])}{more}"
        elif found:
            otherwise = f"differs as allowed, in {len(found)} places"
        print(f"{name}: {otherwise}", flush=True)

    def corpus(self) -> Path:
        """Simulated dialogs, written by the old side, with labels; and policies beside them."""
        folder = self.old.folder / "corpus"
        folder.mkdir(exist_ok=True)
        for name, missed in POLICIES.items():
            policy = f"policy: {{forgetful: {{policy: gold, miss_rate: {missed}, seed: 1}}}}"
            (folder / name).write_text(policy)
        written = folder / "simulated.jsonl"
        made = self.old.tacit("simulate", "simulate", "customersim", "--dialogs", "60", "--out", str(written))
        if made.code:
            raise SystemExit(f"no corpus: {made.reason}")
        records = [json.loads(line) for line in written.read_text().splitlines()]
        labeled = [{**record, "label": ("even", "odd")[at % 2]} for at, record in enumerate(records)]
        (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in labeled))
        return folder / "corpus.jsonl"

    def registry(self) -> None:
        """Report mechanisms that one side alone has, or that have no case here."""
        old, new = self.old.mechanisms(), self.new.mechanisms()
        found = [f"{name} in {'old' if name in old else 'new'} alone" for name in sorted(old ^ new)]
        self.report("mechanisms", found + [f"{name} has no case" for name in sorted((old & new) - {*MECHANISMS})])

    def case(self, case: Case, corpus: Path, known: tuple[set[str], set[str]]) -> None:
        """Train on both sides and report."""
        old, new = (
            side.tacit(case.name, *_train(case, corpus, side.run(case.name), names))
            for side, names in zip((self.old, self.new), known, strict=True)
        )
        if old.code or new.code:
            found = refusal(old, new, case.name in REFUSED)
            self.report(case.name, [found] if found else [], f"refused alike: {old.reason}")
            return
        folders = self.old.run(case.name), self.new.run(case.name)
        self.report(case.name, list(run_differences(*folders, self.tolerance)))
        if case.audited:
            codes = [side.tacit("audit", "audit", str(side.run(case.name))).code for side in (self.old, self.new)]
            found_in = list(audit_differences(*folders))
            self.report("audit", found_in if codes[0] == codes[1] else [f"exit codes {codes}", *found_in])

    def scan(self, corpus: Path) -> None:
        """Scan with the policy `pii` on both sides and report."""
        old, new = (
            side.tacit("scan", "scan", str(corpus), "--policy", "pii", "--json", "--out", str(side.folder / "scan"))
            for side in (self.old, self.new)
        )
        if old.code or new.code:
            self.report("scan", [refusal(old, new, may_refuse=False)])
        else:
            self.report("scan", list(json_differences(*(cleaned(json.loads(one.output)) for one in (old, new)))))


def _train(case: Case, corpus: Path, out: Path, known: set[str]) -> list[str]:
    words = ["train", str(corpus), "--mechanism", case.mechanism, "--seed", "5", "--out", str(out)]
    for name, value in case.settings.items():
        chosen = str(corpus.parent / value) if value in POLICIES else value
        words += ["--set", f"{translate(name, known)}={chosen}"]
    return words


def main() -> None:
    """Compare two commits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="commit that is right")
    parser.add_argument("new", nargs="?", default="HEAD", help="commit to compare with it (default: HEAD)")
    parser.add_argument("--only", default="*", help="cases to run, as a pattern")
    parser.add_argument("--allow", action="append", default=[], help="differences to expect: 'CASE: PART: PLACE'")
    parser.add_argument("--tolerance", type=float, default=0.0, help="largest difference of weights and numbers")
    parser.add_argument("--keep", type=Path, help="folder for the results; what is there is not computed again")
    asked = parser.parse_args()
    with ExitStack() as stack:
        work = (asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        commits = [_git("rev-parse", "--verify", f"{one}^{{commit}}") for one in (asked.old, asked.new)]
        old, new = (
            stack.enter_context(Side(commit, work / f"{role}-{commit[:12]}"))
            for role, commit in zip(("old", "new"), commits, strict=True)
        )
        differing = compare(Comparison(old, new, asked.tolerance, asked.allow), asked.only)
    raise SystemExit(1 if differing else 0)


def compare(comparison: Comparison, only: str) -> list[str]:
    """Every case that `only` names; which of them differ."""
    old, new = comparison.old, comparison.new
    print(f"native kernels: old {'yes' if old.kernels else 'no'}, new {'yes' if new.kernels else 'no'}", flush=True)
    corpus = comparison.corpus()
    known = old.known_settings(corpus), new.known_settings(corpus)
    comparison.registry()
    for case in cases():
        if fnmatch(case.name, only):
            comparison.case(case, corpus, known)
    comparison.scan(corpus)
    print(f"differing: {', '.join(comparison.differing) or 'none'}")
    return comparison.differing


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
    else:
        main()
