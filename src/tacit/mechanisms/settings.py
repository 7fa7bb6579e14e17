"""The settings and counts with which a person asks for a mechanism: each is used, or refused.

Each mechanism's file declares its `MechanismEntry`, so that no other module has to know it by name.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tacit.config.model_schema import OptimizerConfig
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.config.setting import every_setting
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import Mechanism, Needs, PrivateSteps, PublicSteps
from tacit.privacy.account import calibrate_noise
from tacit.privacy.events import Gaussian, Relation
from tacit.privacy.plan import Unit

MeasuredCounts = Mapping[str, Callable[[], float]]
"""A corpus's public numbers by the names of `CorpusCounts`, counted when asked for; what a person gives comes first."""
ALWAYS_USED = frozenset({"mechanism", "epsilon", "disjoint_from_model"})
"""Settings of a plan that no mechanism has to ask for."""
START_NOISE = 1.0  # before a mechanism is calibrated to a target epsilon
HAND_FORM_EPSILON = 0.5
OF_PUBLIC_STEPS = frozenset({"public_batch_size", "public_epochs", "epochs"})
OF_PRINTED_STEPS = frozenset(
    {"noise_multiplier", "delta", "expected_batch_size", "sampling_rate", "epochs", "steps", "clip_norm"}
)  # algorithms as printed have their own clipping, and train everything
OF_PRIVATE_STEPS = OF_PRINTED_STEPS | {"clip_style", "trainable"}
AS_PRINTED = OptimizerConfig("sgd", 2e-3, lr_scheduler="none")
"""The rule of Selective-DPSGD and CADP-LM for both kinds of gradient; its learning rate is a setting."""
_DECLARED = {one.name: one for kind in (PlanConfig, CorpusCounts) for one in every_setting(kind)}


