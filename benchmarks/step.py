"""What a step costs: tacit's private and public ones against plain torch, and against Opacus in each of its modes.

    python benchmarks/step.py [--work NAME ...] [--rounds N] [--threads N] [--peers] [--model FOLDER]

Every mode runs on the same batch in one process, one step each in turn, so that a busy machine is busy for all; printed
are medians of wall time and of the processor's time, and ratios to the plain step (fused nn.LSTM, the untouched GPT, or
PEFT's adapters in the model of FOLDER; forward, backward, SGD update). On a busy machine, look at the processor's time
with one thread. Private steps include clipping, noise and update. Public steps are exact: no clipping, no noise. Peak
memory is measured apart, a fresh process per mode, above what the imports and the model's weights took. The script
starts itself anew with glibc told to keep freed memory: it spares every mode page faults.

FOLDER is a causal language model on disk; the tables have SmolLM2-135M. By default it is taken from the environment
variable SMOLLM2; without it, the works with adapters are left out.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig, OptimizerConfig
from tacit.data.batches import TextBatch
from tacit.models import kernels as native
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.training.gradients.clipped import Flat, clipped_sum, plain_sum
from tacit.training.gradients.contributions import Gram
from tacit.training.optimizers import Optimizer
from tacit.training.randomness import NoiseStream

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 36), "MALLOC_TOP_PAD_": str(1 << 28)}
OPACUS_MODES = ("hooks", "ew", "ghost", "functorch")
LEARNING_RATE = 0.01
FOLDER = "SMOLLM2"
Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Work:
    """One row of the table."""

    model: str
    vocabulary: int
    rows: int
    time: int
    width: int = 200
    layers: int = 1

    def tokens(self) -> Tensor:
        """The batch, the same for every mode."""
        return torch.randint(self.vocabulary, (self.rows, self.time + 1), generator=torch.Generator().manual_seed(1))

    def learner(self) -> Learner:
        """tacit's model, no dropout."""
        if self.model == "adapters":
            return CausalLM.from_folder(Path(os.environ[FOLDER]), LoRAConfig(rank=8))
        if self.model == "gpt":
            heads = self.width // 64
            return CausalLM.new(CausalLMConfig(self.vocabulary, self.width, self.layers, heads, self.time, dropout=0.0))
        return LSTM.new(LSTMConfig(self.vocabulary, min(self.width, 400), self.width, self.layers, dropout=0.0))


WORKS = {
    "lstm-32": Work("lstm", 8_000, 32, 64),
    "lstm-128": Work("lstm", 8_000, 128, 64),
    "gpt-384": Work("gpt", 8_000, 16, 128, 384, 6),
    "gpt-768": Work("gpt", 50_257, 8, 64, 768, 6),
    "lstm-1150": Work("lstm", 8_000, 16, 64, 1150, 3),
    "adapters-128": Work("adapters", 49_152, 8, 128),
    "adapters-48": Work("adapters", 49_152, 16, 48),
}


class TorchLSTM(nn.Module):
    """The same network of torch's parts; `recurrent` is nn.LSTM or Opacus's twin of it."""

    def __init__(self, work: Work, recurrent: type[nn.Module]) -> None:
        super().__init__()
        embedding = min(work.width, 400)
        self.embedding = nn.Embedding(work.vocabulary, embedding)
        self.recurrent = recurrent(embedding, work.width, num_layers=work.layers, batch_first=True)
        self.head = nn.Linear(work.width, work.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.recurrent(self.embedding(tokens))[0])
        return logits


class Logits(nn.Module):
    """A Hugging Face model that returns its logits alone, with positions for every row, as Opacus wants."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        positions = torch.arange(tokens.shape[1]).repeat(len(tokens), 1)
        logits: Tensor = self.model(input_ids=tokens, position_ids=positions, use_cache=False).logits
        return logits


def with_linear_layers(module: nn.Module) -> nn.Module:
    """The same model with GPT-2's Conv1D replaced by nn.Linear: Opacus's modes know only that, and are faster so."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child).__name__ == "Conv1D":
                weight = child.get_parameter("weight")
                linear = nn.Linear(*weight.shape)
                linear.weight = nn.Parameter(weight.detach().t().contiguous())
                setattr(parent, name, linear)
    return module


