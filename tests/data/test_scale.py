"""Size: a step costs the same in a small corpus and in a large one, and large vocabularies fit into memory.

Corpora are written straight into prepared stores. Peaks of memory (VmHWM) are those of processes of their own.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.data.records import Record
from tacit.data.store import Facts, StoreCounts, StoreWriter
from tacit.data.views import PublicTokens

VOCABULARY = 300
LENGTH = 256
EXPECTED_BATCH = 24
STEPS = 60

WIDE_VOCABULARY = 50_257  # GPT-2's
GIGABYTE = 1 << 30

PEAK = """
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) * 1024)
"""

STEPPING = f"""
import json, statistics, sys, time
from pathlib import Path
import numpy as np
import torch
from tacit.training.gradients.clipped import Flat, clipped_sum
from tacit.training.randomness import NoiseStream
from tacit.config.model_schema import LSTMConfig
from tacit.models.lstm import LSTM
from tacit.privacy.plan import Noisy, Phase, Plan, PoissonRecords, Pool, Step, Targets, View
from tacit.data.store import PreparedCorpus
from tacit.data.batches import RowReader
from tacit.training.pools import Annotation, Pools
from tacit.training.sampling import Samplers

torch.set_num_threads(1)
torch.manual_seed(0)
learner = LSTM.new(LSTMConfig({VOCABULARY}, 16, 16))
generator, noise = np.random.default_rng(0), NoiseStream(b'0', 0)

class Stepping:
    def __init__(self, folder):
        store = PreparedCorpus(Path(folder))
        draw = PoissonRecords({EXPECTED_BATCH} / len(store))
        update = Noisy(1.0, 1.0, {EXPECTED_BATCH})
        self.step = Step("private", View.FULL, Pool.WITH_SECRETS, draw, update, "private", Targets.ALL)
        self.samplers = Samplers(Plan((Phase(((self.step, 1),)),)), Pools(Annotation.of(store)))
        self.reader = RowReader(store, 0, {LENGTH})

    def once(self):
        began = time.perf_counter()
        (drawn,) = self.samplers.draw(self.step, generator)
        batch = self.reader.batch(drawn.rows, self.step.view, self.step.targets)
        read = time.perf_counter()
        result = clipped_sum(learner, batch, Flat(1.0))
        noise.add_(result.sums.values(), 1.0)
        tokens = max(1, int(batch.weights.count_nonzero()))
        return (time.perf_counter() - began) / tokens, (read - began) / tokens

corpora = [Stepping(folder) for folder in sys.argv[2:]]
seconds = [[] for _ in corpora]
for _ in range(int(sys.argv[1])):
    for corpus, times in zip(corpora, seconds):
        times.append(corpus.once())
print(json.dumps([[statistics.median(part) for part in zip(*times[5:])] for times in seconds]))
{PEAK}
"""

WIDE = f"""
import json, sys, tempfile
from pathlib import Path
import torch
from tacit.models.causal_lm import CausalLM
from tacit.config.model_schema import CausalLMConfig, LSTMConfig
from tacit.models.lstm import LSTM
from tacit.privacy.plan import Neighbors, Noisy, Phase, Plan, PoissonRecords, Pool, Step, Unit, View, cost
from tacit.data.store import PreparedCorpus
from tacit.training.randomness import Streams
from tacit.data.batches import RowReader
from tacit.runs.release import PrivateFile
from tacit.runs.folder import RunFolder
from tacit.training.pools import Annotation, Pools
from tacit.training.trainer import Trainer, TrainSettings

