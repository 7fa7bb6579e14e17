"""Every kind of update and every mechanism, carried out by one rank of a group; what the model is afterwards is saved.

Optimizers are SGD: where a gradient is rounding alone, Adam would turn its sign into a whole step.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from forked_ranks import Work, in_group
from runs import PLANS, Parts, make_parts
from tacit.config.model_schema import CausalLMConfig, ClassifierConfig, LoRAConfig, LSTMConfig, OptimizerConfig
from tacit.data.batches import BatchReader
from tacit.data.labels import LabelReader
from tacit.data.records import Record, Span
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import RunError
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import LSTMClassifier
from tacit.models.lstm import LSTM
from tacit.privacy.plan import ClipStyle, Noisy, Phase, Plan, Step
from tacit.training.gradients.clipped import Method
from tacit.training.group import Group
from tacit.training.pools import DrawnUnits
from tacit.training.randomness import Streams
from tacit.training.sampling import Samplers
from tacit.training.updates import Updates, UpdateSettings

SGD = OptimizerConfig("sgd", 0.05, lr_scheduler="none")
LONGEST = 400
WORDS = byte_tokenizer().vocabulary_size
LSTM_SHAPE = LSTMConfig(WORDS, 8, 8, dropout=0.0)
CLASSES = ("a", "b")
DRAWS = {"empty": [], "one row": [5], "two rows": [5, 6], "one huge record": [24, 3, 4]}
STYLES: dict[str, ClipStyle] = {"style flat": "flat", "style automatic": "automatic", "style each": "per parameter"}
METHODS: dict[str, Method] = {"method layers": "layers", "method rows": "rows"}
MODELS = ("gpt", "adapters", "classifier")
CASES = (*PLANS, *STYLES, *METHODS, *(f"draw {name}" for name in DRAWS), *MODELS, "adam", "dropout")
Model = LSTM | CausalLM | LSTMClassifier


def records() -> Iterator[Record]:
    """Twelve flagged records of three users, twelve cleared ones, and one that is longer than all others together."""
    for number in range(25):
        spans = (Span(11, 14, "NAME"),) if number < 12 else ()
        text = f"my code is Ann, {number}" + " and on" * (40 if number == 24 else number % 3)
        yield Record(f"r{number}", text, f"u{number // 4}", CLASSES[number % 2], spans)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A plan, carried out on a model."""

    model: Model
    reader: BatchReader
    parts: Parts
    plan: Plan
    settings: UpdateSettings
    method: Method = "fused"
    draws: tuple[tuple[int, ...], ...] | None = None  # instead of what the samplers draw

    def carry_out(self, group: Group) -> dict[str, Tensor]:
        """The weights afterwards, and what the updates said of themselves."""
        updates = Updates(self.model, self.plan, self.reader, self.parts.pools, self.settings, group)
        updates.methods = dict.fromkeys(updates.methods, self.method)
        samplers, streams, facts = Samplers(self.plan, self.parts.pools), Streams.research(7), []
        for step, times in self.plan.executions().items():
            for _ in range(times):
                for drawn in self._drawn(step, samplers, streams):
                    torch.manual_seed(int(streams.other.integers(2**63)))
                    done = updates.carry_out(step, drawn, streams)
                    facts += [done.tokens, done.public_loss or 0.0, *(done.private or {}).values()]
        weights = {name: value.detach().clone() for name, value in self.model.module.named_parameters()}
        return {**weights, "facts": torch.tensor(facts, dtype=torch.float64)}

    def _drawn(self, step: Step, samplers: Samplers, streams: Streams) -> Iterator[DrawnUnits]:
        if self.draws is None:
            return samplers.draw(step, streams.batches)
        given = (np.array(rows, dtype=np.int64) for rows in self.draws)
        return (DrawnUnits(rows, np.arange(len(rows) + 1)) for rows in given)


def case_of(name: str, parts: dict[str, Parts]) -> Case:
    """The case of this name, with new weights that are the same every time."""
    torch.manual_seed(0)
    kind, _, what = name.partition(" ")
    used = parts[name if name in PLANS else "dpsgd"]
    plan = used.mechanism.plan()
    settings = UpdateSettings(public=SGD, private=SGD)
    case = Case(LSTM.new(LSTM_SHAPE), used.reader, used, plan, settings)
    if name in STYLES:
        return replace(case, plan=_changed(plan, lambda update: replace(update, style=STYLES[name])))
    if name in METHODS:
        return replace(case, method=METHODS[name])
    if kind == "draw":
        return replace(case, draws=(tuple(DRAWS[what]),))
    if name == "adam":
        return replace(case, settings=UpdateSettings())
    if name == "dropout":
        return replace(case, model=LSTM.new(replace(LSTM_SHAPE, dropout=0.5)), plan=parts["plain"].mechanism.plan())
    if name in ("gpt", "adapters"):
        shape = CausalLMConfig(WORDS, layers=1, width=8, heads=2, context=LONGEST + 40, dropout=0.0)
        return replace(case, model=CausalLM.new(shape, LoRAConfig(2) if name == "adapters" else None))
    if name == "classifier":
        model = LSTMClassifier.new(LSTM_SHAPE, ClassifierConfig(CLASSES))
        return replace(case, model=model, reader=LabelReader(used.store, byte_tokenizer().end, LONGEST, CLASSES))
    return case


def _changed(plan: Plan, change: Callable[[Noisy], Any]) -> Plan:
    steps = {
        step: replace(step, update=change(step.update)) for step in plan.executions() if isinstance(step.update, Noisy)
    }
    return Plan(
        tuple(Phase(tuple((steps.get(step, step), times) for step, times in phase.turns)) for phase in plan.phases)
    )


def all_parts(folder: Path, mechanisms: Iterable[str] = tuple(PLANS)) -> dict[str, Parts]:
    """What each mechanism is made of."""
    found = {}
    for mechanism in mechanisms:
        caps = {"user_cap": 2, "entity_cap": 1} if mechanism == "uedp" else {}
        few = {} if mechanism in ("plain", "redaction", "invented") else {"expected_batch_size": 4}
        place = folder / mechanism
        place.mkdir()
        words = {"mechanism": mechanism, **PLANS[mechanism], **few, **caps}
        found[mechanism] = make_parts(place, records(), words, LONGEST)
    return found


def every_case(folder: Path) -> Work:
    """Work for each rank: all cases, and their weights in `SIZE-RANK-CASE.safetensors`."""
    parts = all_parts(folder)
    case_of("adapters", parts)  # what it imports, every rank then has

    def work(group: Group) -> None:
        for name in CASES:
            found = case_of(name, parts).carry_out(group)
            save_file(found, folder / f"{group.size}-{group.rank}-{name}.safetensors")
        group.check_equal("weights", b"the same")
        (folder / f"{group.size}-{group.rank}-same").touch()
        try:
            group.check_equal("weights", bytes([group.rank == 1]))
        except RunError:
            (folder / f"{group.size}-{group.rank}-different").touch()

    return in_group(work)
