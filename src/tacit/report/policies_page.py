"""The page of policies compared: a pure function of the comparison. No clock, no network, no script.

G1 (hostile text). Every string is escaped, and the page's own policy forbids scripts, images and any connection.
G2 (pure). Equal comparisons with equal speeds give equal pages.
G3 (discreet). The page holds no text of the corpus but the names of kinds.
"""

from dataclasses import dataclass

from tacit.policy.card import Share
from tacit.report.environment import template
from tacit.report.words import number, percent
from tacit.scan.compare import Comparison

MOST_KINDS = 40


@dataclass(frozen=True, slots=True)
class KindRow:
    """One gold kind: how many labels it has, and each policy's recall."""

    kind: str
    labels: int
    recalls: tuple[Share | None, ...]


def policies_page(comparison: Comparison) -> str:
    """The whole HTML page."""
    page = template("policies.html.jinja").render(
        comparison=comparison,
        kinds=kind_rows(comparison)[:MOST_KINDS],
        more_kinds=max(0, len(comparison.kinds) - MOST_KINDS),
        agreement=agreement_rows(comparison),
        speed=lambda policy: number(policy.records_a_second),
    )
    return page.lstrip()


def kind_rows(comparison: Comparison) -> list[KindRow]:
    """The gold kinds, those with most labels first."""
    counts = next((policy.card.counts.kinds for policy in comparison.policies if policy.card), {})
    rows = [
        KindRow(kind, counts[kind].gold, tuple(policy.recall_of(kind) for policy in comparison.policies))
        for kind in comparison.kinds
    ]
    return sorted(rows, key=lambda row: (-row.labels, row.kind))


def agreement_rows(comparison: Comparison) -> list[list[str]]:
    """For each policy, the share of its characters that each other one finds too."""
    places = range(len(comparison.policies))
    return [[_found_too(comparison, row, column) for column in places] for row in places]


def _found_too(comparison: Comparison, row: int, column: int) -> str:
    if row == column:
        return ""
    agreement = comparison.agreement(row, column)
    return percent(agreement.both / agreement.left if agreement.left else None)
