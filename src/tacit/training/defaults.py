"""What optimizers do where a person chose nothing: by the kind of model, and by whether exact steps teach it as well.

Chosen on public corpora (benchmarks/defaults.py; docs/defaults.md has the figures). Nothing here looks at the corpus.
"""

from dataclasses import replace
from typing import Literal, TypeVar

from tacit.config.model_schema import OptimizerConfig
from tacit.config.schema import Config
from tacit.errors import ConfigError
from tacit.mechanisms.registry import entry_of
from tacit.privacy.plan import Plan, Pool
from tacit.training.checks import base_architecture

ModelKind = Literal["english", "lstm", "gpt", "adapters", "folder"]
Rule = TypeVar("Rule", bound=OptimizerConfig)

PUBLIC: dict[ModelKind, OptimizerConfig] = {
    "english": OptimizerConfig("adam", 5e-3),
    "lstm": OptimizerConfig("adam", 5e-3),
    "gpt": OptimizerConfig("adam", 1e-3),
    "adapters": OptimizerConfig("adam", 1e-3),
    "folder": OptimizerConfig("adam", 1e-4),
}
ALONE: dict[ModelKind, OptimizerConfig] = {
    "english": OptimizerConfig("adam", 4e-3),
    "lstm": OptimizerConfig("adam", 1.5e-2),
    "gpt": OptimizerConfig("adam", 3e-3),
    "adapters": OptimizerConfig("adam", 2e-3),
    "folder": OptimizerConfig("adam", 5e-4),
}
"""Of private steps that teach most of the text: the only ones, or those on more than half of the records."""
BESIDE: dict[ModelKind, OptimizerConfig] = {
    "english": OptimizerConfig("sgd", 0.3),
    "lstm": OptimizerConfig("sgd", 0.3),
    "gpt": OptimizerConfig("sgd", 0.3),
    "adapters": OptimizerConfig("sgd", 0.3),
    "folder": OptimizerConfig("sgd", 0.03),
}
"""Of private steps beside exact ones: Adam's are as long as ever when there is little to learn, and undo the others."""

_MOST = 0.5


def kind_of(config: Config) -> ModelKind:
    """The kind of model. One that was registered here is like a gpt; one of an earlier run is as it began."""
    if config.begins_english:
        return "english"
    if config.lora is not None:
        return "adapters"
    architecture = base_architecture(config)
    if architecture is not None:
        return "lstm" if str(architecture.get("kind")).startswith("lstm") else "gpt"
    return "lstm" if config.model == "lstm" else "gpt" if config.is_new else "folder"


def with_defaults(config: Config, plan: Plan, flagged_share: float | None = None) -> Config:
    """The settings, with what the model begins with, and rule, learning rate and schedule of both optimizers.

    plan: has the steps that they will move. flagged_share: of the records, those routed to the protected set, a public
    count; as long as it is not known, the private rule of a plan that depends on it is left as it was given.
    """
    kind, fixed = kind_of(config), entry_of(config.plan.mechanism).needs.private_rule
    if fixed is None and flagged_share is None and is_routed(plan):
        private = config.private
    else:
        default = fixed or (BESIDE if _is_beside(plan, flagged_share) else ALONE)[kind]
        given = config.private if fixed is None else replace(config.private, optimizer=fixed.optimizer)
        private = _filled("private", given, default)
    return replace(
        config,
        initial_weights=_initial_weights(config),
        public=_filled("public", config.public, PUBLIC[kind]),
        private=private,
    )


def is_routed(plan: Plan) -> bool:
    """Whether private steps read the records that a policy or a detector routed to the protected set."""
    return any(step.optimizer == "private" and step.pool == Pool.FLAGGED for step in plan.executions())


def _is_beside(plan: Plan, flagged_share: float | None) -> bool:
    """Whether exact steps teach most of the text."""
    exact = any(step.optimizer == "public" for step in plan.executions())
    return exact and (flagged_share is None or flagged_share < _MOST)


def _initial_weights(config: Config) -> Literal["english", "random"] | None:
    if config.model != "lstm":
        return None
    return "english" if config.begins_english else "random"


def _filled(steps: str, given: Rule, default: OptimizerConfig) -> Rule:
    """A rate without a rule is one of Adam's; a rule without a rate is the default's, or refused."""
    chosen = given.optimizer or ("adam" if given.learning_rate is not None else default.optimizer)
    if given.learning_rate is None and chosen != default.optimizer:
        raise ConfigError(
            expected=f"{steps}.learning_rate with an optimizer other than {default.optimizer}",
            found=f"{steps}.optimizer: {chosen} alone",
            way_out=f"give {steps}.learning_rate, or leave {steps}.optimizer out",
        )
    return replace(
        given,
        optimizer=chosen,
        learning_rate=given.learning_rate or default.learning_rate,
        lr_scheduler=given.lr_scheduler or ("linear" if chosen == "adam" else "none"),
    )
