"""How threads of torch fare beside other work: private steps of a small LSTM, alone and beside a busy process.

    python benchmarks/threads.py --steps 20 --repeats 3

Every combination of thread count and wait policy runs in a process of its own, in turns, first alone and then beside a
process that keeps one core busy. Wall time and processor time per step are medians of the repeats; on a shared machine
use them for ratios only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict

CASES = (("1", "active"), ("2", "active"), ("2", "passive"))
HOG = "while True: pass"


def measure(threads: str, steps: int) -> None:
    """In the child: wall and processor seconds per step, printed as JSON."""
    import torch  # before tacit, which would have its threads wait passively

    from tacit.config.model_schema import LSTMConfig
    from tacit.data.batches import TextBatch
    from tacit.models.lstm import LSTM
    from tacit.training.gradients.clipped import Flat, clipped_sum

    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    model, batch = LSTM.new(LSTMConfig(1002)), TextBatch.of_tokens(torch.randint(1000, (16, 129)))
    for _ in range(3):
        clipped_sum(model, batch, Flat(1.0))
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(steps):
        clipped_sum(model, batch, Flat(1.0))
    took = [(time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps]
    print(json.dumps([*took, batch.weights.numel()]))


def run(threads: str, policy: str, steps: int) -> list[float]:
    """One child with this environment."""
    own = {"OMP_WAIT_POLICY": policy} if policy == "passive" else {}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    words = [sys.executable, __file__, "--child", threads, "--steps", str(steps)]
    done = subprocess.run(words, env=environment | own, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child")
    given = parser.parse_args()
    if given.child:
        measure(given.child, given.steps)
        return
    results = defaultdict(list)
    for _ in range(given.repeats):
        for busy in (False, True):
            hog = subprocess.Popen([sys.executable, "-c", HOG]) if busy else None
            try:
                for threads, policy in CASES:
                    results[threads, policy, busy].append(run(threads, policy, given.steps))
            finally:
                if hog is not None:
                    hog.kill()
                    hog.wait()
    print("threads  waiting  beside a hog  tokens/s  wall ms  processor ms")
    for (threads, policy, busy), found in results.items():
        wall, processor = (statistics.median(one[place] for one in found) for place in (0, 1))
        row = f"{threads:>7}  {policy:<7}  {'yes' if busy else 'no':<12}  {found[0][2] / wall:8,.0f}"
        print(f"{row}  {1000 * wall:7.1f}  {1000 * processor:12.1f}")


if __name__ == "__main__":
    main()
