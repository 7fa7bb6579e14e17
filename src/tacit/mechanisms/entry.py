"""A mechanism's entry in the registry: declared in its own file, so that nobody else has to know it by name."""

from collections.abc import Callable
from dataclasses import dataclass

from tacit.config.model_schema import OptimizerConfig
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import Mechanism, Needs, PrivateSteps, PublicSteps
from tacit.mechanisms.settings import PlanSettings
from tacit.privacy.plan import Unit

OF_PUBLIC_STEPS = frozenset({"public_batch_size", "public_epochs", "epochs"})
OF_PRINTED_STEPS = frozenset(
    {"noise_multiplier", "delta", "expected_batch_size", "sampling_rate", "epochs", "steps", "clip_norm"}
)  # algorithms as printed clip and move as printed
AS_PRINTED = OptimizerConfig("sgd", lr_scheduler="none")
"""The rule of Selective-DPSGD and CADP-LM for both kinds of gradient; its learning rate is a setting."""
OF_PRIVATE_STEPS = OF_PRINTED_STEPS | {"clip_style", "trainable"}


@dataclass(frozen=True, slots=True)
class MechanismEntry:
    """Name and summary, how the mechanism is built from settings and of which class it is, and what it needs.

    units: whom its claim is about; none where nothing is claimed. also_called: what papers call it.
    """

    name: str
    summary: str
    build: Callable[[PlanSettings], Mechanism]
    kind: type[Mechanism]
    units: tuple[Unit, ...]
    needs: Needs
    also_called: tuple[str, ...] = ()


def routed_steps(words: PlanSettings) -> tuple[PublicSteps, PrivateSteps]:
    """Public steps on the cleared records, private ones on the flagged."""
    records, flagged = words.need("records"), words.need("flagged")
    if flagged >= records:
        raise ConfigError("fewer flagged records than records", f"{flagged} of {records}", "use dpsgd: all is flagged")
    return words.public(records - flagged), words.private(flagged)
