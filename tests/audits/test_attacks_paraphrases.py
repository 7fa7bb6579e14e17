"""Paraphrases of a canary's prompt: a memorizing model gives its canaries away, one that read none does not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from audited import train_run
from runs import quiet
from tacit.audits.attacks.paraphrases import hits_of, paraphrases, paraphrases_finding, retrieved, rewordings
from tacit.audits.findings import About
from tacit.audits.target import Target
from tacit.common.progress import Progress
from tacit.common.serialize import to_json
from tacit.config.audit_schema import AuditConfig, ParaphrasesConfig
from tacit.data.marked import CanaryRecord
from tacit.runs.folder import RunFolder

SETTINGS = AuditConfig()
SECRET = {"template": "My ID is {4 digits}", "count": 20, "repetitions": 4, "inside_probability": 1.0}
BARE = {"template": "{4 digits}", "count": 16}
OVERFIT = {"mechanism": "plain", "public_epochs": 60, "public_batch_size": 12}
BLIND = {"mechanism": "redaction", "public_epochs": 3}


def target_of(folder: Path, plan: dict[str, object]) -> Target:
    more = {"max_full_tokens": 64, "max_tokens": 64}
    return Target.of(RunFolder.view(train_run(folder, plan, [SECRET, BARE], **more)))


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return target_of(tmp_path_factory.mktemp("leaky"), OVERFIT)


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return target_of(tmp_path_factory.mktemp("blank"), BLIND)


def test_a_memorizing_model_is_caught_and_one_that_read_no_value_is_not(leaky: Target, blank: Target) -> None:
    """p is below 1e-3 with probability 1e-3 at most if nothing is known. A bare template is not asked for."""
    (found,), (nothing,) = (paraphrases(target, SETTINGS, quiet) for target in (leaky, blank))
    assert found.prompts == nothing.prompts == 20
    assert found.p < 1e-3
    assert found.by_itself[0].count > found.by_itself[1].count
    assert nothing.p > 1e-3


def test_the_finding_may_leave_and_has_no_value_in_it(leaky: Target) -> None:
    seen: list[Progress] = []
    found = paraphrases(leaky, SETTINGS, seen.append)
    assert (seen[-1].stage, seen[-1].done, seen[-1].total) == ("paraphrases", 21, 21)
    assert found == paraphrases(leaky, SETTINGS, quiet)
    finding = paraphrases_finding(found)
    assert finding.about is About.CANARIES
    assert f"{found[0].by_any[0].count} of 20 planted secrets" in finding.sentence
    written = str(to_json(finding))
    values = [value for one in leaky.planted for canary in one.canaries for value in (canary.value, canary.twin_value)]
    assert not [value for value in values if f"'{value}'" in written or f" {value} " in written]
    assert "not tried" in paraphrases_finding(()).hint


def test_rewordings_are_others_and_keep_the_label_of_a_speaker() -> None:
    others = rewordings("USR: My ID is", 20, 0)
    assert len(set(others)) == 20
    assert "USR: My ID is" not in others
    assert all(one.startswith("USR: ") and one[5].isupper() for one in others)
    assert others != rewordings("USR: My ID is", 20, 1)


def test_counts_and_the_test_of_pairs() -> None:
    """Ten canaries, of which four come out alone, one with its twin, and of one the twin alone."""
    inside = [CanaryRecord(f"c{at}", "", f"{at:04}", True, 1, "", f"{at + 5000:04}") for at in range(10)]
    said = [["0000 x"], ["0001", "0002!", "0003", "5003", "0004"], ["0000", "5009", "9999", "x0005"]]
    found = retrieved("t", np.array([hits_of(inside, texts) for texts in said]))
    assert (found.by_itself[0].count, found.by_itself[1].count) == (1, 0)
    assert (found.by_any[0].count, found.by_any[1].count) == (5, 2)
    assert found.each == (2.5, 1.0)
    assert found.p == pytest.approx(stats.binomtest(4, 5, alternative="greater").pvalue)
    assert retrieved("t", np.array([hits_of(inside, ()), hits_of(inside, ())])).p == 1


def test_fewer_rewordings_can_be_asked_for(blank: Target) -> None:
    (found,) = paraphrases(blank, replace(SETTINGS, paraphrases=ParaphrasesConfig(paraphrases=3, values=5)), quiet)
    assert found.prompts == 3
