"""All that can be refused before the corpus is read and a folder made, because no corpus could make it right."""

from dataclasses import replace
from pathlib import Path

from tacit.config.audit_schema import AuditConfig
from tacit.config.checks import check_public_steps
from tacit.config.schema import BUILT_IN, CUSTOM_MODELS, Config
from tacit.data.labels import check_learns_labels
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.registry import build_mechanism
from tacit.mechanisms.settings import MeasuredCounts
from tacit.privacy.plan import Unit, View
from tacit.runs.files import ReleaseFile
from tacit.training.callbacks import check_choice
from tacit.training.checks import check_run, duplicates_of

_MANY = 1_000_000  # units, where the corpus was not counted yet


def check_start(config: Config) -> Mechanism:
    """The mechanism, uncalibrated, as it would be for a large corpus; refused where no corpus could make it right."""
    check_run(config)
    _check_audit(config)
    _check_model(config)
    mechanism = build_mechanism(config.plan, _nominal_counts(config))
    check_duplicates(mechanism, config)
    check_public_steps(config, mechanism.plan())
    if config.classifies:
        check_learns_labels(mechanism.plan())
    if config.training.eval_steps is not None:
        check_choice(mechanism, config.training.eval_on)
    return mechanism


def _check_audit(config: Config) -> None:
    """Of the settings under `audit`, training uses the canaries alone; others would be ignored."""
    if replace(config.audit, canaries=()) != AuditConfig():
        raise ConfigError(
            expected="no settings under audit but canaries, when a run is trained",
            found="how hard to attack",
            way_out="leave it out here, and pass it to the audit: tacit audit --candidates, tacit.audit(settings=...)",
        )


def _nominal_counts(config: Config) -> MeasuredCounts:
    many = max(_MANY, 100 * int(config.plan.expected_batch_size or 1))
    units = dict.fromkeys(("records", "secret_records", "users"), many)
    parts = dict.fromkeys(("flagged", "other_records"), many // 2)
    rates = {"sensitive_share": 0.5, "segments_per_record": 1, "events_per_batch": 1.0}
    return {name: lambda count=count: count for name, count in {**units, **parts, **rates}.items()}  # type: ignore[misc]


def check_duplicates(mechanism: Mechanism, config: Config) -> None:
    """One record may not decide about another; equal redacted texts may, for secrets and where all is redacted."""
    secrets_only = all(neighbours.unit == Unit.SECRETS for neighbours in mechanism.notions())
    redacted_only = all(step.view == View.REDACTED for step in mechanism.plan().executions())
    if duplicates_of(config) != "keep" and not (secrets_only or redacted_only):
        raise ClaimRefused(
            expected=f"duplicates: keep, under the claim of {mechanism.name}",
            found=f"duplicates: {duplicates_of(config)}, which lets one record decide about another",
            way_out="leave duplicates out",
        )


def _check_model(config: Config) -> None:
    """Refuse a folder that is none, and a run of tacit's: what it spent would be part of the claim."""
    if config.is_new:
        return
    folder = Path(config.model)
    ours = (folder / place / name for place in (".", "release") for name in (ReleaseFile.LEDGER, ReleaseFile.GUARANTEE))
    if any(file.exists() for file in ours):
        raise ClaimRefused(
            expected="a base model from elsewhere, or a new one",
            found="a run of tacit, whose own spending would have to be added to this run's",
            way_out="train from the model that run began with, or use model: lstm or gpt",
        )
    if not folder.is_dir():
        names = ", ".join((*BUILT_IN, *CUSTOM_MODELS))
        raise ConfigError(f"a model ({names}) or a local Hugging Face folder", repr(config.model), "check the name")
