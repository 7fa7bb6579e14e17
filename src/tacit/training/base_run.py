"""The run whose model training begins with (`model: RUN`): read once, compared with the new run, and taken over.

G1 (verified). A run that does not verify is not built on.
G2 (same marks). For claims about what a policy marks, both runs must have had the same policies (theory, section 11).
G3 (vocabulary). The tokenizer comes with the model, and says what it was learned from: with equal policies the redacted
   view, with disjoint corpora text that no unit of this corpus is in, and otherwise nobody knows.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from tacit.common.files import keyed
from tacit.config.schema import Config
from tacit.data.tokenizer import UNKNOWN, Dependence, Tokenizer, VocabularySource, load_tokenizer
from tacit.errors import ClaimRefused
from tacit.mechanisms.build import EarlierRun
from tacit.mechanisms.earlier import DECLARE
from tacit.mechanisms.mechanism import Mechanism
from tacit.policies.marking import Policies
from tacit.privacy.guarantee import BY_POLICY
from tacit.runs.earlier import read_earlier
from tacit.runs.folder import RunFolder, whole_run
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.training.checkpoints import POLICIES, RunIdentity

DISJOINT_CORPUS = Dependence(VocabularySource.PUBLIC_CORPUS, "that of an earlier run, declared disjoint from this one")


@dataclass(frozen=True, slots=True)
class BaseRun:
    """The earlier run in `folder`, and whether it marked its corpus as this one is marked."""

    folder: Path
    earlier: EarlierRun
    same_policies: bool

    @classmethod
    def of(cls, config: Config, policies: Policies) -> "BaseRun | None":
        """The run that `config` begins with; None where the model is new or comes from elsewhere."""
        if config.is_new:
            return None
        folder = whole_run(Path(config.model))
        earlier = read_earlier(folder)
        return None if earlier is None else cls(folder, earlier, _same_policies(folder, earlier, policies))

    def check_claim(self, mechanism: Mechanism, disjoint: bool) -> None:
        """Refuse a claim about secrets that the earlier run may have read as public text."""
        units = [one.unit for one in mechanism.notions() if one.unit in BY_POLICY]
        if units and not disjoint and not self.same_policies:
            raise ClaimRefused(
                expected=f"the policies of the earlier run, for a claim about {units[0]}, which may be in both corpora",
                found="others, or hashes that cannot be compared without the private/ folder of that run",
                way_out=f"use the same policies, and the run folder rather than a copy of its release/; {DECLARE}",
            )

    def tokenizer(self, policies: Policies, disjoint: bool) -> Tokenizer:
        """The tokenizer of the model, with what it depends on as the new run has to see it."""
        tokenizer = load_tokenizer(RunFolder.view(self.folder).path(ReleaseFile.TOKENIZER))
        learned = tokenizer.depends_on
        if learned.free_for_records:
            return tokenizer
        if disjoint:
            return Tokenizer(tokenizer.codec, DISJOINT_CORPUS, tokenizer.special)
        redacted = learned.source is VocabularySource.REDACTED_VIEW and self.same_policies
        known = replace(learned, policy_hash=policies.marking.hash) if redacted else UNKNOWN
        return Tokenizer(tokenizer.codec, known, tokenizer.special)


def _same_policies(folder: Path, earlier: EarlierRun, policies: Policies) -> bool:
    """Whether every run of the chain marked as `policies` do; where that cannot be known, it did not."""
    identity = RunFolder.view(folder).read_optional(RunIdentity, PrivateFile.IDENTITY)
    if identity is not None:
        marked = {name: identity.parts.get(name) for name in POLICIES}
        same = marked == identity_of_policies(bytes.fromhex(identity.key), policies)
    else:
        same = _same_hash(earlier, policies)
    # a run that shared its units with the one before it was checked when it was trained
    chain = earlier.chain()
    apart = (older for later, older in pairwise(chain) if later.terms.disjoint)
    return same and all(_same_hash(older, policies) for older in apart)


def identity_of_policies(key: bytes, policies: Policies) -> dict[str, str | None]:
    """The keyed hash of each policy, as a run's identity has it."""
    marking, conservative = POLICIES
    second = None if policies.conservative is None else keyed(key, conservative, policies.conservative.hash)
    return {marking: keyed(key, marking, policies.marking.hash), conservative: second}


def _same_hash(earlier: EarlierRun, policies: Policies) -> bool:
    """By what was released: only hashes of policies that come with tacit are there as they are."""
    routed = earlier.evidence.conservative_id is not None or policies.conservative is not None
    return not routed and earlier.evidence.policy_hash == policies.marking.hash
