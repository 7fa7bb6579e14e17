"""What is checked of model and tokenizer before a run writes anything: everything that needs no corpus.

And how many threads a run has. Their number changes rounding and speed, nothing else.
"""

from pathlib import Path

import torch

from tacit.common.machine import available_memory
from tacit.config.load import require
from tacit.config.schema import Config
from tacit.models.folders import check_restores, check_sketch, check_tokenizer_file, memory_need
from tacit.privacy.plan import Plan
from tacit.runs.folder import is_run
from tacit.training.parts import DEFAULT_VOCABULARY, Model, sketch_learner
from tacit.training.sharing import shares_base
from tacit.training.tokenizers import given_tokenizer
from tacit.training.updates import default_positions


def check_model(config: Config, plan: Plan, processes: int = 1) -> None:
    """Refuse a tokenizer or a model folder that is damaged, does not fit the settings, or does not fit into memory.

    processes: how many train the model, and share its frozen layers if that was asked for.
    """
    folder = None if config.is_new else Path(config.model)
    if folder is not None and is_run(folder):
        execution = config.execution
        own = execution.attn_implementation is None and execution.gradient_checkpointing == "none"
        require(own, "attn_implementation and gradient_checkpointing for a folder from elsewhere", "leave them out")
        return  # it was checked when it began, and verifies
    if config.tokenizer_name == "model" and folder is not None:
        check_tokenizer_file(folder)
    tokenizer = given_tokenizer(config)
    if tokenizer is not None and not config.classifies:
        check_restores(tokenizer)
    if folder is None:
        return
    largest = config.data.vocabulary_size or DEFAULT_VOCABULARY
    sketch = sketch_learner(config, largest if tokenizer is None else tokenizer.vocabulary_size)
    check_sketch(folder, sketch)
    _check_memory(config, plan, sketch, processes if shares_base(config) else 1)


def _check_memory(config: Config, plan: Plan, sketch: Model, shares: int) -> None:
    """On another device, the weights alone pass through this machine's memory."""
    used = {step.optimizer for step in plan.executions()}
    rules = [rule for name, rule in (("public", config.public), ("private", config.private)) if name in used]
    whole = config.plan.trainable in (None, "all", "adapters")
    copies = 1 + sum(2 for rule in rules if rule.optimizer != "sgd") if whole else 0
    positions = config.execution.microbatch_tokens or default_positions(sketch.vocabulary_size)
    here = config.execution.device == "cpu"
    memory_need(sketch, positions if here else 0, copies if here else 0, shares).check(available_memory())


def set_threads(config: Config) -> None:
    """As many threads of torch as were asked for; otherwise its own number, which OMP_NUM_THREADS may set."""
    if config.execution.threads is not None:
        torch.set_num_threads(config.execution.threads)
