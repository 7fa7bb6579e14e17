"""Picture of how well a policy did on labelled held-out records: recall a kind, with exact intervals."""

from tacit.policy.card import Quality, Share
from tacit.policy.measured import MeasuredPolicy
from tacit.report.charts import Chart, Table
from tacit.report.row_charts import Dot, Row, RowSketch, Whisker, draw_rows
from tacit.report.scales import Axis
from tacit.report.words import interval, name, percent

_MOST_ROWS = 12


def policy_chart(found: MeasuredPolicy) -> Chart:
    """Recall of all kinds together, then of each kind that was labelled."""
    card = found.card()
    parts = [("All kinds", card.overall), *((name(kind), quality) for kind, quality in card.kinds.items())]
    labelled = [(said, quality) for said, quality in parts if quality.counts.gold]
    rows = tuple(_row(said, quality) for said, quality in labelled[:_MOST_ROWS])
    left = len(labelled) - len(rows)
    table = Table(
        ("Kind", "Labelled", "Wholly found", "Recall", "95 % interval", "Marked", "Precision", "95 % interval"),
        tuple((said, *_cells(quality)) for said, quality in parts),
    )
    missed, records = found.missed_records, found.records
    more = f" The table has {left} more kinds." if left else ""
    note = (
        f"Measured on {records:,} held-out records, which were not trained on; {missed:,} of them hold a labelled "
        "secret that is not wholly marked. Spans of one record resemble each other: read the intervals as a guide. "
        f"What a certificate may say of coverage comes from records drawn for that (tacit label) alone.{more}"
    )
    said = "Recall: " + "; ".join(row.name for row in rows) + "."
    axis = Axis("Recall: labelled secrets that were wholly found", 0.0, 1.0)
    return draw_rows(RowSketch("policy-card", "What the policy finds", said, axis, rows, table, note=note, band=16))


def _row(said: str, quality: Quality) -> Row:
    counts, recall = quality.counts, quality.recall
    value = recall.value or 0.0
    tip = f"{said}\n{counts.covered:,} of {counts.gold:,} wholly found\n95 % interval {interval(recall.interval)}"
    dot = Dot(value, 0, tip)
    return Row(f"{said}: {percent(recall.value)} of {counts.gold:,}", (Whisker(*recall.interval), dot))


def _cells(quality: Quality) -> tuple[str, ...]:
    counts = quality.counts
    return (
        f"{counts.gold:,}",
        f"{counts.covered:,}",
        *_share(quality.recall),
        f"{counts.found:,}",
        *_share(quality.precision),
    )


def _share(share: Share) -> tuple[str, str]:
    return percent(share.value), "–" if share.value is None else interval(share.interval)
