"""G1 of reading: memory does not grow with the corpus. Measured as the peak of a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to measure a peak")

# Reads small files to warm up, then files ten times as large, and prints by how many MB the peak grew for each.
# VmHWM is the process's own peak; `ru_maxrss` starts at that of the process it was forked from, and sees nothing.
MEASURE = """
import json, sys
from tacit.data.corpus import read

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024

folder, keep, names = sys.argv[1], sys.argv[2] == "keep", sys.argv[3:]
growth = {}
for size in ("small", "large"):
    for name in names:
        before = peak()
        reader = read(f"{folder}/{size}.{name}", max_record_bytes=1_000_000)
        kept = list(reader) if keep else [record for record in reader if False]
        growth[name] = [peak() - before, reader.tally.usable, reader.tally.quarantined]
print(json.dumps(growth))
"""

# Writes the same texts in every format: 400 and 4,000 texts of 10 KB, all different. A process of its own, too.
GENERATE = """
import json, random, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from tacit.data.records import Record
from tacit.data.corpus import write_jsonl

folder = Path(sys.argv[1])
words = [random.Random(seed).randbytes(5).hex() for seed in range(4000)]

blocks = [" ".join(random.Random(seed).sample(words, 93)) for seed in range(300)]

def texts(count):
    for number in range(count):
        yield " ".join(random.Random(number).sample(blocks, 10))

for size, count in (("small", 400), ("large", 4000)):
    for ending in ("jsonl", "jsonl.gz", "jsonl.zst"):
        records = (Record(str(number), text) for number, text in enumerate(texts(count)))
        write_jsonl(records, folder / f"{size}.{ending}")
    with (folder / f"{size}.txt").open("w") as txt, (folder / f"{size}.csv").open("w") as csv:
        csv.write("text\\n")
        for text in texts(count):
            txt.write(text + "\\n")
            csv.write(f'"{text}"\\n')
    table = pa.table({"text": list(texts(count))})
    # One row group, in pages of 50 texts: left alone, the writer makes pages of 10 MB of such texts.
    pq.write_table(table, folder / f"{size}.parquet", row_group_size=count, use_dictionary=False, write_batch_size=50)
    dataset = folder / f"{size}.dataset"
    dataset.mkdir()
    with pa.OSFile(str(dataset / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=200)
    (dataset / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
"""
# A line of 1 MB, in the small files, or of 100 MB, in the large ones, and a good one after it.
LONG_LINES = """
import gzip, sys
from tacit.data.text_files import zstd

def opened(path):
    if path.endswith(".gz"):
        return gzip.open(path, "wb", compresslevel=1)
    return zstd.open(path, "wb") if path.endswith(".zst") else open(path, "wb")

for size, megabytes in (("small", 1), ("large", 100)):
    for name in sys.argv[2:]:
        with opened(f"{sys.argv[1]}/{size}.{name}") as file:
            file.write(b"text\\n" if name == "csv" else b"\\n")
            for _ in range(megabytes):
                file.write(b"x" * 1_000_001)
            file.write(b'\\nafter' if name == "csv" else b'\\n{"text": "after"}')
"""
FORMATS = ["jsonl", "jsonl.gz", "jsonl.zst", "txt", "csv", "parquet", "dataset"]


def run(script: str, *arguments: str) -> str:
    # Arrow's own allocator hoards what was freed, up to some 60 MB; the system's shows what is held.
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpora")
    run(GENERATE, str(path))
    return path


def test_memory_does_not_grow_with_the_corpus(folder: Path) -> None:
    """36 MB more of text may cost 20 MB at most; all of it would be 40."""
    growth = json.loads(run(MEASURE, str(folder), "drop", *FORMATS))
    assert {name: (usable, bad) for name, (_, usable, bad) in growth.items()} == dict.fromkeys(FORMATS, (4000, 0))
    assert all(grown < 20 for grown, _, _ in growth.values()), growth


def test_keeping_the_records_would_be_seen(folder: Path) -> None:
    """The negative control."""
    growth = json.loads(run(MEASURE, str(folder), "keep", "jsonl"))
    assert growth["jsonl"][0] > 30


def test_a_line_of_100_megabytes_is_never_held(tmp_path: Path) -> None:
    """With a limit of 1 MB, also when it is compressed a thousandfold."""
    names = ["jsonl", "jsonl.gz", "jsonl.zst", "csv"]
    run(LONG_LINES, str(tmp_path), *names)
    growth = json.loads(run(MEASURE, str(tmp_path), "drop", *names))
    assert {name: (usable, bad) for name, (_, usable, bad) in growth.items()} == dict.fromkeys(names, (1, 1))
    assert all(grown < 40 for grown, _, _ in growth.values()), growth
