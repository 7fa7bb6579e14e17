"""From labels to miss rates.

| theory | here |
|---|---|
| pi, redaction policy | `policy` |
| m: sampled records with a secret that pi missed | `missed`: part of a secret, not a blank, is outside pi's spans |
| pi_c, conservative policy | `conservative` |
| records trained without protection though they hold a secret | `cleared`: pi and pi_c find nothing in them |
| coverage | `coverage.miss_rate`, `conservative_coverage.miss_rate`: upper bounds, never m / n |
| hit | a record with a secret, all of it found, whose redaction is stable; else `not_hit` |
| g1, g2 | bounds on `not_hit` and `cleared` among records with secrets (`among_secrets`) |

A record in which pi finds anything holds a placeholder and is protected whatever pi_c says; where pi finds nothing,
every secret was missed. So `cleared` is exactly how many records with a missed secret reach the unprotected set.

G7 (frozen). Labels measure the policies whose hashes were written when the sample was drawn, and no others; on the
   corpus whose texts were hashed then, cut into the same pieces.
G8 (sure). A bound is below the true share in at most 5 % of draws if the policy misses fewer than nine records in ten
   (5.2 % beyond): drawing without replacement sharpens Clopper-Pearson but for shares close to 1.
G9 (as trained). The bound of a run counts those sampled records alone that are trained on: of all records that are,
   they are a uniform sample, whatever was held out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tacit.common.charts import Note, Result
from tacit.common.files import write_private
from tacit.common.formatting import rounded_up
from tacit.common.serialize import from_json, to_json
from tacit.config.setting import SegmentBy
from tacit.errors import ClaimRefused, ConfigError, CorpusError
from tacit.policies.card import CardCounts
from tacit.policies.labels import Frozen, LabelItem, LabelOrigin, Population, Sample, read_private
from tacit.policies.policy import Policy
from tacit.policies.stability import record_is_stable
from tacit.privacy.guarantee import Coverage, average_rates


@dataclass(frozen=True, slots=True)
class LabelOutcome:
    """What the labels say of one sampled record. `owner`: its user, or its id without one: who decides its side."""

    owner: str
    secret: bool
    missed: bool
    unstable: bool
    cleared: bool | None


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """A corpus as a run uses it: its hash as that population would have, its pieces, and by owner which are trained."""

    hash_as: Callable[[Population], str | None]
    segment_by: SegmentBy
    trains: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class CoverageCounts(Result):
    """What the labels say about the policies, record by record: every bound is computed from it."""

    policy: Frozen
    conservative: Frozen | None
    labels: LabelOrigin
    population: Population
    outcomes: tuple[LabelOutcome, ...]

    def __post_init__(self) -> None:
        alone = self.conservative is None
        possible = all(
            one.secret >= one.missed >= bool(one.cleared)
            and one.secret - one.missed >= one.unstable
            and (one.cleared is None) == alone
            for one in self.outcomes
        )
        if not possible or not 1 <= len(self.outcomes) <= self.population.records:
            raise ConfigError(
                expected="a labelled sample, of one record or more, in which what was cleared was missed, what was "
                "missed is a secret, and what is unstable is a secret that was found",
                found="counts that contradict each other",
                way_out="measure again with `tacit label read`",
            )

    @property
    def sampled(self) -> int:
        return len(self.outcomes)

    @property
    def with_secrets(self) -> int:
        """Those that hold a secret."""
        return sum(one.secret for one in self.outcomes)

    @property
    def missed(self) -> int:
        """Those with a secret that the policy does not wholly find."""
        return sum(one.missed for one in self.outcomes)

    @property
    def not_hit(self) -> int:
        """Those with a secret that the policy does not wholly find, or whose redaction is not stable."""
        return sum(one.missed or one.unstable for one in self.outcomes)

    @property
    def cleared(self) -> int | None:
        """Those with a secret in which neither policy finds anything; None without a second policy."""
        return None if self.conservative is None else sum(bool(one.cleared) for one in self.outcomes)

    @property
    def coverage(self) -> Coverage:
        """The share of records with a secret that the policy does not wholly find."""
        return Coverage(self.sampled, self.missed, policy=self._measured())

    @property
    def conservative_coverage(self) -> Coverage | None:
        """The share of records with a secret in which neither policy finds anything."""
        return None if self.cleared is None else Coverage(self.sampled, self.cleared, policy=self._measured(both=True))

    @property
    def coverage_of_secrets(self) -> Coverage:
        """Like `coverage`, among the records that contain a secret: those sampled are a uniform sample of them all."""
        what = f"{self._measured()}, among records that hold a secret,"
        return Coverage(self.with_secrets, self.missed, policy=what)

    @property
    def among_secrets(self) -> tuple[Coverage, Coverage] | None:
        """`not_hit` and `cleared`, among the records that contain a secret."""
        if self.cleared is None:
            return None
        among = ", among records with secrets and with unstable redaction as a miss,"
        return (
            Coverage(self.with_secrets, self.not_hit, policy=self._measured() + among),
            Coverage(self.with_secrets, self.cleared, policy=self._measured(both=True) + among),
        )

    def tables(self) -> Iterator[Note]:
        drawn, records = f"{self.population.segment_by}s", self.population.records
        lines = [
            f"{self.sampled:,} of the corpus's {records:,} {drawn}, labels: {self.labels}; "
            f"{self.with_secrets:,} of them contain a secret.",
            *(line[:1].upper() + line[1:] for line in (str(self.coverage), str(self.coverage_of_secrets))),
        ]
        cleared, among = self.conservative_coverage, self.among_secrets
        if cleared is not None and among is not None:
            missed, lost = (rounded_up(rate, 3) for rate in average_rates(among))
            lines += [
                f"Records with a secret in which neither policy finds anything: {cleared}",
                f"Both at once, with {cleared.confidence:.0%} confidence, among records with secrets: at most {missed} "
                f"missed or not redacted stably, and at most {lost} in which neither policy finds anything",
            ]
        yield Note("\n".join(lines))

    def _measured(self, both: bool = False) -> str:
        """What was measured, and by whose labels."""
        policies = f"{self.conservative.id} after {self.policy.id}" if both and self.conservative else self.policy.id
        return policies if self.labels == LabelOrigin.PERSON else f"{policies} (labels: {self.labels})"


class Covered(NamedTuple):
    """What the labels say about one run's policies, as `Evidence` has it."""

    coverage: Coverage | None = None
    conservative_coverage: Coverage | None = None
    among_secrets: tuple[Coverage, Coverage] | None = None


