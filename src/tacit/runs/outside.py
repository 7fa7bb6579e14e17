"""What of a run's results may leave; `private/` has them whole (theory, section 9: nothing exact leaves).

G1 (hashes). A policy's hash leaves as it is only if the policy has nothing but what comes with tacit. Every other hash
   of a person's words, of a model's folder or of strings of the corpus is keyed, and the key stays.
G2 (counts). Labelled training records are counted inside alone. A released claim states that they were counted.
G3 (utility). It leaves as one noisy sum (`tacit.privacy.noisy_utility`), counted by the ledger before it is written.
G4 (attacks). Of an audit only canaries leave, which are made up, and what they show about epsilon. Where equal texts
   were left out, a record of the corpus may decide whether a canary was read: then no bound leaves either.
"""

import re
from dataclasses import replace
from random import Random

from tacit.common.files import keyed
from tacit.mechanisms.terms import Terms
from tacit.policies.policy import Policy
from tacit.privacy.guarantee import Evidence
from tacit.privacy.noisy_utility import STEP, Contributions, noisy
from tacit.runs.files import ReleaseFile
from tacit.runs.folder import RunFolder

_DIGEST = re.compile(r", SHA-256 [0-9a-f]+")
"""In what a detector's card states of the files it was trained on, which may have the words of a person."""


def hash_outside(policy: Policy, key: bytes) -> str:
    """The hash of a policy as it may leave: under one key, equal for equal policies."""
    return policy.hash if policy.public else keyed(key, policy.hash)


def evidence_outside(evidence: Evidence, policy: Policy, key: bytes) -> Evidence:
    """What a released claim may be concluded from."""
    entities = evidence.entity_list_hash
    return replace(
        evidence,
        policy_hash=hash_outside(policy, key),
        entity_list_hash=None if entities is None else keyed(key, entities),
        detector_data=None if evidence.detector_data is None else _DIGEST.sub("", evidence.detector_data),
        coverage=None,
        conservative_coverage=None,
        among_secrets=None,
        coverage_inside=evidence.coverage is not None or evidence.conservative_coverage is not None,
    )


def release_utility(run: RunFolder, contributions: Contributions, rng: Random) -> None:
    """Write release/utility.json, once: a second sum would be a second release, and the ledger counts each."""
    measuring = run.read_json(Terms, ReleaseFile.PLAN).measuring
    if run.path(ReleaseFile.UTILITY).exists() or measuring is None:
        return
    run.ledger.charge(STEP)
    run.write_json(ReleaseFile.UTILITY, noisy(contributions, measuring.noise_multiplier, rng))
