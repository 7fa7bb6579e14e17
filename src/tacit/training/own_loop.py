"""What a training loop of one's own brings: a module, an optimizer and rows of tokens, as private steps take them.

G1 (one row per record). A record is one row, which enters one clipped gradient of a draw. Nothing is packed or cut.
G2 (noisy alone). What reaches the optimizer is the noisy gradient of each trainable parameter and nothing beside it:
   gradients that were left from elsewhere are cleared first.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.batches import LabeledBatch, TextBatch
from tacit.errors import ConfigError, CorpusError, ModelError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner
from tacit.models.loading import CustomModel
from tacit.models.sequence_classifier import SequenceClassifier, require_padding_token
from tacit.privacy.plan import Noisy, Plan, Step, Targets, View
from tacit.training.gradients.check import check_gradients
from tacit.training.pools import Annotation, Pools
from tacit.training.randomness import Streams
from tacit.training.sampling import Samplers
from tacit.training.updates import Updates, UpdateSettings

IGNORED = -100
"""The label of a token whose loss does not count, as Hugging Face has it."""


OwnModel = Learner | SequenceClassifier


def model_of(module: nn.Module) -> OwnModel:
    """A model of transformers, with PEFT's adapters or without, or a network with a layer `head`."""
    if _is_a(module, "transformers", "PreTrainedModel") or _is_a(module, "peft", "PeftModel"):
        if not _classifies(module):
            return CausalLM.of(module)
        require_padding_token(module)
        return SequenceClassifier(module)
    head = dict(module.named_children()).get("head")
    if not isinstance(head, nn.Linear):
        raise ModelError(
            expected="a causal language model or a sequence classifier of transformers, or a network with a linear"
            " layer `head`",
            found=type(module).__name__,
            way_out="self.head = nn.Linear(width, tokens); `forward` takes tokens and returns what `head` returns",
        )
    return CustomModel("own", module, head.out_features, sys.maxsize, {})


def _classifies(module: Any) -> bool:  # noqa: ANN401  (a model of transformers or of PEFT)
    base = module.get_base_model() if _is_a(module, "peft", "PeftModel") else module
    return type(base).__name__.endswith("ForSequenceClassification")


def _is_a(module: nn.Module, library: str, kind: str) -> bool:
    """Whether it is an object of a library that need not be installed."""
    loaded = sys.modules.get(library)
    return loaded is not None and isinstance(module, getattr(loaded, kind))


class OwnRows:
    """Records as rows of tokens, each checked once: a `BatchReader` with one view, in which all targets count."""

    def __init__(self, rows: Iterable[Any], model: OwnModel) -> None:
        self._classifies = isinstance(model, SequenceClassifier)
        self._rows = [_Row(number, row, model) for number, row in enumerate(rows)]
        if not self._rows:
            raise CorpusError("at least one record", "none", "pass the records to train on")
        self.longest = max(len(row.tokens) for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        return np.array([len(self._rows[int(row)].tokens) for row in rows], dtype=np.int64)

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> TextBatch | LabeledBatch:
        chosen = [self._rows[int(row)] for row in rows]
        tokens, learned = [row.tokens.tolist() for row in chosen], [row.learned for row in chosen]
        if self._classifies:
            return LabeledBatch.of_rows(tokens, [int(label) for label in learned])
        return TextBatch.of_rows(tokens, [counts.tolist() for counts in learned])


class _Row:
    """The tokens of a record, and what is learned from it: its class, or how much each token but the first counts."""

    __slots__ = ("_number", "learned", "tokens")

    def __init__(self, number: int, row: Any, model: OwnModel) -> None:  # noqa: ANN401
        self._number = number
        given = row if isinstance(row, Mapping) else {"input_ids": row}
        tokens = self._numbers(given.get("input_ids"), "token ids")
        mask = self._numbers(given.get("attention_mask", np.ones_like(tokens)), "attention_mask", len(tokens)) != 0
        self.tokens = tokens[mask].astype(np.int32)
        if isinstance(model, SequenceClassifier):
            self.learned = self._class(given.get("labels", given.get("label")), model.classes)
            self._require(len(self.tokens) > 0, "at least one token", "none")
        else:
            self.learned = self._counts(tokens, self._numbers(given.get("labels", tokens), "labels", len(tokens)))[mask]
            self.learned = self.learned[1:]
        known = not len(self.tokens) or 0 <= self.tokens.min() <= self.tokens.max() < model.vocabulary_size
        self._require(known, f"token ids from 0 to {model.vocabulary_size - 1}", "others")
        limit = f"at most {model.context} tokens, which is what the model reads at a time"
        self._require(len(self.tokens) <= model.context, limit, str(len(self.tokens)))

    def _counts(self, tokens: np.ndarray, labels: np.ndarray) -> np.ndarray:
        counts: np.ndarray = labels != IGNORED
        repeated = np.array_equal(labels[counts], tokens[counts])
        self._require(repeated, f"labels that repeat input_ids, or are {IGNORED}", "other labels")
        return counts

    def _class(self, label: Any, classes: int) -> np.ndarray:  # noqa: ANN401
        found = np.asarray(label)
        known = found.ndim == 0 and np.issubdtype(found.dtype, np.integer) and 0 <= found < classes
        self._require(bool(known), f"`label`: a class from 0 to {classes - 1}", type(label).__name__)
        return found

    def _numbers(self, values: Any, what: str, length: int | None = None) -> np.ndarray:  # noqa: ANN401
        try:
            found = np.asarray(values)
        except ValueError:  # rows within the row
            found = np.empty(())
        whole = found.ndim == 1 and (not found.size or np.issubdtype(found.dtype, np.integer))
        self._require(whole, f"a row of {what}", type(values).__name__)
        self._require(length is None or len(found) == length, f"{what} for each token", f"{len(found)} of {length}")
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
        if isinstance(records, str | bytes | Mapping | Path):
            found = f"a {type(records).__name__}"
            raise CorpusError("a list of records, or one split of a dataset", found, 'such as dataset["train"]')
        self._model = model_of(module)
        self._rule = OwnOptimizer(module, optimizer)
        rows = records if tokenizer is None else map(tokenizer, records)
        self._reader = OwnRows(rows, self._model)
        self._settings = UpdateSettings(positions=microbatch_tokens)
        self.records, self.classifies = len(self._reader), isinstance(self._model, SequenceClassifier)
        self.accelerated = next(module.parameters()).device.type != "cpu"
        self._method = check_gradients(self._model, longest=self._reader.longest)

    def execute(self, plan: Plan) -> Callable[[Step, Streams], Mapping[str, float]]:
        """What carries out one step of `plan`; what it returns is exact, and private."""
        pools = _pools_of(self.records)
        samplers, updates = Samplers(plan, pools), Updates(self._model, plan, self._reader, pools, self._settings)
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
