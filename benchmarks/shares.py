"""What a frozen base model costs each of two ranks in memory and time, if they share it, against one process.

    python benchmarks/shares.py [--layers N] [--width N] [--dtype float32|bfloat16]

A made-up Llama is written to a temporary folder. One process, two ranks, and two ranks that share it (`execution.fsdp:
base`) load it with adapters of rank 8 and take private steps. Peak memory is VmHWM of the whole process, libraries
included, from its start on: loading is part of it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch

MOST = 0.65
_VOCABULARY, _ROWS, _TIME, _STEPS = 1_000, 8, 64, 3


def write_base(folder: Path, layers: int, width: int, dtype: str) -> None:
    """Weights of chance."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.to(getattr(torch, dtype)).save_pretrained(folder)


def measure(folder: Path, shared: bool) -> None:
    """As one rank: peak memory in megabytes, and processor seconds per step, are printed."""
    from tacit.common.machine import keep_large_apart
    from tacit.config.model_schema import LoRAConfig
    from tacit.data.batches import TextBatch
    from tacit.models.causal_lm import CausalLM
    from tacit.models.shards import cut_on_arrival
    from tacit.training.gradients.clipped import Flat, clipped_sum
    from tacit.training.group import joined
    from tacit.training.sharing import share_model

    torch.set_num_threads(1)
    with joined("cpu", timedelta(minutes=10)) as group:
        torch.manual_seed(0)
        if shared:
            keep_large_apart()
            with cut_on_arrival(group.rank, group.size) as kept:
                learner = CausalLM.from_folder(folder, LoRAConfig(rank=8))
            share_model(learner, kept, group)
        else:
            learner = CausalLM.from_folder(folder, LoRAConfig(rank=8))
        own = _ROWS // group.size
        batch = TextBatch.of_tokens(torch.randint(_VOCABULARY, (own, _TIME + 1)))
        taken = []
        for _ in range(_STEPS):
            began = time.process_time()
            found = clipped_sum(learner, batch, Flat(1.0))
            group.sum_(list(found.sums.values()))
            taken.append(time.process_time() - began)
    peak = int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024
    print(f"peak {peak:.0f} seconds {min(taken):.3f}", flush=True)


def of_ranks(folder: Path, ranks: int, shared: bool) -> tuple[float, float]:
    """The largest peak, in megabytes, and the most processor seconds per step."""
    agent = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *agent, __file__, "--measure", str(folder), *(["--shared"] if shared else [])]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"peak (\d+) seconds ([\d.]+)", said)
    assert len(found) == ranks, said
    return max(float(peak) for peak, _ in found), max(float(seconds) for _, seconds in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shared", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        measure(given.measure, given.shared)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_base(folder, given.layers, given.width, given.dtype)
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 2**20
        print(f"{given.layers} layers of width {given.width}: {size:,.0f} MB of {given.dtype}")
        alone, alone_seconds = of_ranks(folder, 1, False)
        print(f"{'':<22}{'peak per process':>18}{'ratio':>8}{'seconds per step':>19}   (ratio at most {MOST})")
        print(f"{'one process':<22}{alone:>15,.0f} MB{1:>8.2f}{alone_seconds:>19.2f}", flush=True)
        for name, shared in (("two ranks", False), ("two ranks with shares", True)):
            peak, seconds = of_ranks(folder, 2, shared)
            print(f"{name:<22}{peak:>15,.0f} MB{peak / alone:>8.2f}{seconds:>19.2f}", flush=True)


if __name__ == "__main__":
    main()
