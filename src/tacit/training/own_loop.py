"""What a training loop of one's own brings: a module, an optimizer and rows of tokens, as private steps take them.

G1 (one row per record). A record is one row, which enters one clipped gradient of a draw. Nothing is packed or cut.
G2 (noisy alone). What reaches the optimizer is the noisy gradient of each trainable parameter and nothing beside it:
   gradients that were left from elsewhere are cleared first.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.batches import TextBatch
from tacit.errors import ConfigError, CorpusError, ModelError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner
from tacit.models.loading import CustomModel
from tacit.privacy.plan import Noisy, Plan, Step, Targets, View
from tacit.training.gradients.check import check_gradients
from tacit.training.pools import Annotation, Pools
from tacit.training.randomness import Streams
from tacit.training.sampling import Samplers
from tacit.training.updates import Updates, UpdateSettings

IGNORED = -100
"""The label of a token whose loss does not count, as Hugging Face has it."""


def learner_of(module: nn.Module) -> Learner:
    """A causal language model of transformers, with PEFT's adapters or without, or a network with a layer `head`."""
    if _is_a(module, "transformers", "PreTrainedModel") or _is_a(module, "peft", "PeftModel"):
        return CausalLM.of(module)
    head = dict(module.named_children()).get("head")
    if not isinstance(head, nn.Linear):
        raise ModelError(
            expected="a causal language model of transformers, or a network with a linear layer `head`",
            found=type(module).__name__,
            way_out="self.head = nn.Linear(width, tokens); `forward` takes tokens and returns what `head` returns",
        )
    return CustomModel("own", module, head.out_features, sys.maxsize, {})


def _is_a(module: nn.Module, library: str, kind: str) -> bool:
    """Whether it is an object of a library that need not be installed."""
    loaded = sys.modules.get(library)
    return loaded is not None and isinstance(module, getattr(loaded, kind))


class OwnRows:
    """Records as rows of tokens, each checked once: a `BatchReader` with one view, in which all targets count."""

    def __init__(self, rows: Iterable[Any], vocabulary_size: int, context: int) -> None:
        read = [_Row(number, row, vocabulary_size, context) for number, row in enumerate(rows)]
        if not read:
            raise CorpusError("at least one record", "none", "pass the records to train on")
        self._rows = read
        self.longest = max(len(row.tokens) for row in read)

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> TextBatch:
        chosen = [self._rows[int(row)] for row in rows]
        return TextBatch.of_rows([row.tokens.tolist() for row in chosen], [row.counts.tolist() for row in chosen])


class _Row:
    """The tokens of a record, and how much each of them but the first counts."""

    __slots__ = ("_number", "counts", "tokens")

    def __init__(self, number: int, row: Any, vocabulary_size: int, context: int) -> None:  # noqa: ANN401
        self._number = number
        given = row if isinstance(row, Mapping) else {"input_ids": row}
        tokens = self._numbers(given.get("input_ids"), "token ids")
        labels, mask = (
            self._numbers(given.get(name, default), name)
            for name, default in (("labels", tokens), ("attention_mask", np.ones_like(tokens)))
        )
        self._require(len(tokens) == len(labels) == len(mask), "a label and a mask for each token", "more or fewer")
        tokens, labels = tokens[mask != 0], labels[mask != 0]
        known = not len(tokens) or 0 <= tokens.min() <= tokens.max() < vocabulary_size
        self._require(known, f"token ids from 0 to {vocabulary_size - 1}", "others")
        limit = f"at most {context} tokens, which is what the model reads at a time"
        self._require(len(tokens) <= context, limit, str(len(tokens)))
        counts = labels != IGNORED
        repeated = np.array_equal(labels[counts], tokens[counts])
        self._require(repeated, f"labels that repeat input_ids, or are {IGNORED}", "other labels")
        self.tokens, self.counts = tokens.astype(np.int32), counts[1:]

    def _numbers(self, values: Any, what: str) -> np.ndarray:  # noqa: ANN401
        try:
            found = np.asarray(values)
        except ValueError:  # rows within the row
            found = np.empty(())
        whole = found.ndim == 1 and (not found.size or np.issubdtype(found.dtype, np.integer))
        self._require(whole, f"a row of {what}", type(values).__name__)
        return found.astype(np.int64)

    def _require(self, holds: bool, expected: str, found: str) -> None:
        if not holds:
            raise CorpusError(
                expected=f"in record {self._number}, {expected}",
                found=found,
                way_out="give token ids, or `tokenizer`: a Hugging Face tokenizer, or a function that returns token ids"
                " (cut longer records there)",
            )


