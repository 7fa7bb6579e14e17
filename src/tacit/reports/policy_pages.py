"""The pages of a scan and of policies compared: pure functions of their results. No clock, no network, no script.

G1 (hostile text). Every string is escaped, and the page's own policy forbids scripts, images and any connection.
G2 (pure). Equal results, with equal speeds, give equal pages.
G3 (discreet). The page of a scan contains no more text than its result; that of policies, only names of kinds.
"""

from tacit.common.formatting import short
from tacit.policies.compare import PolicyComparison
from tacit.policies.marking import ExcerptState
from tacit.policies.scan import Scan
from tacit.reports.drawing import COLORS, render

MOST_KINDS = 40


def scan_page(scan: Scan) -> str:
    """The whole HTML page."""
    shown = {one.kind for part in scan.sample for one in part.pieces if one.state is not ExcerptState.PLAIN}
    labeled = list(scan.card.kinds.items()) if scan.card else []
    kinds = sorted({*scan.kinds, *(kind for kind, _ in labeled), *shown})
    most_frequent = sorted(scan.kinds.items(), key=lambda entry: (-entry[1].secrets, entry[0]))
    return render(
        "scan.html.jinja",
        scan=scan,
        kinds=[(short(kind), total) for kind, total in most_frequent[:MOST_KINDS]],
        more_kinds=max(0, len(scan.kinds) - MOST_KINDS),
        card_rows=[
            *([(None, scan.card.overall)] if scan.card else []),
            *((short(kind), quality) for kind, quality in labeled[:MOST_KINDS]),
        ],
        more_card_kinds=max(0, len(labeled) - MOST_KINDS),
        colors={short(kind): at % COLORS for at, kind in enumerate(kinds)},
    )


def policies_page(comparison: PolicyComparison) -> str:
    return render(
        "policies.html.jinja",
        comparison=comparison,
        kinds=comparison.kind_rows()[:MOST_KINDS],
        more_kinds=max(0, len(comparison.kinds) - MOST_KINDS),
        agreement=comparison.agreement_rows(),
    )
