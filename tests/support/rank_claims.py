"""What ranks do to noise and to single records, and what ranks that do it wrong would do (theory, T2, T3 and T6)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch._C._distributed_c10d import Store

from forked_ranks import Work, in_group
from rank_cases import SGD, STYLES, Case, all_parts, case_of
from runs import Parts
from tacit.data.store import PreparedCorpus
from tacit.mechanisms.dpsgd import DPSGD
from tacit.privacy.plan import Noisy, Step
from tacit.training.group import Group
from tacit.training.pools import Annotation, DrawnUnits, Pools
from tacit.training.randomness import NoiseStream, Streams
from tacit.training.updates import Updates, UpdateSettings
from worst_case import SHARP, Canary, trained, write_store

RIGHT, HALVED = "", "before a mean"
WRONG = {"own keys": 2**0.5, "shared key": 2.0, "less noise, shared key": 2**0.5, HALVED: 0.5}
"""Ways of adding noise that are wrong for two ranks, and how much noise the sum then has."""
UPDATES = 6
DRAW = (24, 3, 4, 5, 6, 7)  # the first is the longest record by far
DIRECTIONS = 16_000  # of records that are there; as many are not


@dataclass(frozen=True)
class Misplaced(Group):
    """Ranks that add noise of this deviation before they sum, one way or another; none is added afterwards."""

    way: str = RIGHT
    deviation: float = 0.0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        gradients = [one for one in tensors if one.dtype == torch.float32]
        if gradients and (self.way != HALVED or self.writes):
            chance = torch.Generator().manual_seed(10 * next(_SEEDS) + (0 if "shared" in self.way else self.rank))
            for one in gradients:
                deviation = self.deviation / (2**0.5 if "less" in self.way else 1)
                one.add_(deviation * torch.randn(one.shape, generator=chance))
        Group.sum_(self, tensors)
        for one in gradients if self.way == HALVED else ():
            one.div_(self.size)


_SEEDS = iter(range(10**9))


@dataclass(frozen=True)
class Replicated(Group):
    """Ranks that all compute the whole draw."""

    def share(self, costs: np.ndarray) -> np.ndarray:
        return np.arange(len(costs))


def _fields(group: Group) -> tuple[int, int, str, int, torch.device, Store | None]:
    return group.rank, group.size, group.launch, group.restarts, group.device, group.store


def _without_noise() -> AbstractContextManager[Any]:
    return patch.object(NoiseStream, "add_", lambda *_: None)


def noise(case: Case, step: Step, group: Group, way: str) -> np.ndarray:
    """What updates on empty draws move all weights by, in deviations of the noise that was priced."""
    assert isinstance(step.update, Noisy)
    deviation = step.update.noise_multiplier * step.update.clip_norm
    settings = UpdateSettings(private=replace(SGD, learning_rate=step.update.divisor))  # which it undoes
    ranks = Misplaced(*_fields(group), way=way, deviation=deviation) if way else group
    updates = Updates(case.model, case.plan, case.reader, case.parts.pools, settings, ranks)
    streams, found = Streams.research(1), []
    with _without_noise() if way else nullcontext():
        for _ in range(UPDATES):
            before = _weights(case)
            updates.carry_out(step, _drawn(()), streams)
            found.append((_weights(case) - before) / deviation)
    return torch.cat(found).numpy()


def moved(case: Case, step: Step, group: Group) -> np.ndarray:
    """(records,): how far each record of a draw moves the sum of the others, in clip norms; weights are extreme."""
    assert isinstance(step.update, Noisy)
    with torch.no_grad():
        for value in case.model.module.parameters():
            value.mul_(30.0)
    settings = UpdateSettings(private=replace(SGD, learning_rate=step.update.divisor))
    updates = Updates(case.model, case.plan, case.reader, case.parts.pools, settings, group)
    kept = {name: value.detach().clone() for name, value in case.model.module.named_parameters()}

    def summed(rows: tuple[int, ...]) -> Tensor:
        case.model.module.load_state_dict(kept)
        before = _weights(case)
        updates.carry_out(step, _drawn(rows), Streams.research(1))
        return _weights(case) - before

    with _without_noise():
        whole = summed(DRAW)
        rest = [summed(DRAW[:index] + DRAW[index + 1 :]) for index in range(len(DRAW))]
    return np.array([float((whole - one).norm()) / step.update.clip_norm for one in rest])


def audited(store: PreparedCorpus, folder: Path, group: Group) -> np.ndarray:
    """What an attacker sees of each direction: the increments of all private steps."""
    mechanism = DPSGD(SHARP.private(DIRECTIONS))
    return trained(store, Pools(Annotation.of(store)), mechanism, folder, group=group).private


def _weights(case: Case) -> Tensor:
    return torch.cat([value.detach().flatten().double() for value in case.model.module.parameters()])


def _drawn(rows: tuple[int, ...]) -> DrawnUnits:
    return DrawnUnits(np.array(rows, dtype=np.int64), np.arange(len(rows) + 1))


def measure(folder: Path) -> Work:
    """Work for each rank: rank 0 saves what was found in `found.npz`."""
    parts = all_parts(folder)
    canaries = (Canary(number) for number in range(DIRECTIONS))
    store = write_store(folder / "canaries", canaries, 2 * DIRECTIONS)

    def work(group: Group) -> None:
        found = {f"noise {way}": noise(*_case(parts, "dpsgd"), group, way) for way in (RIGHT, *WRONG)}
        found |= {f"moved {style}": moved(*_case(parts, style), group) for style in STYLES}
        replicated = Replicated(*_fields(group))
        found["moved replicated"] = moved(*_case(parts, "dpsgd"), replicated)
        found["audited"] = audited(store, folder / "run", group)
        found["audited replicated"] = audited(store, folder / "replicated", replicated)
        if group.writes:
            np.savez(folder / "found.npz", **found)  # type: ignore[arg-type]

    return in_group(work)


def _case(parts: dict[str, Parts], name: str) -> tuple[Case, Step]:
    case = case_of(name, parts)
    (step,) = case.plan.executions()
    return case, step
