"""How long WikiText-2 takes to prepare (digits policy), whether memory grows with the corpus, how fast a store opens.

Each row is measured in a process of its own. The larger corpus is the text ten times over, each copy with its letter in
front of every paragraph, so that of its pieces only the later ones of long paragraphs are duplicates.

    TACIT_DATA=... python benchmarks/prepare.py

With `--cores`, how much faster all cores mark and prepare 1,500 simulated dialogs (names policy) than one core does,
in turns. The processor time tells what idle cores would need: the caller's own, and its share of the workers'.

    python benchmarks/prepare.py --cores
"""

import argparse
import json
import lzma
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tacit.data.prepare import PrepareConfig, prepare
from tacit.data.records import Record
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer, byte_tokenizer, read_gpt2
from tacit.policies.marking import mark_records
from tacit.policies.patterns import Digits
from tacit.policies.registry import parse_policy
from tacit.simulation.simulate import simulate

DATA = Path(os.environ.get("TACIT_DATA", Path(__file__).parents[2] / "shared" / "data"))
TEXT = DATA / "wikitext-2" / "wikitext-2.train.txt.xz"
GPT2 = (DATA / "gpt2_tokenizer" / "encoder.json.xz", DATA / "gpt2_tokenizer" / "vocab.bpe.xz")
LONGEST_SECONDS = 60
MOST_GROWTH = 1.15
DIALOGS = 1_500
LEAST_SPEEDUP = 1.6  # with two cores: reading, counting and writing are the caller's own
TURNS = 3


def paragraphs(copies: int) -> Iterator[Record]:
    for copy in range(copies):
        with lzma.open(TEXT, "rt", encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file):
                if text := line.strip():
                    yield Record(f"{copy}/{number}", f"copy {chr(97 + copy)} {text}" if copy else text)


def tokenizer_named(name: str) -> Tokenizer:
    return byte_tokenizer() if name == "bytes" else read_gpt2(*GPT2)


def measure(name: str, copies: int) -> dict[str, float]:
    """Prepare and open, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "store"
        tokenizer = tokenizer_named(name)
        before = time.perf_counter()
        marked = mark_records(Digits(), paragraphs(copies))
        store = prepare(marked, Digits(), tokenizer, out, PrepareConfig(duplicates="exact"))
        seconds = time.perf_counter() - before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        before = time.perf_counter()
        PreparedCorpus(out).redacted(len(store) - 1)
        opening = time.perf_counter() - before
        counts = store.header.counts
        tokens = store.header.columns["tokens"].length
    return {
        "rows": counts.rows,
        "spans": counts.spans,
        "tokens": tokens,
        "seconds": seconds,
        "peak_mebibytes": peak,
        "opening_milliseconds": 1000 * opening,
    }


def measure_apart(name: str, copies: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", name, str(copies)]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result


def measure_dialogs(cores: int) -> list[float]:
    """Seconds to prepare dialogs on so many cores: by the clock, and of processor time if no other process ran."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    records = list(simulate("customersim", DIALOGS, seed=1))
    clock, own = time.perf_counter(), time.process_time()
    policy = parse_policy("names")
    with tempfile.TemporaryDirectory() as folder:
        prepare(mark_records(policy, records), policy, byte_tokenizer(), Path(folder) / "store")
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    shared = (workers.ru_utime + workers.ru_stime) / cores
    return [time.perf_counter() - clock, time.process_time() - own + shared]


def compare_cores() -> None:
    """Print how much faster all cores are than one."""
    number = len(os.sched_getaffinity(0))
    totals = {1: [0.0, 0.0], number: [0.0, 0.0]}
    for _ in range(TURNS):
        for cores, total in totals.items():
            command = [sys.executable, __file__, "--measure", "dialogs", str(cores)]
            measured = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            totals[cores] = [sum(pair) for pair in zip(total, measured, strict=True)]
    for cores, (clock, processor) in totals.items():
        print(f"{cores} cores: {clock / TURNS:.1f} s by the clock, {processor / TURNS:.1f} s of processor time")
    clock, processor = (one / every for one, every in zip(totals[1], totals[number], strict=True))
    print(f"ratio: {clock:.2f} by the clock, {processor:.2f} by processor time")
    sys.exit(0 if processor >= LEAST_SPEEDUP else f"all cores are less than {LEAST_SPEEDUP} times as fast as one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", action="store_true", help="compare all cores with one")
    parser.add_argument("--measure", nargs=2, metavar=("TOKENIZER", "COPIES"), help="one row, as JSON")
    arguments = parser.parse_args()
    asked = arguments.measure
    if arguments.cores:
        compare_cores()
    if asked and asked[0] == "dialogs":
        print(json.dumps(measure_dialogs(int(asked[1]))))
        return
    missing = [path for path in (TEXT, *GPT2) if not path.exists()]
    if missing:
        sys.exit(f"missing: {', '.join(map(str, missing))}; set TACIT_DATA to the folder that holds it")
    if asked:
        print(json.dumps(measure(asked[0], int(asked[1]))))
        return
    columns = ("rows", "spans", "tokens", "seconds", "peak_mebibytes", "opening_milliseconds")
    print(f"{'tokenizer':<10}{'corpus':>7}" + "".join(f"{column:>22}" for column in columns))
    good = True
    for name in ("bytes", "gpt2"):
        rows = {copies: measure_apart(name, copies) for copies in (1, 10)}
        for copies, row in rows.items():
            print(f"{name:<10}{copies:>6}x" + "".join(f"{row[column]:>22,.1f}" for column in columns), flush=True)
        growth = rows[10]["peak_mebibytes"] / rows[1]["peak_mebibytes"]
        print(f"{name}: ten times the corpus takes {growth:.2f} times the memory")
        good &= rows[1]["seconds"] < LONGEST_SECONDS and growth < MOST_GROWTH
    sys.exit(0 if good else f"too slow (over {LONGEST_SECONDS} s) or memory grows (over {MOST_GROWTH} times)")


if __name__ == "__main__":
    main()
