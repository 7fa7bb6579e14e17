"""The page of a sweep: the recipe's pictures and the table of its runs, from the recipe and its results alone.

G1 (pure). Equal recipes and results give equal pages; nothing is loaded and nothing sent.
G2 (hostile text). Whatever stands in a recipe or a reason is escaped and cleaned.
"""

from typing import Any

from tacit.report.environment import script, script_policy, template
from tacit.sweeping.columns import columns_of, rows_of
from tacit.sweeping.drawing import anchors, charts
from tacit.sweeping.recipe import Recipe

PAGE = "sweep.html"


def sweep_page(recipe: Recipe, results: dict[str, Any], compared: str | None = None, linked: bool = False) -> str:
    """The whole HTML page. compared: the page that compares the runs; linked: whether the runs' folders are beside."""
    lines = results["runs"]
    columns = columns_of(lines, recipe.paper)
    drawn = charts(recipe, lines)
    sections = [("pictures", "Pictures")] if drawn else []
    page = template("sweep.html.jinja").render(
        recipe=recipe,
        results=results,
        compared=compared,
        linked=linked,
        policy=script_policy(),
        script=script(),
        sections=[*sections, ("table", "Runs")],
        charts=drawn,
        columns=columns,
        rows=rows_of(lines, columns, recipe.paper),
        anchors=anchors(recipe),
    )
    return page.lstrip()
