"""`execution.fsdp: base`: a model whose frozen layers are shared among the ranks of a group (`tacit.models.shards`).

G1 (same base). Ranks with other files of the base model than rank 0 stop before the first step: each keeps a share of
   its own.
G2 (tried). A model whose layers cannot be shared is refused by one pass of made-up tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributed.device_mesh import DeviceMesh

from tacit.common.libraries import foreign
from tacit.common.machine import keep_large_apart
from tacit.config.schema import Config
from tacit.errors import ConfigError, ModelError
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner, speaking
from tacit.models.shards import CutWeights, cut_on_arrival, share_blocks
from tacit.models.transformers_model import TransformersModel, weights_digest
from tacit.training.group import Group


def shares_base(config: Config) -> bool:
    """Whether each process is to keep a share of the base model."""
    return config.execution.fsdp == "base"


def check_processes(config: Config, group: Group) -> None:
    """Refuse a base model that is shared among one."""
    if shares_base(config) and group.size == 1:
        raise ConfigError(
            expected="several processes, which share the base model (execution.fsdp: base)",
            found="one",
            way_out="add --processes 2 or more, start tacit with torchrun, or leave fsdp out",
        )


@contextmanager
def loading_shares(config: Config, group: Group) -> Iterator[CutWeights | None]:
    """Inside, a model is loaded of which this rank keeps a share, if that was asked for."""
    if not shares_base(config):
        yield None
        return
    keep_large_apart()
    with cut_on_arrival(group.rank, group.size) as kept:
        yield kept


def share_model(learner: Learner | Classifier, kept: CutWeights, group: Group) -> None:
    """Share the layers of a model that was loaded so; from now on a pass through it needs every rank."""
    assert isinstance(learner, TransformersModel)
    assert learner.base is not None  # others were refused
    group.check_equal("weights of the base model", weights_digest(learner.base).encode())
    mesh = DeviceMesh(group.device.type, list(range(group.size)))
    with foreign(_unshareable):
        share_blocks(learner.module, kept, mesh)
    learner.module.register_forward_pre_hook(lambda *_: group.begin_pass())
    group.passes.together = True


def try_pass(learner: Learner | Classifier) -> None:
    """Refuse a model that reads weights of its layers outside of them, where only shares are."""
    device = next(learner.module.parameters()).device
    with foreign(_unshareable), speaking(learner.module):
        learner.logits(torch.zeros(1, 1, dtype=torch.int64, device=device))


def _unshareable(found: str) -> ModelError:
    return ModelError("a model whose layers can be shared among processes", found, "leave execution.fsdp out")
