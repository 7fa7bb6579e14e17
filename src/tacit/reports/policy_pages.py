"""The page of a scan: a pure function of its result. Same result, same bytes; no clock, no network, no script.

G1 (hostile text). Every string is escaped, and the page's own policy forbids scripts, images and any connection.
G2 (pure). Equal results give equal pages.
G3 (discreet). The page holds no more text than the result does.

The page of policies compared: a pure function of the comparison. No clock, no network, no script.

G1 (hostile text). Every string is escaped, and the page's own policy forbids scripts, images and any connection.
G2 (pure). Equal comparisons with equal speeds give equal pages.
G3 (discreet). The page holds no text of the corpus but the names of kinds.
"""

from dataclasses import dataclass

from tacit.common.formatting import BLOCK, number, short
from tacit.policies.card import PolicyCard, PolicyQuality
from tacit.policies.compare import PolicyComparison
from tacit.policies.marking import ExcerptState
from tacit.policies.scan import Scan
from tacit.reports.environment import template

MOST_KINDS = 40
_COLOURS = 8


@dataclass(frozen=True, slots=True)
class KindRow:
    """One line of the table of kinds; `width` is a share of the longest bar."""

    kind: str
    colour: int
    secrets: int
    records: int
    width: float


@dataclass(frozen=True, slots=True)
class UserRow:
    """Users with so many records; `width` is a share of the longest bar, `kept` the records that such a cap leaves."""

    size: str
    users: int
    width: float
    kept: float


@dataclass(frozen=True, slots=True)
class CardRow:
    """One line of the card; `name` is None for all kinds together."""

    name: str | None
    quality: PolicyQuality


def scan_page(scan: Scan) -> str:
    """The whole HTML page."""
    kinds = sorted({*scan.kinds, *(scan.card.counts.kinds if scan.card else ()), *_shown_kinds(scan)})
    colours = {short(kind): at % _COLOURS for at, kind in enumerate(kinds)}
    page = template("scan.html.jinja").render(
        scan=scan,
        kinds=kind_rows(scan, colours),
        more_kinds=max(0, len(scan.kinds) - MOST_KINDS),
        users=user_rows(scan),
        card_rows=card_rows(scan.card) if scan.card else [],
        more_card_kinds=max(0, len(scan.card.counts.kinds) - MOST_KINDS) if scan.card else 0,
        colours=colours,
        block=BLOCK,
        State=ExcerptState,
    )
    return page.lstrip()


def kind_rows(scan: Scan, colours: dict[str, int]) -> list[KindRow]:
    """The kinds found most often, most frequent first."""
    order = sorted(scan.kinds.items(), key=lambda entry: (-entry[1].secrets, entry[0]))[:MOST_KINDS]
    most = max((total.secrets for _, total in order), default=1)
    return [
        KindRow(short(kind), colours[short(kind)], total.secrets, total.records, round(total.secrets / most, 4))
        for kind, total in order
    ]


def user_rows(scan: Scan) -> list[UserRow]:
    """Users by size, those with the fewest records first."""
    most = max((group.users for group in scan.user_groups), default=1)
    owned = scan.user_groups[-1].kept if scan.user_groups else 1
    return [
        UserRow(
            f"{group.fewest:,} to {group.most:,}" if group.most > group.fewest else f"{group.most:,}",
            group.users,
            round(group.users / most, 4),
            group.kept / owned,
        )
        for group in scan.user_groups
    ]


def card_rows(card: PolicyCard) -> list[CardRow]:
    """All kinds together, then each kind."""
    return [CardRow(None, card.overall)] + [
        CardRow(short(kind), q) for kind, q in list(card.kinds.items())[:MOST_KINDS]
    ]


def _shown_kinds(scan: Scan) -> set[str]:
    return {piece.kind for shown in scan.sample for piece in shown.pieces if piece.state is not ExcerptState.PLAIN}


MOST_KINDS_COMPARED = 40


def policies_page(comparison: PolicyComparison) -> str:
    """The whole HTML page."""
    page = template("policies.html.jinja").render(
        comparison=comparison,
        kinds=comparison.kind_rows()[:MOST_KINDS_COMPARED],
        more_kinds=max(0, len(comparison.kinds) - MOST_KINDS_COMPARED),
        agreement=comparison.agreement_rows(),
        speed=lambda policy: number(policy.records_a_second),
    )
    return page.lstrip()
