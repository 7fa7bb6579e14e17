"""Reads many damaged copies of an Arrow or Parquet file, and prints what became of them: run as a process of its own.

    python damaged_tables.py FORMAT FIRST LAST FOLDER

Case n flips bytes of a whole file, chosen by a generator with seed n. Each line printed is `start n` or `end n HOW`: a
case without an end killed the process.
"""

import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.data.corpus import read
from tacit.errors import TacitError

RECORDS = 150


def table() -> pa.Table:
    texts = [f"Record {number} is about Ann Lee, é and 中文: " + "abc " * (number % 7) for number in range(RECORDS)]
    return pa.table(
        {
            "id": [f"r{number}" for number in range(RECORDS)],
            "text": texts,
            "label": pa.array([("a", "b")[number % 2] for number in range(RECORDS)]).dictionary_encode(),
            "spans": [[{"start": 0, "end": 6, "kind": "X"}] for _ in range(RECORDS)],
        }
    )


def whole_file(form: str) -> bytes:
    """The bytes of a file of 150 records."""
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table(), sink, row_group_size=60, compression="snappy")
    else:
        with pa.ipc.new_stream(sink, table().schema) as writer:
            writer.write_table(table(), max_chunksize=60)
    return bytes(sink.getvalue())


def damaged(data: bytes, seed: int) -> bytes:
    """A copy with one to four bytes changed; every tenth is cut off as well."""
    rng = random.Random(seed)
    copy = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(copy))
        copy[at] = rng.choice([copy[at] ^ (1 << rng.randrange(8)), 0, 0xFF, 0x7F, 0x80, rng.randrange(256)])
    return bytes(copy[: rng.randrange(len(copy))] if seed % 10 == 0 else copy)


def place(form: str, data: bytes, folder: Path) -> Path:
    """The corpus that has these bytes."""
    if form == "parquet":
        (folder / "corpus.parquet").write_bytes(data)
        return folder / "corpus.parquet"
    (folder / "data.arrow").write_bytes(data)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return folder


def outcome(corpus: Path) -> str:
    """How reading it ended."""
    try:
        reader = read(corpus)
        given = sum(1 for _ in reader)
    except TacitError:
        return "refused"
    except Exception as error:
        return f"TRACEBACK {type(error).__name__}: {str(error)[:80]}"
    tally = reader.tally
    if given != tally.usable or tally.usable + tally.quarantined != tally.read:
        return "LOST"
    return "quarantined" if tally.quarantined else "read"


def main() -> None:
    form, first, last, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    data = whole_file(form)
    for seed in range(first, last):
        print("start", seed, flush=True)
        corpus = place(form, damaged(data, seed), folder)
        print("end", seed, outcome(corpus), flush=True)


if __name__ == "__main__":
    main()
