"""What a private step costs each of two ranks, against one process.

    python benchmarks/ranks.py [--work NAME ...] [--rounds N] [--model FOLDER]

Processor time per step (one thread per process) of one process, and of the slower of two ranks that share the same
draw: gradients of its share, the sum over the ranks, noise, update. One process and two ranks take turns, so that a
busy machine is busy for both. Network and waiting are not in it. FOLDER is a causal language model on disk; the table
in docs/scale.md has SmolLM2-135M. Without it, adapters are left out.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig, OptimizerConfig
from tacit.mechanisms.dpsgd import DPSGD
from tacit.mechanisms.mechanism import PrivateSteps
from tacit.models.causal_lm import CausalLM
from tacit.models.lstm import LSTM
from tacit.training.group import joined
from tacit.training.own_loop import OwnRows
from tacit.training.pools import Annotation, DrawnUnits, Pools
from tacit.training.randomness import Streams
from tacit.training.updates import Updates, UpdateSettings

MOST = 0.6
_STEPS = 4  # of which the first warms up


@dataclass(frozen=True, slots=True)
class Work:
    """A model, and a draw of `rows` rows of half of `time` to `time` tokens."""

    vocabulary: int
    rows: int
    time: int
    folder: str | None = None

    def learner(self) -> LSTM | CausalLM:
        torch.manual_seed(0)
        if self.folder is not None:
            return CausalLM.from_folder(Path(self.folder), LoRAConfig(rank=8))
        if self.rows == WORKS["gpt"].rows:
            return CausalLM.new(CausalLMConfig(self.vocabulary, 384, 6, 6, self.time, dropout=0.0))
        return LSTM.new(LSTMConfig(self.vocabulary, 200, 200, dropout=0.0))


WORKS = {"lstm": Work(8_000, 256, 64), "gpt": Work(8_000, 32, 128)}


def seconds(work: Work) -> float:
    """Processor time of one step, as a rank has it."""
    torch.set_num_threads(1)
    learner, chance = work.learner(), np.random.default_rng(0)
    lengths = chance.integers(work.time // 2, work.time, work.rows)
    reader = OwnRows([chance.integers(0, work.vocabulary, length) for length in lengths], learner)
    none = np.zeros(work.rows, dtype=np.int64)
    pools = Pools(Annotation(np.arange(work.rows, dtype=np.uint64), none.astype(np.uint64), none))
    plan = DPSGD(PrivateSteps(work.rows, work.rows / 2, _STEPS, 1.0, 1.0, 1e-6)).plan()
    (step,) = plan.executions()
    drawn, streams = DrawnUnits(np.arange(work.rows), np.arange(work.rows + 1)), Streams.research(0)
    settings, taken = UpdateSettings(private=OptimizerConfig("sgd", 0.01)), []
    with joined("cpu", timedelta(minutes=10)) as group:
        updates = Updates(learner, plan, reader, pools, settings, group)
        for _ in range(_STEPS):
            group.barrier()
            began = time.process_time()
            updates.carry_out(step, drawn, streams)
            taken.append(time.process_time() - began)
    return statistics.median(taken[1:])


def slowest(work: Work, ranks: int) -> float:
    """Processor time per step of the slowest of so many ranks."""
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id="ranks",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="fork",
    )
    taken: dict[int, float] = elastic_launch(settings, seconds)(work)
    return max(taken.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="*", default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model")
    given = parser.parse_args()
    works = WORKS | ({} if given.model is None else {"adapters": Work(49_152, 8, 128, given.model)})
    print(f"{'model':<10}{'one process':>14}{'slower of two':>16}{'ratio':>8}   (at most {MOST})")
    for name in given.work or works:
        pairs = [(slowest(works[name], 1), slowest(works[name], 2)) for _ in range(given.rounds)]
        alone, together = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:<10}{alone:>12.2f} s{together:>14.2f} s{together / alone:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