def plain_module(work: Work) -> nn.Module:
    """The network without privacy."""
    return TorchLSTM(work, nn.LSTM) if work.model == "lstm" else work.learner().module


def plain_step(work: Work) -> Step:
    """Forward, backward, update by torch."""
    module, tokens = plain_module(work), work.tokens()
    moving = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(moving, LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        output = module(tokens[:, :-1])
        logits = output if isinstance(output, Tensor) else output.logits
        torch.autograd.backward(functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))
        optimizer.step()

    return step


def tacit_step(work: Work) -> Step:
    """Clipped sum, noise, update."""
    learner, batch, noise = work.learner(), TextBatch.of_tokens(work.tokens()), NoiseStream(b"any", 0)
    parameters = dict(learner.module.named_parameters())

    def step() -> None:
        clipped = clipped_sum(learner, batch, Flat(1.0))
        noise.add_(clipped.sums.values(), clipped.sensitivity)
        with torch.no_grad():
            for name, value in clipped.sums.items():
                parameters[name].add_(value, alpha=-LEARNING_RATE / work.rows)

    return step


def public_step(work: Work) -> Step:
    """The exact gradient, update: what a public step does."""
    learner, batch = work.learner(), TextBatch.of_tokens(work.tokens())
    parameters = dict(learner.module.named_parameters())
    optimizer = Optimizer(OptimizerConfig(optimizer="sgd", learning_rate=LEARNING_RATE, lr_scheduler="none"), 1)

    def step() -> None:
        found = plain_sum(learner, batch)
        optimizer.apply(parameters, {name: total.div_(found.weight) for name, total in found.sums.items()})

    return step


def products_step(work: Work, with_norms: bool) -> Step:
    """The matrix products of a step and nothing else: what no implementation with the same products can go below.

    Every layer's output and its input's gradient, the gradients of weights that move; with norms, also Gram matrices.
    """
    tokens = work.rows * work.time
    layers = []
    for part in work.learner().module.modules():
        if isinstance(part, nn.Linear) or type(part).__name__ in ("Conv1D", "Recurrence"):
            weight = part.get_parameter("weight")
            layers.append(
                (weight.detach(), weight.requires_grad, tokens * sum(weight.shape) <= work.rows * weight.numel())
            )
    sides = {width: torch.randn(tokens, width) for weight, _, _ in layers for width in weight.shape}

    def step() -> None:
        for weight, moves, has_grams in layers:
            left, right = (sides[width] for width in weight.shape)
            torch.mm(right, weight.t())
            torch.mm(left, weight)
            if moves:
                torch.mm(left.t(), right)
            if moves and with_norms and has_grams:
                for values in (left, right):
                    Gram(values.view(work.rows, work.time, -1))

    return step


def opacus_step(work: Work, mode: str) -> Step:
    """Opacus as its documentation has it, on a model changed to its liking: weights untied, Conv1D made Linear."""
    from opacus import PrivacyEngine  # type: ignore[import-not-found,unused-ignore]
    from opacus.layers import DPLSTM  # type: ignore[import-not-found,unused-ignore]

    tokens = work.tokens()
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    if work.model == "lstm":
        module: nn.Module = TorchLSTM(work, DPLSTM)
    elif work.model == "adapters":
        module = Logits(work.learner().module)
    else:
        untied = work.learner().module
        head = untied.get_submodule("lm_head")
        head.weight = nn.Parameter(head.get_parameter("weight").detach().clone())
        module = Logits(with_linear_layers(untied))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=work.rows)
    private = PrivacyEngine().make_private(
        module=module.train(),
        optimizer=torch.optim.SGD([p for p in module.parameters() if p.requires_grad], LEARNING_RATE),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode=mode,
        criterion=nn.CrossEntropyLoss(),
    )
    wrapped, optimizer = private[0], private[1]
    criterion = private[2] if mode == "ghost" else nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        logits = wrapped(inputs)
        if mode == "ghost":
            loss = criterion(logits.flatten(0, 1), targets, shape=(work.rows, work.time))
        else:
            loss = criterion(logits.flatten(0, 1), targets)
        loss.backward()
        optimizer.step()

    return step


