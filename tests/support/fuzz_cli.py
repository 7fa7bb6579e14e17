"""The fuzzer of the command line: many hostile cases through its entry point, in one process as long as it lives.

    python tests/support/fuzz_cli.py CASES [FIRST_SEED]        counts, and the seeds of what went wrong
    python tests/support/fuzz_cli.py --one SEED                one case, with its command and its traceback

A case is clean when it ends with success, or with exit code 1 or 2 and a sentence. What the last-resort handler of the
command line catches (exit code 70) counts as a traceback, an end of the process as a crash, and more than 20 seconds
of the processor or 90 of the clock as a hang. Where the records of a corpus can be counted, those that a scan read and
those that it set aside must be all of them.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fuzz_cases import Case, case

SECONDS_OF_PROCESSOR = 20
SECONDS_OF_CLOCK = 90
CLEAN = ("success", "clean error")


class Hang(BaseException):
    """A case took too long."""


@dataclass
class Counts:
    """What became of cases, and the seeds of those that are not clean."""

    found: Counter[str] = field(default_factory=Counter)
    bad: list[tuple[int, str]] = field(default_factory=list)

    def __str__(self) -> str:
        names = ("success", "clean error", "traceback", "crash", "hang", "lost records")
        counts = ", ".join(f"{name} {self.found[name]:,}" for name in names)
        lines = [f"tried {self.found.total():,}: {counts}", *(f"  seed {seed}: {what}" for seed, what in self.bad[:40])]
        return "\n".join(lines)


def fuzz(cases: int, first: int, base: Path) -> Counts:
    """Run cases with the seeds from `first` on; a process that dies is counted, and another goes on after it."""
    counts = Counts()
    seed = first
    while seed < first + cases:
        command = [sys.executable, __file__, "--child", str(seed), str(first + cases), str(base)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
            assert child.stdout is not None
            begun = seed
            for line in child.stdout:
                word, number, *rest = line.rstrip("\n").split(" ", 3)
                if word == "start":
                    begun = int(number)
                elif word == "end":
                    _count(counts, int(number), rest[0].replace("-", " "), rest[1] if len(rest) > 1 else "")
                    seed = int(number) + 1
        if child.returncode != 0:
            _count(
                counts, begun, "hang" if child.returncode == -signal.SIGALRM else "crash", f"exit {child.returncode}"
            )
            seed = begun + 1
    return counts


def _count(counts: Counts, seed: int, outcome: str, detail: str) -> None:
    counts.found[outcome] += 1
    if outcome not in CLEAN:
        counts.bad.append((seed, f"{outcome} {detail}"))
        print(f"seed {seed}: {outcome} {detail}", flush=True)


def outcome(one: Case) -> tuple[str, str]:
    """How one command ended, and what is to be known of it when it is not clean."""
    from tacit.cli.main import UNEXPECTED, main

    said = io.StringIO()
    _limited(SECONDS_OF_PROCESSOR, SECONDS_OF_CLOCK)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main(one.arguments)
    except SystemExit as end:
        code = end.code
    except Hang as error:
        return "hang", _place(error)
    except BaseException as error:
        return "traceback", f"{type(error).__name__} {_place(error)}"
    finally:
        _limited(0, 0)
    if code == UNEXPECTED or code not in (0, 1, 2, None):
        return "traceback", " ".join(said.getvalue().split())[:300]
    if code in (1, 2) and not said.getvalue().strip():
        return "traceback", "an error without a word"
    if code == 0 and one.rows is not None and one.out is not None:
        content = json.loads((one.out / "scan.json").read_bytes())
        counted = content["records"] + sum(content["quarantined"].values())
        if counted != one.rows:
            return "lost-records", f"{counted} of {one.rows}"
    return ("success" if code in (0, None) else "clean-error"), ""


def _limited(processor: float, clock: float) -> None:
    """An alarm that raises; one more, half as late again, ends a process whose alarm was not heard."""
    signal.signal(signal.SIGPROF, _alarm)
    signal.setitimer(signal.ITIMER_PROF, processor)
    signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, clock, clock / 2)


def _alarm(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Hang


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tacit" in frame.filename and "tests" not in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"


def child(first: int, last: int, base: Path) -> None:
    """Run the cases, and write a line before and after each."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for seed in range(first, last):
        print("start", seed, file=lines)
        with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as place:
            os.chdir(place)
            how, detail = outcome(case(seed, base, Path(place)))
            os.chdir("/")
        print("end", seed, how, detail.replace("\n", " "), file=lines)


def make_base(base: Path) -> None:
    """What cases start from: a corpus, a finished run, an unfinished one, a model folder, a sample and candidates."""
    import torch

    from saved import save_pretrained
    from tacit.cli.main import app
    from tacit.config.load import load_config
    from tacit.config.model_schema import CausalLMConfig
    from tacit.data.corpus import write_jsonl
    from tacit.data.tokenizer import NOTHING, train_bpe
    from tacit.models.causal_lm import CausalLM
    from tacit.simulation.simulate import simulate
    from tacit.training.stages import train

    corpus = base / "corpus.jsonl"
    write_jsonl(simulate("customersim", 24), corpus)
    settings = {
        "mode": "research",
        "policy": "gold",
        "held_out": 0.3,
        "max_tokens": 32,
        "max_full_tokens": 32,
        "model_config": {"hidden_size": 8, "embedding_size": 8},
        "plan": {
            "mechanism": "selective",
            "steps": 2,
            "expected_batch_size": 4,
            "noise_multiplier": 1.0,
            "public_epochs": 1,
        },
    }
    train(load_config(corpus, settings), base / "run", lambda _: None)
    steps = iter(range(10**9))

    def interrupts(_: object) -> None:
        if next(steps) == 12:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        train(load_config(corpus, settings), base / "unfinished", interrupts)
    tokenizer = train_bpe(["My ID is 34 and 17"] * 3, 270, NOTHING)
    torch.manual_seed(0)
    model = CausalLM.new(CausalLMConfig(tokenizer.codec.size, width=8, layers=1, heads=2, context=64, dropout=0.0))
    model.module.config.bos_token_id = 0  # type: ignore[union-attr]
    (base / "gpt").mkdir()
    save_pretrained(model, base / "gpt")
    (base / "gpt" / "tokenizer.json").write_text(json.dumps(tokenizer.codec.definition()["content"]))
    template = {"id": "a", "template": "My ID is {2 digits}.", "value": "41"}
    listed = {"id": "b", "before": "code ", "after": "", "candidates": ["17", "1752"], "value": "17"}
    (base / "candidates.jsonl").write_text(json.dumps(template) + "\n" + json.dumps(listed) + "\n")
    words = ["label", "draw", str(corpus), "--policy", "digits", "--gold", "--records", "8", "--seed", "1"]
    app([*words, "--out", str(base / "sample.jsonl")], standalone_mode=False)


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if sys.argv[1] == "--child":
        child(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
        return
    base = Path(tempfile.mkdtemp(prefix="fuzz-base-"))
    try:
        make_base(base)
        if sys.argv[1] == "--one":
            os.environ["TACIT_DEBUG"] = "1"
            from tacit.cli.main import main as command_line

            one = case(int(sys.argv[2]), base, Path(tempfile.mkdtemp(prefix="fuzz-")))
            print(one)
            command_line(one.arguments)
        print(fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, base))
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