torch.set_num_threads(1)
shapes = {{
    "lstm": lambda: LSTM.new(LSTMConfig({WIDE_VOCABULARY}, 200, 200)),
    "gpt": lambda: CausalLM.new(CausalLMConfig({WIDE_VOCABULARY}, width=768, layers=6, heads=12, context=128)),
}}
learner, store = shapes[sys.argv[1]](), PreparedCorpus(Path(sys.argv[2]))
before = {{name: value.detach().clone() for name, value in learner.module.named_parameters()}}
step = Step("private", View.FULL, Pool.EVERY, PoissonRecords(1.0), Noisy(1.0, 1.0, 8.0), "private")
plan = Plan((Phase(((step, 1),)),))
with RunFolder.create(Path(sys.argv[3])) as run:
    run.ledger.declare("private", {{"a record": cost(step, Neighbors(Unit.RECORD))}})
    reader, pools = RowReader(store, 0, 63), Pools(Annotation.of(store))
    Trainer(run, learner, plan, reader, pools, TrainSettings()).train(Streams.research(0), lambda done: None)
    print(json.loads(run.path(PrivateFile.STEPS).read_text().split("\\n")[0])["drawn"])
print(sum(value.numel() for value in before.values()))
print(all(not torch.equal(before[name], value) for name, value in learner.module.named_parameters()))
{PEAK}
"""


def write_store(folder: Path, rows: int, vocabulary: int = VOCABULARY, length: int = LENGTH) -> Path:
    """A store of records of one length, each with one secret of four tokens."""
    folder.mkdir()
    writer = StoreWriter(folder, vocabulary)
    publics = [[(first + place) % vocabulary for place in range(length - 3)] for first in range(200)]
    for row in range(rows):
        public = PublicTokens(publics[row % 200], [20], ("CODE",))
        writer.add(row, 0, Record("", ""), public, ([1, 2, 3, row % 256],))
    facts = Facts(
        tokenizer_hash="",
        tokenizer_depends_on={},
        vocabulary_size=vocabulary,
        lossless=True,
        policy_id="",
        policy_hash="",
        max_tokens=length,
        duplicates="keep",
        versions={},
    )
    counts = StoreCounts(records=rows, empty=0, quarantined=0, duplicates=0, rows=rows, spans=rows)
    writer.finish(facts, counts)
    return folder


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _printed(script: str, *arguments: str) -> list[str]:
    """What a Python process of its own prints, line by line."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split("\n")[:-1]


def _steps(*folders: Path) -> tuple[list[tuple[float, float]], int]:
    """Median seconds a token in each of the stores, of a step and of its drawing and reading; the peak of memory."""
    seconds, peak = _printed(STEPPING, str(STEPS), *map(str, folders))
    return json.loads(seconds), int(peak)


def test_a_step_costs_the_same_in_fifty_times_as_many_records(tmp_path: Path) -> None:
    """Draw, read, clip, sum and noise, in both corpora in turn."""
    (small, large), _ = _steps(write_store(tmp_path / "small", 1_000), write_store(tmp_path / "large", 50_000))
    assert large[0] < 1.5 * small[0]


@pytest.mark.slow
def test_a_step_costs_the_same_in_a_million_records_and_memory_stays(tmp_path: Path) -> None:
    """A draw that looks at every record would take several times as long as drawing and reading a batch does.

    Pages of the store that were touched count as memory, though the system takes them back when it needs them.
    """
    small, large = write_store(tmp_path / "small", 1_000), write_store(tmp_path / "large", 1_000_000)
    (with_few, with_many), _ = _steps(small, large)
    growth = _steps(large)[1] - _steps(small)[1]
    assert with_many[0] < 1.5 * with_few[0]
    assert with_many[1] < 3 * with_few[1]
    assert growth < size_of(large) / 2


@pytest.mark.parametrize("shape", ["lstm", pytest.param("gpt", marks=pytest.mark.slow)])
def test_a_private_step_with_the_vocabulary_of_gpt2_fits_into_4_gigabytes(shape: str, tmp_path: Path) -> None:
    """Eight records of 64 targets, from the check of the gradients to the checkpoint; every parameter moves."""
    store = write_store(tmp_path / "store", 8, WIDE_VOCABULARY, 63)
    drawn, parameters, moved, peak = _printed(WIDE, shape, str(store), str(tmp_path / "run"))
    assert (drawn, moved) == ("8", "True")
    assert int(parameters) > 20_000_000
    assert int(peak) < 4 * GIGABYTE
