"""How peak memory of `tacit train` grows with the corpus: two private steps of a tiny LSTM on short records.

Each row is a process of its own. The default batch grows with the corpus (a fortieth of it).

    python benchmarks/memory.py [RECORDS ...]
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = (10_000, 100_000, 1_000_000)
MOST_BYTES = 64  # per record more
MECHANISMS = {"dpsgd": [], "selective": ["public_epochs"]}
TINY = ("steps=2", "model_config.hidden_size=16", "model_config.embedding_size=16")
TRAIN = """
import sys
from pathlib import Path
from tacit.cli.main import main
try:
    main()
finally:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].split()[0]) * 1024, file=sys.stderr)
"""


def write_corpus(path: Path, records: int) -> None:
    """Orders, half of them with an e-mail address; three per user."""
    rng, names = random.Random(1), ("ann", "bob", "carl", "dora", "emil", "fay", "gus", "hana")
    with path.open("w") as file:
        for number in range(records):
            mail = f", mail {rng.choice(names)}{number}@ex.org" if number % 2 else ""
            text = f"order {number}: {rng.choice(names)} paid {rng.randrange(1000)}{mail}"
            file.write(json.dumps({"id": str(number), "user": f"u{number // 3}", "text": text}) + "\n")


def peak(corpus: Path, mechanism: str, records: int, out: Path) -> int:
    """Bytes at the peak of one training."""
    settings = [*TINY, *(f"{name}={64 / records}" for name in MECHANISMS[mechanism])]
    words = ["train", str(corpus), "--out", str(out), "--mechanism", mechanism, "--epsilon", "8"]
    words += [word for one in settings for word in ("--set", one)]
    done = subprocess.run([sys.executable, "-c", TRAIN, "--quiet", *words], capture_output=True, text=True, check=True)
    return int(done.stderr.split()[-1])


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    with tempfile.TemporaryDirectory() as folder:
        for mechanism in MECHANISMS:
            known: tuple[int, int] | None = None
            for records in sizes:
                corpus = Path(folder) / f"{records}.jsonl"
                write_corpus(corpus, records)
                found = peak(corpus, mechanism, records, Path(folder) / f"{mechanism}-{records}")
                known = known or (records, found)
                more = (found - known[1]) / max(records - known[0], 1)
                over = (
                    records == sizes[-1] and more > MOST_BYTES
                )  # the first sizes fill buffers that then stay as they are
                verdict = f"  more than {MOST_BYTES}" if over else ""
                print(f"{mechanism:9} {records:9,} records {found / 1e6:6.0f} MB {more:6.1f} bytes per record{verdict}")


if __name__ == "__main__":
    main()
