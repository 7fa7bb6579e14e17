"""What a configuration needs because of its mechanism; what can be refused before the corpus is read."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from tacit.config.load import Layer, check_public_steps, check_used, load_config, require
from tacit.config.model_schema import LoRAConfig
from tacit.config.schema import BUILT_IN, CUSTOM_MODELS, Config
from tacit.config.setting import Duplicates, PublicView
from tacit.data.labels import check_learns_labels
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.mechanism import Mechanism, Needs
from tacit.mechanisms.registry import build_mechanism, entries, entry_of
from tacit.mechanisms.settings import ALWAYS_USED, MeasuredCounts, refuse_unused
from tacit.privacy.plan import Unit, View
from tacit.runs.folder import RunFolder, is_run, whole_run
from tacit.runs.release import ReleaseFile


def needs_of(config: Config) -> Needs:
    """What the mechanism that was asked for needs."""
    return entry_of(config.plan.mechanism).needs


def duplicates_of(config: Config) -> Duplicates:
    """Which repeated redacted text is left out."""
    return config.data.duplicates or needs_of(config).duplicates


def public_view(config: Config) -> PublicView:
    """What public steps read in place of secrets."""
    return config.plan.public_view or needs_of(config).public_view


def invents(config: Config) -> bool:
    return public_view(config) != "redacted"


def public_choice(config: Config) -> str | None:
    """The corpus declared public that chooses the model, if one does."""
    on = config.training.eval_on
    return on if config.training.eval_steps is not None and on not in ("redacted", "full") else None


def load_checked(*layers: Layer) -> Config:
    """The settings of all layers, later ones over earlier ones, checked."""
    config = load_config(*layers)
    check_run(config)
    return config


def check_run(config: Config) -> None:
    """Refuse settings that contradict each other, and those that nothing would use."""
    check_used(config)
    needs, data, marking = needs_of(config), config.data, config.marking
    listed = needs.entities or (marking.entity_kinds is None and marking.aliases is None)
    routed = needs.conservative or marking.conservative_policy is None
    owned = needs.users or data.user_source == "given"
    require(listed, f"entities for {_those_with('entities')}", "leave entity_kinds and aliases out")
    require(routed, f"a conservative policy for {_those_with('conservative')}", "leave conservative_policy out")
    require(owned, f"user_source for {_those_with('users')}", "leave user_source out")
    timed = config.training.minutes is None or (config.plan.epochs is None and config.plan.steps is None)
    require(timed, "minutes, or epochs or steps", "leave one of them out: minutes decide how many there are")
    learned = config.tokenizer_name == "bpe"
    require(
        config.training.minutes is None or not learned,
        "a tokenizer that is known before the corpus is read, with minutes",
        "use tokenizer: english, bytes or a file; or give epochs",
    )
    invented = invents(config) or not marking.inventions
    require(invented, "inventions where secrets are invented (plan.public_view)", "leave them out")
    if needs.private_rule is not None:
        _check_private_rule(config, asdict(needs.private_rule))
    if needs.settings is not None:
        given = {name for name, value in asdict(config.plan).items() if value is not None}
        refuse_unused(config.plan.mechanism, given - needs.settings - ALWAYS_USED)


def _check_private_rule(config: Config, fixed: Mapping[str, Any]) -> None:
    given = {name: value for name, value in asdict(config.private).items() if name != "learning_rate"}
    other = [f"private.{name}: {value}" for name, value in given.items() if value not in (None, fixed[name])]
    if other:
        raise ConfigError(
            expected=f"the private steps of {config.plan.mechanism} as printed: {fixed['optimizer']} with a constant "
            "learning rate",
            found=", ".join(other),
            way_out="leave it out: private.learning_rate alone can be chosen",
        )


def _those_with(need: Literal["entities", "conservative", "users"]) -> str:
    return " and ".join(entry.name for entry in entries() if getattr(entry.needs, need))


_MANY = 1_000_000  # units, where the corpus was not counted yet


def check_start(config: Config) -> Mechanism:
    """The mechanism, uncalibrated, as it would be for a large corpus; refused where no corpus could make it right."""
    check_run(config)
    check_beginning(config)
    mechanism = build_mechanism(config.plan, _nominal_counts(config))
    check_mechanism(config, mechanism)
    return mechanism


def check_mechanism(config: Config, mechanism: Mechanism) -> None:
    """Refuse settings that the steps or the claim of `mechanism` do not allow."""
    _check_duplicates(mechanism, config)
    check_public_steps(config, mechanism.plan())
    if config.classifies:
        check_learns_labels(mechanism.plan())
    if config.training.eval_steps is not None:
        _check_choice(mechanism, config.training.eval_on)


def _nominal_counts(config: Config) -> MeasuredCounts:
    many = max(_MANY, 100 * int(config.plan.expected_batch_size or 1))
    units = dict.fromkeys(("records", "secret_records", "users"), many)
    parts = dict.fromkeys(("flagged", "other_records"), many // 2)
    rates = {"sensitive_share": 0.5, "segments_per_record": 1, "events_per_batch": 1.0}
    return {name: lambda count=count: count for name, count in {**units, **parts, **rates}.items()}  # type: ignore[misc]


def _check_duplicates(mechanism: Mechanism, config: Config) -> None:
    """One record may not decide about another; equal redacted texts may, for secrets and where no secret is read."""
    secrets_only = all(neighbors.unit == Unit.SECRETS for neighbors in mechanism.notions())
    alike = all(step.view in (View.REDACTED, View.INVENTED) for step in mechanism.plan().executions())
    if duplicates_of(config) != "keep" and not (secrets_only or alike):
        raise ClaimRefused(
            expected=f"duplicates: keep, under the claim of {mechanism.name}",
            found=f"duplicates: {duplicates_of(config)}, which lets one record decide about another",
            way_out="leave duplicates out",
        )


def _check_choice(mechanism: Mechanism, on: str) -> None:
    """Refuse a look at text that the claim protects."""
    refused = mechanism.notions() if on == "full" else [n for n in mechanism.notions() if n.unit != Unit.SECRETS]
    if on in ("full", "redacted") and refused:
        raise ClaimRefused(
            expected="a model chosen on public text",
            found=f"the {on} view of held-out records, under a claim about {refused[0].unit}",
            way_out="eval_on: a corpus that is public, or take the last model (leave eval_steps out)",
        )


def check_beginning(config: Config) -> None:
    """Refuse a folder that is none, and settings that a run decides which is the base."""
    folder = Path(config.model)
    require(
        not config.plan.disjoint_from_model or (not config.is_new and is_run(folder)),
        "disjoint_from_model with the model of an earlier run",
        "leave it out: a model from elsewhere is an assumption of every claim",
    )
    require(
        config.execution.fsdp == "none" or config.lora is not None,
        "adapters (lora) with fsdp, which shares the weights that do not move",
        "add --lora-rank 8, or leave execution.fsdp out",
    )
    base = base_architecture(config)
    if base is not None:
        _check_base(config, base)
    elif not config.is_new and not folder.is_dir():
        names = ", ".join((*BUILT_IN, *CUSTOM_MODELS))
        found, way_out = repr(config.model), "check the name"
        raise ConfigError(f"a model ({names}), a local Hugging Face folder or the folder of a run", found, way_out)


def base_architecture(config: Config) -> dict[str, Any] | None:
    """The description of the model that a run begins with; None where that is not the model of a run."""
    if config.is_new or not is_run(Path(config.model)):
        return None
    return RunFolder.view(whole_run(Path(config.model))).read_json(dict, ReleaseFile.ARCHITECTURE)


def with_adapters_of_base(config: Config) -> Config:
    """The settings of a run that trains the adapters of an earlier one on: they are those of that run."""
    base = base_architecture(config)
    if config.lora is not None or base is None or base.get("lora") is None:
        return config
    return replace(config, lora=LoRAConfig(**base["lora"]))


def _check_base(config: Config, architecture: Mapping[str, Any]) -> None:
    """Refuse what the model of an earlier run decides itself."""
    kind = str(architecture.get("kind"))
    classifies = kind.endswith("classifier")
    if config.classifies != classifies:
        found = "a classifier" if classifies else "a language model"
        raise ConfigError(f"an earlier run with task: {config.task}", found, "set the task of that run")
    classes = tuple(architecture["settings"]["classes"]) if classifies else None
    if classes != config.classes:
        listed = ", ".join(classes or ())
        raise ConfigError(f"the classes of the earlier run in its order: {listed}", "others", "give the same list")
    require(config.tokenizer_name == "model", "the tokenizer of the earlier run", "leave tokenizer out")
    _check_adapters(config, kind, architecture.get("lora"))
    bfloat = config.execution.precision == "bfloat16" and kind.startswith("lstm")
    require(not bfloat, "float32 for the lstm", "leave precision out")


def _check_adapters(config: Config, kind: str, known: Mapping[str, Any] | None) -> None:
    """Refuse other adapters than those of the earlier run; a language model without any may get new ones."""
    if config.lora is None or (known is None and kind == "gpt"):
        return
    same = known is not None and replace(LoRAConfig(**known), base_name=config.lora.base_name) == config.lora
    if not same:
        merge = "; or begin with the folder that `tacit export RUN --merged FOLDER` writes: it has the claim of the run"
        raise ConfigError(
            expected="the adapters of the earlier run, with its lora settings",
            found="others" if known is not None else "adapters for a model that has none",
            way_out=f"leave lora out to train on what the run has{merge if kind == 'gpt' else ''}",
        )