def default_batch(population: int) -> float:
    """Expected units per private draw unless a person gives their number."""
    return float(min(population, max(64, population // 40)))


def refuse_unused(mechanism: str, names: Collection[str]) -> None:
    """Refuse settings, if there are any, that the mechanism has no use for."""
    if names:
        raise ConfigError(
            expected=f"settings that {mechanism} uses",
            found=", ".join(sorted(names)),
            way_out="leave them out, or choose a mechanism that uses them",
        )


class PlanSettings:
    """The settings and counts a person gave, handed out one by one, so that what nobody took can be refused."""

    def __init__(
        self, plan: PlanConfig, measured: MeasuredCounts, needs: Needs, counts: CorpusCounts | None = None
    ) -> None:
        self._measured, self._needs = measured, needs
        everything = {**asdict(plan), **asdict(counts or CorpusCounts())}
        self._given = {name: value for name, value in everything.items() if value is not None}
        self._mechanism = plan.mechanism
        self._left = set(self._given) - ALWAYS_USED
        if "epsilon" in self._given and "noise_multiplier" in self._given:
            raise ConfigError("epsilon or noise_multiplier", "both", "give the target epsilon, or the noise by hand")

    def take(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  (the schema has the types)
        """The value of an optional setting or count; where nobody gave it, of the corpus, or as declared."""
        self._left.discard(name)
        if name in self._given:
            return self._given[name]
        if name in self._measured:
            return self._measured[name]()
        auto = _DECLARED[name].auto
        return auto if default is None and not isinstance(auto, str) else default

    def need(self, name: str) -> Any:  # noqa: ANN401
        """The value of a setting or count that this mechanism cannot do without."""
        if name not in self._given and name not in self._measured:
            meaning = _DECLARED[name].help.removesuffix(".")
            raise ConfigError(f"{name} ({meaning})", "nothing", f"add --{name.replace('_', '-')} NUMBER")
        return self.take(name)

    def count(self, name: str) -> int:
        """How many units there are: a number of the corpus, or all its records."""
        return int(self.take(name) or self.need("records"))

    def given(self, name: str) -> bool:
        return name in self._given

    def finish(self) -> None:
        """Refuse what this mechanism has no use for."""
        refuse_unused(self._mechanism, self._left)

    def private(self, population: int, *, as_printed: bool = False) -> PrivateSteps:
        """Private steps over `population` units: batch or sampling rate, epochs or steps, noise or the start of one.

        Algorithms as printed have their own clipping, and train everything: settings for it are left, and refused.
        """
        batch = self._one_of("expected_batch_size", "sampling_rate", default_batch(population))
        expected = batch * population if "sampling_rate" in self._given else batch
        if expected > population:
            raise ConfigError(f"a batch of at most {population} units", str(expected), "lower expected_batch_size")
        epochs = self._one_of("epochs", "steps")
        steps = epochs if "steps" in self._given else math.ceil(epochs * population / expected)
        noise = self.take("noise_multiplier", START_NOISE)
        if "noise_multiplier" not in self._given and "epsilon" not in self._given:
            raise ConfigError(
                "a privacy target", "no privacy target", "pass --epsilon NUMBER (or --noise-multiplier NUMBER)"
            )
        norm, delta = self.take("clip_norm"), self.take("delta")
        if as_printed:
            return PrivateSteps(population, expected, steps, noise, norm, delta)
        style, trainable = self.take("clip_style", "flat"), self.take("trainable", "all")
        return PrivateSteps(population, expected, steps, noise, norm, delta, style, trainable)

    def passes(self, population: int) -> PrivateSteps:
        """As `private` as printed, for a mechanism whose steps are whole passes: epochs are steps."""
        private = self.private(population, as_printed=True)
        return private if "steps" in self._given else replace(private, steps=math.ceil(self.take("epochs")))

    def invents(self) -> bool:
        """Whether invented secrets are read in place of marked ones, which are not counted either."""
        view = self.take("public_view", self._needs.public_view)
        if view == "learned":
            raise ConfigError(
                f"public_view: redacted or invented for {self._mechanism}, which uses no marked secret",
                "public_view: learned, which counts their form",
                "choose invented, or the mechanism selective",
            )
        return bool(view == "invented")

    def without_secrets(self, records: int, delta: float) -> PublicSteps:
        """As `public`, of text without its secrets: with placeholders, or with invented ones. delta: of the claim."""
        view = self.take("public_view", self._needs.public_view)
        noise = self._form_noise(delta) if view == "learned" else None
        return replace(self.public(records), invents=view != "redacted", form_noise=noise)

    def _form_noise(self, delta: float) -> float:
        """The noise multiplier of counts that cost `form_epsilon` by themselves."""
        epsilon = self.take("epsilon")
        own = self.take("form_epsilon", HAND_FORM_EPSILON if epsilon is None else epsilon / 2)
        if epsilon is not None and own >= epsilon:
            raise ConfigError(
                "a form_epsilon below epsilon, which it is part of", f"{own:g} of {epsilon:g}", "lower form_epsilon"
            )
        return calibrate_noise(lambda noise: ((Gaussian(noise, 1, Relation.ZERO_OUT), 1),), own, delta)

    def public(self, records: int) -> PublicSteps:
        """Public steps over `records` records; as many epochs as the private ones by default."""
        batch = min(records, self.take("public_batch_size"))
        epochs = self.take("public_epochs", self.take("epochs"))
        return PublicSteps(batch, math.ceil(epochs * records / batch))

    def _one_of(self, first: str, second: str, default: float | None = None) -> Any:  # noqa: ANN401
        if first in self._given and second in self._given:
            raise ConfigError(f"{first} or {second}", "both", "each decides the other: give one")
        return self.take(second if second in self._given else first, default)


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


def routed_steps(settings: PlanSettings) -> tuple[PublicSteps, PrivateSteps]:
    """Public steps on the cleared records, private ones on the flagged."""
    records, flagged = settings.need("records"), settings.need("flagged")
    if flagged >= records:
        raise ConfigError("fewer flagged records than records", f"{flagged} of {records}", "use dpsgd: all is flagged")
    return settings.public(records - flagged), settings.private(flagged)
