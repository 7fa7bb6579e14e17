"""From labels to miss rates.

| theory | here |
|---|---|
| pi, redaction policy | `policy` |
| m: sampled records with a secret that pi missed | `missed`: part of a secret, not a blank, is outside pi's spans |
| pi_c, conservative policy | `conservative` |
| records trained without protection though they hold a secret | `cleared`: pi and pi_c find nothing in them |
| g1, g2 | `coverage.miss_rate`, `conservative_coverage.miss_rate`: upper bounds, never m / n |

A record in which pi finds anything holds a placeholder and is protected whatever pi_c says; where pi finds nothing,
every secret was missed. So `cleared` is exactly how many records with a missed secret reach the unprotected set.

G7 (frozen). Labels measure the policies whose hashes were written when the sample was drawn, and no others.
G8 (sure). A bound is below the true share in at most 5 % of draws if the policy misses fewer than nine records in ten
   (5.2 % beyond): drawing without replacement sharpens Clopper-Pearson but for shares close to 1.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from tacit.codec import from_json, to_json
from tacit.errors import ClaimRefused, ConfigError, CorpusError
from tacit.guarantee import Coverage
from tacit.labelling.files import read_private, write_private
from tacit.labelling.sample import Frozen, Labels, Population, Sample
from tacit.policy.base import Policy
from tacit.policy.card import CardCounts


@dataclass(frozen=True, slots=True)
class Measured:
    """What the labels say about the policies: counts of records, from which every bound is computed."""

    policy: Frozen
    conservative: Frozen | None
    labels: Labels
    population: Population
    sampled: int
    with_secrets: int
    missed: int
    cleared: int | None

    def __post_init__(self) -> None:
        counts = [self.cleared or 0, self.missed, self.with_secrets, self.sampled, self.population.records]
        both = (self.conservative is None) == (self.cleared is None)
        if not both or self.sampled < 1 or counts[0] < 0 or counts != sorted(counts):
            raise ConfigError(
                expected="counts of a labelled sample: cleared <= missed <= with secrets <= sampled <= all records",
                found="counts that contradict each other",
                way_out="measure again with `tacit label read`",
            )

    @property
    def coverage(self) -> Coverage:
        """The share of records with a secret that the policy does not wholly find."""
        return Coverage(self.sampled, self.missed, policy=self.policy.id + self._against())

    @property
    def conservative_coverage(self) -> Coverage | None:
        """The share of records with a secret in which neither policy finds anything."""
        if self.conservative is None or self.cleared is None:
            return None
        together = f"{self.conservative.id} after {self.policy.id}"
        return Coverage(self.sampled, self.cleared, policy=together + self._against())

    @property
    def coverage_of_secrets(self) -> Coverage:
        """Like `coverage`, among the records that hold a secret: those sampled are a uniform sample of all of them."""
        what = f"{self.policy.id}{self._against()}, among records that hold a secret,"
        return Coverage(self.with_secrets, self.missed, policy=what)

    def _against(self) -> str:
        return "" if self.labels == Labels.PERSON else f" (labels: {self.labels})"


def measured(sample: Sample, policy: Policy, conservative: Policy | None = None) -> Measured:
    """How many of the sampled records hold a secret that the policies miss."""
    header = sample.header
    _check_frozen(header.policy, policy.hash, "policy")
    _check_frozen(header.conservative, None if conservative is None else conservative.hash, "conservative policy")
    with_secrets = missed = cleared = 0
    for record, labels in ((item.record, item.secrets) for item in sample.items):
        if labels is None:
            raise CorpusError("a labelled sample", "a record that nobody labelled", "use `read_labels`")
        found = policy.find(record)
        counts = CardCounts()
        counts.add(replace(record, spans=labels), found)
        with_secrets += bool(labels)
        missed += counts.missed_records
        cleared += conservative is not None and bool(labels) and not found and not conservative.find(record)
    return Measured(
        policy=header.policy,
        conservative=header.conservative,
        labels=header.labels,
        population=header.population,
        sampled=header.sampled,
        with_secrets=with_secrets,
        missed=missed,
        cleared=None if conservative is None else cleared,
    )


def write_coverage(found: Measured, path: Path) -> None:
    """The counts as JSON; an older file is replaced by a whole new one."""
    write_private(path, to_json(found).encode() + b"\n")


def read_coverage(
    path: Path, policy_hash: str, conservative_hash: str | None, corpus: str | None = None
) -> tuple[Coverage, Coverage | None]:
    """What `write_coverage` wrote, for these policies and no others; with a `fingerprint`, for that corpus alone."""
    found = from_json(Measured, read_private(path))
    _check_frozen(found.policy, policy_hash, "policy")
    if conservative_hash is not None:
        _check_frozen(found.conservative, conservative_hash, "conservative policy")
    if corpus is not None and corpus != found.population.ids:
        raise ClaimRefused(
            expected="miss rates measured on this corpus",
            found=f"those of another one, with {found.population.records:,} records",
            way_out="draw and label a sample of this corpus",
        )
    return found.coverage, None if conservative_hash is None else found.conservative_coverage


def _check_frozen(frozen: Frozen | None, now: str | None, which: str) -> None:
    then = None if frozen is None else frozen.hash
    if then != now:
        raise ClaimRefused(
            expected=f"the {which} that was frozen when the sample was drawn: "
            + ("none" if frozen is None else f"{frozen.id} ({frozen.hash[:12]})"),
            found="none" if now is None else f"another one ({now[:12]})",
            way_out="name that policy, unchanged; or draw and label a new sample for this one",
        )
