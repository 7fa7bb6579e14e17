"""The page of several runs: a pure function of their files, in the order they were given. Exact numbers stay inside.

G1 (pure), G2 (hostile text), G3 (bounded): as for the page of one run.
G4 (no ranking). The table keeps the given order; what compares with what is said by `guarantee.compare` alone.
"""

from collections.abc import Sequence

from tacit.report.charts import Entry, Point, Series
from tacit.report.comparing import SIGNS, differing, families, lines, matrix, reasons
from tacit.report.comparison_charts import comparison_charts
from tacit.report.environment import script, script_policy, template
from tacit.report.facts import tiles
from tacit.report.runs import Finished

SECTIONS = (("pictures", "Pictures"), ("table", "Table"), ("standing", "What compares"), ("runs", "Runs"))


def comparison_page(runs: Sequence[Finished]) -> str:
    """The whole HTML page."""
    groups = families(runs)
    standings = matrix(runs)
    page = template("comparison.html.jinja").render(
        runs=runs,
        inside=any(run.inside for run in runs),
        policy=script_policy(),
        script=script(),
        sections=SECTIONS,
        legend=[
            Entry(family.name, family.key, Series(family.name, _SAMPLE, family.look, family.key).swatch())
            for family in groups
        ],
        charts=comparison_charts(runs, groups),
        lines=lines(runs),
        standings=standings,
        signs=SIGNS,
        reasons=reasons(runs, standings),
        tiles={run.at: tiles(run) for run in runs},
        apart=differing(runs),
    )
    return page.lstrip()


_SAMPLE = (Point(0.0, 0.0),)