class OwnOptimizer:
    """An optimizer of torch that moves the trainable parameters of a module along noisy gradients."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._module, self._optimizer = module, optimizer
        self._trainable = self._now_trainable()
        if not self._trainable:
            way_out = "call requires_grad_() on the parameters that should learn, or add adapters"
            raise ModelError("a module with trainable parameters", "one that is frozen", way_out)
        other = {str(value.dtype) for value in self._trainable.values()} - {"torch.float32"}
        if other:
            raise ModelError("trainable parameters in float32", ", ".join(sorted(other)), "call module.float()")
        self.check()

    def check(self) -> None:
        """Refuse an optimizer that moves anything else than what is trainable, and a module that changed."""
        moved = {id(one) for group in self._optimizer.param_groups for one in group["params"] if one.requires_grad}
        now = self._now_trainable()
        if moved != {id(value) for value in now.values()} or now.keys() != self._trainable.keys():
            raise ConfigError(
                expected="an optimizer of all trainable parameters of the module, which stay the same",
                found="parameters that the optimizer lacks, that are not the module's, or that were frozen or"
                " unfrozen since the first step",
                way_out="torch.optim.AdamW([p for p in module.parameters() if p.requires_grad])",
            )

    def apply(self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], noise: float = 0.0) -> None:
        """One step of the optimizer."""
        self._optimizer.zero_grad(set_to_none=True)
        for name, gradient in gradients.items():
            parameters[name].grad = gradient
        self._optimizer.step()

    def _now_trainable(self) -> dict[str, nn.Parameter]:
        return {name: value for name, value in self._module.named_parameters() if value.requires_grad}


class OwnLoop:
    """The module, the rows and the optimizer of a loop of one's own, ready for the private steps of a plan."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        records: Iterable[Any],
        tokenizer: Callable[[Any], Any] | None,
        microbatch_tokens: int | None,
    ) -> None:
        if microbatch_tokens is not None and microbatch_tokens < 1:
            raise ConfigError("microbatch_tokens of at least 1", str(microbatch_tokens), "correct the number")
        self._learner = learner_of(module)
        self._rule = OwnOptimizer(module, optimizer)
        rows = records if tokenizer is None else map(tokenizer, records)
        self._reader = OwnRows(rows, self._learner.vocabulary_size, self._learner.context)
        self._settings = UpdateSettings(positions=microbatch_tokens)
        self.records = len(self._reader)
        self.accelerated = next(module.parameters()).device.type != "cpu"
        self._method = check_gradients(self._learner, longest=self._reader.longest)

    def execute(self, plan: Plan) -> Callable[[Step, Streams], Mapping[str, float]]:
        """What carries out one step of `plan`; what it returns is exact, and private."""
        pools = _pools_of(self.records)
        samplers, updates = Samplers(plan, pools), Updates(self._learner, plan, self._reader, pools, self._settings)
        updates.methods = dict.fromkeys(updates.methods, self._method)

        def carry_out(step: Step, streams: Streams) -> Mapping[str, float]:
            assert isinstance(step.update, Noisy)
            (drawn,) = samplers.draw(step, streams.batches)
            return updates.noisy(step, step.update, drawn.rows, streams, self._rule).private or {}

        return carry_out

    def check(self) -> None:
        """Refuse a module or an optimizer that is not what it was at the start."""
        self._rule.check()


def _pools_of(records: int) -> Pools:
    """Each row is a record, and nothing is marked in it."""
    none = np.zeros(records, dtype=np.int64)
    return Pools(Annotation(np.arange(records, dtype=np.uint64), none.astype(np.uint64), none))
