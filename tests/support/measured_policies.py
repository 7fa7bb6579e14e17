"""What policies find of the labeled set: recall by group, language and case; precision; stability of masks.

A secret is found when every character of it is, by marks of whatever kind. A mark is right when it overlaps a secret,
and is left out when it overlaps nothing but what the guideline calls neither secret nor mistake.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from labeled_pii import GROUPS, IGNORED, Example
from tacit.data.records import Span
from tacit.policies.policy import Policy
from tacit.policies.stability import StabilityCounts, mask_stability

_GROUP_OF = {label: group for group, labels in GROUPS.items() for label in labels}
ALL = "ALL"


@dataclass
class Findings:
    """Secrets and those found, by group, language and case; marks, and those that are right."""

    secrets: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    marks: int = 0
    right: int = 0

    def recall(self, name: str = ALL) -> float:
        return self.found[name] / max(1, self.secrets[name])

    @property
    def precision(self) -> float:
        return self.right / max(1, self.marks)


def measure(policy: Policy, examples: Iterable[Example]) -> Findings:
    """What `policy` finds in the examples."""
    counts = Findings()
    for example in examples:
        found = policy.find(example.record)
        covered = {place for span in found for place in range(span.start, span.end)}
        for mark in example.marks:
            if mark.label not in IGNORED:
                names = {ALL, _GROUP_OF[mark.label], example.language, *(example.cases or ("plain",))}
                counts.secrets.update(names)
                if covered.issuperset(range(mark.start, mark.end)):
                    counts.found.update(names)
        counts.marks += sum(_counts(span, example) for span in found)
        counts.right += sum(_right(span, example) for span in found)
    return counts


def _right(span: Span, example: Example) -> bool:
    return any(one.start < span.end and span.start < one.end and one.label not in IGNORED for one in example.marks)


def _counts(span: Span, example: Example) -> bool:
    touched = [one.label for one in example.marks if one.start < span.end and span.start < one.end]
    return not touched or any(label not in IGNORED for label in touched)


def stability(policy: Policy, examples: Sequence[Example], seed: int = 0) -> StabilityCounts:
    """How masks behave when one secret is replaced by another of its kind."""
    rng = random.Random(seed)
    return sum((mask_stability(policy, example.record, rng) for example in examples), StabilityCounts())
