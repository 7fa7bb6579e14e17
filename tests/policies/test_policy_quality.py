"""What the rules find of the half of the labeled set that they were written with: less than this is a regression.

Floors are somewhat below what was measured; docs/policies.md has the figures of the half that was held out.
"""

import pytest

from labeled_pii import GROUPS, examples
from measured_policies import ALL, Findings, measure, stability
from tacit.policies.policy import Policy
from tacit.policies.registry import parse_policy

LEAST = {
    "pii": {"PERSON": 0.7, "PLACE": 0.1, "ORG": 0.05, "ADDRESS": 0.9, "AGE": 0.84, "ID": 0.88, "USERNAME": 0.85}
    | {ALL: 0.76},
    "conservative": {"ORG": 0.87, "AGE": 0.9, ALL: 0.95, "lower": 0.92, "caps": 0.96, "breaks": 0.9, "plain": 0.95},
}
PRECISION = {"pii": 0.95, "conservative": 0.6}
STABLE = {"pii": 0.95, "conservative": 0.95}
_measured: dict[str, Findings] = {}


def findings(name: str) -> Findings:
    if name not in _measured:
        _measured[name] = measure(parse_policy(name), examples("dev"))
    return _measured[name]


@pytest.mark.parametrize("name", LEAST)
def test_recall_stays(name: str) -> None:
    found = findings(name)
    floors = dict.fromkeys(GROUPS, 0.88) | LEAST[name]
    low = {group: found.recall(group) for group, least in floors.items() if found.recall(group) < least}
    assert not low


@pytest.mark.parametrize("name", PRECISION)
def test_precision_stays(name: str) -> None:
    assert findings(name).precision >= PRECISION[name]


@pytest.mark.parametrize("name", STABLE)
def test_the_mask_hardly_depends_on_what_secrets_say(name: str) -> None:
    counts = stability(parse_policy(name), examples("dev")[::6])
    assert counts.spans >= 200
    assert 1 - counts.rest_changed / counts.spans >= STABLE[name]


def test_a_policy_that_finds_little_would_be_noticed() -> None:
    """The control: the floors tell a blind policy from ours."""
    blind: Policy = parse_policy("digits")
    found = measure(blind, examples("dev")[::4])
    assert found.recall(ALL) < LEAST["pii"][ALL]
    assert found.recall("PERSON") < LEAST["pii"]["PERSON"]