def measured(sample: Sample, policy: Policy, conservative: Policy | None = None) -> CoverageCounts:
    """How many of the sampled records hold a secret that the policies miss."""
    header = sample.header
    _check_frozen(header.policy, policy.hash, "policy")
    _check_frozen(header.conservative, None if conservative is None else conservative.hash, "conservative policy")
    return CoverageCounts(
        policy=header.policy,
        conservative=header.conservative,
        labels=header.labels,
        population=header.population,
        outcomes=tuple(_outcome(item, policy, conservative) for item in sample.items),
    )


def _outcome(item: LabelItem, policy: Policy, conservative: Policy | None) -> LabelOutcome:
    record, labels = item.record, item.secrets
    if labels is None:
        raise CorpusError("a labelled sample", "a record that nobody labelled", "use `read_labels`")
    found = policy.marks(record)
    counts = CardCounts()
    counts.add(replace(record, spans=labels), found)
    missed = bool(counts.missed_records)
    unstable = bool(labels) and not missed and not record_is_stable(policy, record, labels)
    cleared = None if conservative is None else bool(labels) and not found and not conservative.marks(record)
    return LabelOutcome(record.user or record.id, bool(labels), missed, unstable, cleared)


def write_coverage(found: CoverageCounts, path: Path) -> None:
    """What was measured as JSON; an older file is replaced by a whole new one."""
    write_private(path, to_json(found).encode() + b"\n")


def read_population(path: Path) -> Population:
    """What the labelled sample was drawn from, as `write_coverage` wrote it."""
    return from_json(CoverageCounts, read_private(path)).population


def read_coverage(
    path: Path, policy_hash: str, conservative_hash: str | None, corpus: TrainedOn | None = None
) -> Covered:
    """What `write_coverage` wrote, for these policies and no others; with a `corpus`, for what is trained on of it."""
    found = from_json(CoverageCounts, read_private(path))
    _check_frozen(found.policy, policy_hash, "policy")
    if conservative_hash is not None:
        _check_frozen(found.conservative, conservative_hash, "conservative policy")
    if corpus is not None:
        _check_population(found.population, corpus)
        outcomes = tuple(one for one in found.outcomes if corpus.trains(one.owner))  # G9
        if not outcomes:
            raise ClaimRefused(
                expected="a labelled sample with at least one record that is trained on",
                found=f"{found.sampled:,} labelled {corpus.segment_by}s, all of them held out",
                way_out="draw and label a larger sample, or hold out less",
            )
        found = replace(found, outcomes=outcomes)
    if conservative_hash is None:
        return Covered(found.coverage)
    return Covered(found.coverage, found.conservative_coverage, found.among_secrets)


def _check_population(population: Population, corpus: TrainedOn) -> None:
    if population.segment_by != corpus.segment_by:
        raise ClaimRefused(
            expected=f"miss rates measured on {corpus.segment_by}s, which are what is trained",
            found=f"miss rates measured on {population.segment_by}s: another share of other units has a missed secret",
            way_out=f"draw and label a sample with `tacit label draw --segment-by {corpus.segment_by}`",
        )
    if corpus.hash_as(population) != population.hash:
        raise ClaimRefused(
            expected="miss rates measured on this corpus",
            found=f"those of another one ({population.records:,} {population.segment_by}s), or before it was changed",
            way_out="draw and label a sample of this corpus",
        )


def _check_frozen(frozen: Frozen | None, now: str | None, which: str) -> None:
    then = None if frozen is None else frozen.hash
    if then != now:
        raise ClaimRefused(
            expected=f"the {which} that was frozen when the sample was drawn: "
            + ("none" if frozen is None else f"{frozen.id} ({frozen.hash[:12]})"),
            found="none" if now is None else f"another one ({now[:12]})",
            way_out="name that policy, unchanged; or draw and label a new sample for this one",
        )
