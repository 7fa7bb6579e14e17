"""`PrivateStep`: differentially private steps in a training loop of one's own."""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import ClaimRefused, ConfigError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from tacit.privacy.guarantee import Guarantee
    from tacit.privacy.plan import ClipStyle

_SEEDED = "seeded"


class PrivateStep(AbstractContextManager["PrivateStep"]):
    """Private steps in your own loop: each draws records, clips, adds noise, charges a ledger, steps your optimizer.

    This is DP-SGD on whole records, `mechanism="dpsgd"` of `tacit.train`. Learning-rate schedulers work as usual.
    Between private steps you may train on public data, with this optimizer or another. What your loop computes from
    the records in any other way is not covered: a scheduler, an early stop or a log that reads their losses voids the
    claim. Dropout is off inside a private step.

    Args:
        module: a causal language model or a sequence classifier of transformers, a PeftModel of one, or any network
            whose `forward` takes tokens (rows, time) and returns what its linear layer `head` returns, (rows, time,
            vocabulary).
        optimizer: any optimizer of torch for the trainable parameters of `module`.
        records: one per person or document. Each is a list of token ids, or a dictionary with `input_ids` and, where
            not every token counts, `labels` (-100 where the loss does not), as in a tokenized `datasets.Dataset`. For a
            classifier, `label` is the number of the class. Anything else if there is a `tokenizer`.
        tokenizer: makes such a row of each record: a Hugging Face tokenizer for texts, or a function of yours.
        ledger: the file that counts what was spent; one per corpus and model. Each step is on the disk before the
            optimizer moves. If the file exists, its count continues, and other prices are refused.
        epsilon: the privacy target, or `noise_multiplier`. epochs: expected passes over the records, or `steps`.
        expected_batch_size: records drawn on average per step. Larger is better, and slower.
        delta: of the guarantee; 1 / (10 x records) if not given. clip_norm, clip_style: as in the settings of a plan.
        microbatch_tokens: tokens in memory at a time; lower it if memory runs out. Results do not change.
        seed: repeats an experiment. Leave it out for a model that others will see: there is no guarantee against
            anyone who knows the seed.

    Examples:
        >>> import tacit, torch
        >>> class Bigrams(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.embedding = torch.nn.Embedding(256, 16)
        ...         self.head = torch.nn.Linear(16, 256)
        ...     def forward(self, tokens):
        ...         return self.head(self.embedding(tokens))
        >>> model = Bigrams()
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        >>> letters = [f"Dear {name}, your code is {n}." for n, name in enumerate(["Ann", "Bo", "Cy", "Di"] * 50)]
        >>> with tacit.PrivateStep(
        ...     model, optimizer, letters, tokenizer=lambda text: list(text.encode()),
        ...     ledger="ledger.jsonl", epsilon=8, epochs=3, expected_batch_size=50,
        ... ) as private:
        ...     for _ in range(private.steps):
        ...         private.step()
        >>> print(private.guarantee().sentence())  # doctest: +ELLIPSIS
        Each training record has (..., 0.0005)-differential privacy, zero-out: the released model is this close ...
    """

    def __init__(
        self,
        module: "nn.Module",
        optimizer: "Optimizer",
        records: Iterable[Any],
        *,
        ledger: str | Path,
        tokenizer: Callable[[Any], Any] | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        expected_batch_size: float | None = None,
        delta: float | None = None,
        clip_norm: float | None = None,
        clip_style: "ClipStyle | None" = None,
        microbatch_tokens: int | None = None,
        seed: int | None = None,
    ) -> None:
        from tacit.mechanisms import dpsgd
        from tacit.mechanisms.build import Terms, plan
        from tacit.mechanisms.registry import describe
        from tacit.privacy.ledger import Ledger
        from tacit.training.own_loop import OwnLoop
        from tacit.training.randomness import Streams

        asked = {
            "epsilon": epsilon,
            "noise_multiplier": noise_multiplier,
            "epochs": epochs,
            "steps": steps,
            "expected_batch_size": expected_batch_size,
            "delta": delta,
            "clip_norm": clip_norm,
            "clip_style": clip_style,
        }
        loop = OwnLoop(module, optimizer, records, tokenizer, microbatch_tokens)
        given = {name: value for name, value in asked.items() if value is not None}
        planned = plan({"mechanism": dpsgd.ENTRY.name, "records": loop.records, **given})
        ((self._step, self.steps),) = planned.plan.executions().items()
        self._terms = Terms(describe(planned.mechanism), planned.plan, loop.classifies)
        self._loop, self._carry_out = loop, loop.execute(planned.plan)
        self._streams = Streams.release() if seed is None else Streams.research(seed)
        self._process = os.getpid()
        self._ledger = Ledger.open(Path(ledger)) if Path(ledger).exists() else Ledger.create(Path(ledger))
        self._close = weakref.finalize(self, self._ledger.close)
        try:
            self._declare(seeded=seed is not None)
        except BaseException:
            self.close()
            raise

    @property
    def done(self) -> int:
        """Private steps that were charged so far, in this process and in earlier ones."""
        return self._ledger.charges()[self._step.name]

    def step(self, *, return_private: bool = False) -> "Mapping[str, float] | None":
        """One private step; refused after the last one that was planned. It returns nothing unless asked.

        Args:
            return_private: return exact figures of the drawn records: how many there were, their mean loss per token,
                the median norm of their gradients. The guarantee does not cover them: keep them to yourself.
        """
        if os.getpid() != self._process:
            raise ClaimRefused(
                expected="steps in the process that made this object",
                found="a copy of that process, with the same noise",
                way_out="make a PrivateStep, with a ledger of its own, in each process",
            )
        if self.done >= self.steps:
            raise ClaimRefused(
                expected=f"at most the {self.steps} steps that were planned and priced",
                found="one more",
                way_out="plan more epochs or steps from the start: the noise depends on their number",
            )
        self._loop.check()
        self._ledger.charge(self._step.name)
        exact = self._carry_out(self._step, self._streams)
        return exact if return_private else None

    def guarantee(self) -> "Guarantee":
        """What is guaranteed when all planned steps are done; true also of a model that was taken earlier."""
        return self._concluded(chooses=True)

    def spent(self) -> "Guarantee":
        """What is guaranteed of the steps that were done, if their number was not chosen by looking at the models."""
        from tacit.mechanisms.mechanism import STOP_DECIDED

        spent = self._concluded(chooses=False)
        return spent if self.done >= self.steps else replace(spent, holds_if=(*spent.holds_if, STOP_DECIDED))

    def close(self) -> None:
        """Let go of the ledger, so that another process may use it."""
        self._close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _declare(self, *, seeded: bool) -> None:
        from tacit.privacy.events import Free

        for name, prices in self._terms.prices().items():
            self._ledger.declare(name, prices)
        if seeded and self.done:
            raise ConfigError(
                expected="a new ledger with a seed, which repeats draws and noise from the first step on",
                found=f"{self.done} steps in the ledger",
                way_out="leave the seed out, or begin again with another ledger",
            )
        if seeded:
            self._ledger.declare(_SEEDED, dict.fromkeys(prices, Free("marks steps whose noise a seed repeats")))

    def _concluded(self, *, chooses: bool) -> "Guarantee":
        from tacit.mechanisms.mechanism import OWN_LOOP
        from tacit.privacy.guarantee import Evidence

        charges = self._ledger.charges()
        evidence = Evidence(pretrained=True, accelerated=self._loop.accelerated, repeatable=_SEEDED in charges)
        concluded = replace(self._terms, chooses=chooses).conclude(charges, evidence)
        return replace(concluded, holds_if=(*concluded.holds_if, OWN_LOOP))
