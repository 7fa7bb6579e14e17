"""The verb `plan`: the price before training."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit.common.serialize import json_values, read_yaml
from tacit.config.load import load
from tacit.config.plan_schema import PlanConfig, PlanRequest
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import Mechanism, calibrated, concluded, planned, with_private
from tacit.mechanisms.registry import build_mechanism
from tacit.mechanisms.settings import MeasuredCounts
from tacit.privacy.account import quick_account
from tacit.privacy.certificate import to_markdown
from tacit.privacy.guarantee import Evidence, Guarantee
from tacit.privacy.plan import Plan, ShuffledPass

CURVE_POINTS = 6


@dataclass(frozen=True, slots=True)
class Planned:
    """A mechanism with all its numbers, its plan, and the guarantee that will be true after it."""

    mechanism: Mechanism
    plan: Plan
    guarantee: Guarantee
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def draws_at_random(self) -> bool:
        """Whether every step draws its units afresh, so that there is a sampling rate."""
        return not any(isinstance(step.draw, ShuffledPass) for step in self.plan.executions())

    def certificate(self) -> str:
        """The whole certificate as Markdown."""
        return to_markdown(self.guarantee)

    def to_json(self) -> dict[str, Any]:
        """Settings as they were given, claim, plan, guarantee, and epsilon over private steps."""
        given = {name: str(value) if isinstance(value, Path) else value for name, value in self.settings.items()}
        priced = {"plan": json_values(self.plan), "guarantee": json_values(self.guarantee), "curve": self.curve()}
        return {"settings": given, "sentence": self.guarantee.sentence(), **priced}

    def curve(self) -> tuple[tuple[int, float], ...]:
        """Private steps done, and the headline's epsilon then."""
        return _curve(self.mechanism)


def plan(
    asked: PlanConfig | Mapping[str, Any], evidence: Evidence | None = None, measured: MeasuredCounts | None = None
) -> Planned:
    """Price what is asked for: `plan({"mechanism": "selective", "epsilon": 2, "records": 9800})`.

    `measured` counts what nobody gave, when there is a corpus to count in.
    """
    request = PlanRequest(asked) if isinstance(asked, PlanConfig) else load(PlanRequest, asked)
    mechanism = build_mechanism(request.plan, measured, request.counts)
    if request.plan.epsilon is not None:
        mechanism = calibrated(mechanism, request.plan.epsilon)
    guarantee = concluded(mechanism, planned(mechanism), evidence or Evidence())
    return Planned(mechanism, mechanism.plan(), guarantee, {} if isinstance(asked, PlanConfig) else dict(asked))


def read_words(path: Path) -> dict[str, Any]:
    """The settings under `plan:` and `counts:` of a YAML file."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("plan"), dict):
        raise ConfigError(f"settings under a top key `plan:` in {path}", "none", "plan: {mechanism: selective, ...}")
    return {**content["plan"], **(content.get("counts") or {})}


def _curve(mechanism: Mechanism) -> tuple[tuple[int, float], ...]:
    private = mechanism.private
    if private is None:
        return ()
    headline = mechanism.notions()[0]
    marks = sorted({round(private.steps * part / CURVE_POINTS) for part in range(1, CURVE_POINTS + 1)} - {0})
    partial = ((done, with_private(mechanism, replace(private, steps=done))) for done in marks)
    return tuple((done, quick_account(part.plan().spend(headline)).epsilon(private.delta)) for done, part in partial)
