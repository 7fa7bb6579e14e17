"""Mechanisms that are broken on purpose: each is caught by an attack, and the same one unbroken is not.

Noise that is too small is caught by gradient canaries (tests/claims/test_worst_case.py): no canary of text is needed
where the noisy sums themselves can be seen.
"""

from pathlib import Path
from typing import Any

import pytest

from audited import measure, train_run
from runs import quiet
from tacit.audits.audit import audit
from tacit.audits.findings import Outcome
from tacit.config.audit_schema import AuditConfig
from tacit.data import batches
from tacit.data.store import PreparedCorpus
from tacit.data.viewed import Inventions, ViewedRow, tokens_of
from tacit.privacy.plan import View

SETTINGS = AuditConfig(candidates=20, secrets=1)
PLAN = {
    "mechanism": "selective",
    "noise_multiplier": 20.0,
    "steps": 3,
    "expected_batch_size": 20,
    "public_epochs": 30,
    "public_batch_size": 12,
}
SECRET = {"template": "or {4 digits}", "count": 60, "inside_probability": 1.0}
PHONE = {"template": "Call {4 digits}", "count": 16, "repetitions": 4, "known": False, "inside_probability": 1.0}
SLOW: dict[str, Any] = {"private": {"optimizer": "sgd", "learning_rate": 0.01}}  # so much noise would undo the rest
NAMES = ["exposure", "epsilon", "power"]


def _leaking(store: PreparedCorpus, row: int, view: View, inventions: Inventions | None) -> ViewedRow:
    """The public view of a canary contains its value."""
    whole = tokens_of(store, row, View.FULL, inventions)
    if view is View.FULL or not store.record_id(row).startswith("canary-"):
        return tokens_of(store, row, view, inventions)
    return whole._replace(secret=whole.secret & False)


@pytest.mark.statistical
@pytest.mark.parametrize("broken", [True, False])
def test_a_canary_left_in_the_public_view_contradicts_the_claim(
    broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False alarm of the unbroken one: 5 % for the verdict; the seed is fixed. It says what it could have found."""
    if broken:
        monkeypatch.setattr(batches, "tokens_of", _leaking)
    found = audit(train_run(tmp_path, PLAN, [SECRET], **SLOW), SETTINGS, quiet, names=NAMES)
    assert found.verdict.outcome is (Outcome.CONTRADICTED if broken else Outcome.CONSISTENT)
    power = next(one for one in found.canaries if one.attack == "power")
    assert not power.warning
    assert power.figures["epsilon of the positive control"] > 0.5
    assert ("No canary gave anything away" in power.sentence) is not broken


@pytest.mark.statistical
@pytest.mark.parametrize(("policy", "blind"), [("gold", True), ("gold,digits", False)])
def test_a_policy_that_is_blind_to_one_kind_is_caught(policy: str, blind: bool, tmp_path: Path) -> None:
    """Phone numbers that nobody tells the policy of. False alarm: 1e-4 where it is blind, .1 % where it is not."""
    (found,) = measure(train_run(tmp_path, PLAN, [PHONE], policy=policy, **SLOW), SETTINGS).canaries
    excess = found.exposure.excess
    assert excess is not None
    assert found.known is not blind
    assert excess.p_all < 1e-4 if blind else excess.p_all > 1e-3
