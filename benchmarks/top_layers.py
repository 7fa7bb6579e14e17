"""What adapters in the top layers alone cost and are worth, with and without keeping what the layers below compute.

    python benchmarks/top_layers.py MODEL [--top 6] [--rows 4] [--time 128] [--rounds 5]
    python benchmarks/top_layers.py MODEL --corpus CORPUS [--steps 40] [--expected-batch-size 8] [--epsilon 8]

The first prints the cost of one private step for adapters of rank 8 in all layers of the model in the folder MODEL, in
the top ones, and in the top ones with kept activations (of rows that were seen before): medians of the processor's time
and of wall time, one step each in turn, and the peak memory of a process of its own, above imports and weights. The
second trains on CORPUS in these ways, the same number of steps from the same seed, and prints perplexity on held-out
records; a cache changes sums in their last digits alone.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from step import ALLOCATOR, Step, kilobytes
from tacit.api import train
from tacit.common.libraries import quietly
from tacit.config.model_schema import LoRAConfig
from tacit.data.batches import TextBatch
from tacit.models.activations import activation_cache
from tacit.models.causal_lm import CausalLM
from tacit.models.lower_layers import LowerLayers
from tacit.training.gradients.clipped import Flat, clipped_sum
from tacit.training.randomness import NoiseStream

WAYS = ("all layers", "top layers", "top layers, kept")
LEARNING_RATE = 0.01
GIGABYTES = 2.0


def top(model: Path, layers: int) -> list[int]:
    """The numbers of the top layers."""
    from transformers import AutoConfig

    with quietly():
        count = int(AutoConfig.from_pretrained(model, local_files_only=True).num_hidden_layers)
    return list(range(count - layers, count))


@contextmanager
def step_of(way: str, options: argparse.Namespace) -> Iterator[Step]:
    """A private step: clipped sum, noise, update."""
    chosen = None if way == WAYS[0] else tuple(top(options.model, options.top))
    learner = CausalLM.from_folder(options.model, LoRAConfig(rank=8, layers_to_transform=chosen))
    shape, generator = (options.rows, options.time + 1), torch.Generator().manual_seed(1)
    batch = TextBatch.of_tokens(torch.randint(learner.vocabulary_size, shape, generator=generator))
    noise, parameters = NoiseStream(b"any", 0), dict(learner.module.named_parameters())
    with ExitStack() as open_files:
        if way == WAYS[2]:
            place = Path(open_files.enter_context(tempfile.TemporaryDirectory()))
            positions = options.rows * options.time
            cache = activation_cache(LowerLayers(learner), place, GIGABYTES, positions)
            learner = CausalLM(learner.module, learner.lora, open_files.enter_context(cache))

        def step() -> None:
            clipped = clipped_sum(learner, batch, Flat(1.0))
            noise.add_(clipped.sums.values(), clipped.sensitivity)
            with torch.no_grad():
                for name, value in clipped.sums.items():
                    parameters[name].add_(value, alpha=-LEARNING_RATE / options.rows)

        yield step


def peak_memory(way: str, options: argparse.Namespace) -> float:
    """Megabytes that three steps took at most above imports and weights."""
    words = [str(options.model), "--top", options.top, "--rows", options.rows, "--time", options.time, "--memory", way]
    command = [sys.executable, __file__, *map(str, words)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def report_memory(options: argparse.Namespace) -> None:
    """Print the megabytes of this process."""
    with step_of(options.memory, options) as step:
        before = kilobytes("VmRSS")
        for _ in range(3):
            step()
        print((kilobytes("VmHWM") - before) / 1024)


def measure_steps(options: argparse.Namespace) -> None:
    """Print what a step costs in each way."""
    clocks: dict[str, Callable[[], float]] = {"CPU": time.process_time, "wall": time.perf_counter}
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with ExitStack() as models:
        steps = {way: models.enter_context(step_of(way, options)) for way in WAYS}
        for step in steps.values():
            step()
        for _ in range(options.rounds):
            for way, step in steps.items():
                start = {clock: now() for clock, now in clocks.items()}
                step()
                taken[way].append({clock: now() - start[clock] for clock, now in clocks.items()})
    memory = {way: peak_memory(way, options) for way in WAYS}
    for way in WAYS:
        line = f"{way:17}"
        for clock in clocks:
            own, first = (statistics.median(values[clock] for values in taken[one]) for one in (way, WAYS[0]))
            line += f" {own * 1e3:8.0f} ms {clock} x {own / first:4.2f} "
        print(f"{line} {memory[way]:6.0f} MB x {memory[way] / memory[WAYS[0]]:4.2f}", flush=True)


def measure_quality(options: argparse.Namespace) -> None:
    """Print what a model is worth after the same steps, and what they took."""
    upper = top(options.model, options.top)
    settings = {WAYS[0]: {}, WAYS[1]: {"layers_to_transform": upper}, WAYS[2]: {"layers_to_transform": upper}}
    with tempfile.TemporaryDirectory() as folder:
        for way, chosen in settings.items():
            if way not in options.ways:
                continue
            words = {
                "checkpoint_minutes": 1000,
                "steps": options.steps,
                "max_tokens": options.time,
                "max_full_tokens": options.time,
                **chosen,
            }
            words |= {"cache_activations_gb": GIGABYTES} if way == WAYS[2] else {}
            start = time.process_time()
            run = train(
                options.corpus,
                mechanism="dpsgd",
                epsilon=options.epsilon,
                model=options.model,
                lora_rank=8,
                expected_batch_size=options.expected_batch_size,
                mode="research",
                seed=0,
                out=Path(folder) / way.replace(" ", "-"),
                settings={"held_out": options.held_out, "private.learning_rate": options.learning_rate, **words},
            )
            seconds = time.process_time() - start
            overall = run.utility.public + run.utility.private
            print(f"{way:17} perplexity {overall.perplexity:6.2f} on {overall.tokens} tokens, {seconds:5.0f} s of CPU")


def main() -> None:
    """Parse, start anew with the allocator set, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--corpus", help="train on it instead")
    parser.add_argument("--ways", nargs="+", default=[WAYS[0], WAYS[2]], choices=WAYS, help="to train")
    for name, default in (("top", 6), ("rows", 4), ("time", 128), ("rounds", 5), ("threads", 1), ("steps", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, value in (("expected-batch-size", 8.0), ("epsilon", 8.0), ("held-out", 0.2), ("learning-rate", 2e-3)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--memory", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    torch.set_num_threads(options.threads)
    if options.memory:
        report_memory(options)
    elif options.corpus:
        measure_quality(options)
    else:
        measure_steps(options)


if __name__ == "__main__":
    main()
