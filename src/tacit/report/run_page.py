"""The page of one run: a pure function of its released files.

G1 (pure). Equal folders give equal pages: no clock, no chance, no path of the machine.
G2 (hostile text). Every string is escaped; the page runs its own script alone, named by its hash, and loads nothing.
G3 (bounded). However much a file says, a page stays small: texts are cut, and long lists say how much was left out.
"""

from tacit.certificate import ACCESSES, SETTING
from tacit.report.amplification import amplification_chart
from tacit.report.audit_charts import (
    allowed_chart,
    bounds_chart,
    exposure_chart,
    extraction_chart,
    membership_charts,
    record_figure,
)
from tacit.report.charts import COLOURS, Chart
from tacit.report.claim_charts import profile_chart, spending_chart, timeline_chart, utility_chart
from tacit.report.environment import script, script_policy, template
from tacit.report.facts import meanings, settings_yaml, tiles
from tacit.report.policy_chart import policy_chart
from tacit.report.runs import Finished
from tacit.scan.excerpt import short
from tacit.scan.sample import Inside

_MOST_EXPOSURES = 12
_MOST_KINDS = 40
SECTIONS = (
    ("protected", "Protected"),
    ("secret", "Policy"),
    ("utility", "Utility"),
    ("ledger", "Ledger"),
    ("attacks", "Attacks"),
    ("again", "Settings"),
    ("certificate", "Certificate"),
)


def run_page(run: Finished, inside: Inside | None = None, most: int = 0) -> str:
    """The whole HTML page; with `inside`, one that must stay in the house, with at most so many records."""
    audit = run.audit
    profile = profile_chart(run.guarantee.figures)
    allowed = allowed_chart(run.headline) if run.headline is not None else None
    other = [] if audit is None else [bounds_chart(run.guarantee, audit.bounds)]
    if audit is not None and audit.extraction is not None:
        other.append(extraction_chart(audit.extraction))
    canaries = () if audit is None else audit.canaries
    page = template("run.html.jinja").render(
        run=run,
        policy=script_policy(),
        script=script(),
        sections=SECTIONS if inside is None else (("sample", "Sample"), *SECTIONS),
        inside=inside,
        sample=() if inside is None else inside.excerpts[:most],
        kinds=() if inside is None else inside.kinds[:_MOST_KINDS],
        more_kinds=0 if inside is None else max(0, len(inside.kinds) - _MOST_KINDS),
        colours={} if inside is None else {short(kind): at % COLOURS for at, (kind, _) in enumerate(inside.kinds)},
        policy_card=None if run.measured is None else policy_chart(run.measured),
        tiles=tiles(run),
        meanings=meanings(run),
        claim_charts=_present(allowed, profile, amplification_chart([run], {run.at: ("amplified", 0)})),
        utility=utility_chart(run),
        ledger_charts=_present(timeline_chart(run), spending_chart(run)),
        membership_note=_membership_note(run),
        blind_flagged=audit is not None and audit.blind is not None and audit.blind.flagged,
        membership_charts=[] if audit is None else membership_charts(run.guarantee, audit),
        exposure_charts=[exposure_chart(one, at) for at, one in enumerate(canaries[:_MOST_EXPOSURES])],
        more_exposures=max(0, len(canaries) - _MOST_EXPOSURES),
        other_charts=_present(*other),
        settings=settings_yaml(run.config),
        research=run.config.get("mode") == "research",
        setting=SETTING,
        accesses=ACCESSES,
    )
    return page.lstrip()


def _present(*charts: Chart | None) -> list[Chart]:
    return [chart for chart in charts if chart is not None]


def _membership_note(run: Finished) -> str:
    """Why no bound is drawn beside the attacks on membership."""
    if run.audit is None or not run.audit.membership or record_figure(run.guarantee) is not None:
        return ""
    if run.headline is None:
        return "Nothing is claimed, so nothing bounds what an attack may reach."
    return (
        f"The claim is about {run.headline.neighbours.unit}. The attacks on membership ask whether a record was used, "
        "which this claim does not hide, so no bound stands beside them."
    )