def step_of(work: Work, mode: str) -> Step:
    """The step of a mode by its name."""
    ours = {"plain": plain_step, "tacit": tacit_step, "public": public_step}
    if mode.startswith("products"):
        return products_step(work, with_norms=mode.endswith("norms"))
    return ours[mode](work) if mode in ours else opacus_step(work, mode.removeprefix("opacus-"))


def peak_memory(name: str, mode: str) -> float:
    """Megabytes that three steps took at most above the imports, in a process of their own."""
    answer = subprocess.run(
        [sys.executable, __file__, "--work", name, "--memory", mode], check=True, capture_output=True, text=True
    )
    return float(answer.stdout.split()[-1])


def kilobytes(field: str) -> int:
    """A figure of this process from /proc: VmRSS now, VmHWM at most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def report_memory(work: Work, mode: str) -> None:
    """Print the megabytes of this process."""
    torch.mm(torch.ones(256, 256), torch.ones(256, 256))
    if mode.startswith("opacus"):
        import opacus  # type: ignore[import-not-found,unused-ignore] # noqa: F401
    if work.model != "lstm":
        work.learner()  # imports what the model needs
    before = kilobytes("VmRSS")
    step = step_of(work, mode)
    for _ in range(3):
        step()
    print((kilobytes("VmHWM") - before) / 1024)


def working(work: Work, modes: list[str]) -> dict[str, Step]:
    """The steps that run at all; the others are named."""
    steps: dict[str, Step] = {}
    for mode in modes:
        try:
            step = step_of(work, mode)
            step()
            steps[mode] = step
        except Exception as error:
            print(f"  {mode} does not run: {type(error).__name__}")
    return steps


def measure(name: str, modes: list[str], rounds: int, with_memory: bool) -> None:
    """Print the rows of one work."""
    work = WORKS[name]
    print(f"{name}: {work}")
    steps = working(work, modes)
    clocks = {"wall": time.perf_counter, "CPU": time.process_time}
    taken: dict[str, list[dict[str, float]]] = {mode: [] for mode in steps}
    for _ in range(rounds):
        for mode, step in steps.items():
            start = {clock: now() for clock, now in clocks.items()}
            step()
            taken[mode].append({clock: now() - start[clock] for clock, now in clocks.items()})
    memory = {mode: peak_memory(name, mode) for mode in steps} if with_memory else {}
    for mode, found in taken.items():
        line = f"  {mode:17}"
        for clock in clocks:
            own, plain = ([values[clock] for values in these] for these in (found, taken["plain"]))
            median = statistics.median(own)
            paired = statistics.median(a / b for a, b in zip(own, plain, strict=True))
            line += (
                f" {median * 1e3:9.1f} ms {clock} x {median / statistics.median(plain):5.2f} (paired {paired:5.2f}) "
            )
        if memory:
            line += f"  {memory[mode]:8.0f} MB  x {memory[mode] / memory['plain']:5.2f}"
        print(line, flush=True)


def main() -> None:
    """Parse, start anew with the allocator set, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", nargs="*", default=[name for name in WORKS if name != "lstm-1150"], choices=list(WORKS)
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--model", help=f"folder of a causal language model (default: ${FOLDER})")
    parser.add_argument("--peers", action="store_true", help="also Opacus, which must be installed")
    parser.add_argument("--products", action="store_true", help="also the matrix products of a step alone")
    parser.add_argument("--no-memory", action="store_true", help="leave peak memory out")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    torch.set_num_threads(options.threads)
    if options.model:
        os.environ[FOLDER] = options.model
    if options.memory:
        report_memory(WORKS[options.work[0]], options.memory)
        return
    print(f"native kernels: {'in use' if native.available else 'not in use'}")
    ours = ["plain", "tacit", "public", *(("products", "products and norms") if options.products else ())]
    for name in options.work:
        if WORKS[name].model == "adapters" and FOLDER not in os.environ:
            print(f"{name}: left out; give the folder of a causal language model with --model, or in ${FOLDER}")
            continue
        measure(name, ours, options.rounds, not options.no_memory)
        for mode in OPACUS_MODES if options.peers else ():  # one at a time: together they need more than 20 GB
            measure(name, [*ours, f"opacus-{mode}"], options.rounds, not options.no_memory)


if __name__ == "__main__":
    main()
