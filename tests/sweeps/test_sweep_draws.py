"""What a recipe draws: words that mean something, averages against an oracle, axes, and the page in a browser."""

import importlib.util
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from browser import CHROMIUM, Browser, browser
from tacit.common.charts import Axis, Point, ScatterChart, Series, Table, axis_for, epsilon_axis, word_axis
from tacit.errors import ConfigError
from tacit.reports.drawing import Drawing, draw, place_on
from tacit.sweeps.charts import charts as chart_data
from tacit.sweeps.charts import sweep_page
from tacit.sweeps.recipe import Recipe, read_recipe, variations
from tacit.sweeps.result_columns import averaged, chart_columns, checkpoint_columns, table_columns

EPSILONS = [1, 4]
RECIPE: dict[str, Any] = {
    "name": "drawn",
    "needs": {"train": {"simulate": "customersim", "dialogs": 20}},
    "settings": {"corpus": "$train", "policy": "gold", "save_steps": 10},
    "runs": {
        "plain": {"plan": {"mechanism": "plain", "public_epochs": 2}},
        "selective": {"plan": {"mechanism": "selective", "public_epochs": 2}, "grid": {"plan.epsilon": EPSILONS}},
    },
    "grid": {"seed": [0, 1, 2]},
    "audit": {"checkpoints": True},
}
TRADE = {"title": "Trade", "x": "epsilon", "y": "perplexity"}


def recipe_of(folder: Path, *draws: dict[str, Any], **over: Any) -> Recipe:  # noqa: ANN401
    path = folder / "drawn.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "draws": list(draws), **over}, sort_keys=False))
    return read_recipe(path)


def line_of(name: str, group: str, seed: int, epsilon: float | None, perplexity: float) -> dict[str, Any]:
    part = {"count": 9, "nats": 9.0, "perplexity": perplexity, "accuracy": 0.5}
    utility = {"tokens": dict.fromkeys(("overall", "public", "private"), part), "words": None, "normalised": None}
    exposed = {"exposure": 2.0 + seed, "exposure, not planted": 1.0, "best exposure": 4.0, "exposure p": 0.1}
    curve = [
        {"step": step, "perplexity": perplexity + step, "normalised": None, "figures": {**exposed, "membership": 0.5}}
        for step in (10, 20, 30)
    ]
    staged = {"two-stage membership": 0.7, "two-stage membership of random scores": 0.69}
    attacks = {"verdict": "consistent", "figures": {**exposed, **staged}, "checkpoints": curve}
    claims = [] if epsilon is None else [{"neighbors": "a record", "epsilon": epsilon, "delta": 1e-5}]
    return {
        "name": name,
        "group": group,
        "seed": seed,
        "figures": {"claim": {"figures": claims, "published": None}, "utility": utility, "attacks": attacks},
        "refused": None,
        "seconds": {"training": 3.0},
    }


def lines_of(recipe: Recipe) -> list[dict[str, Any]]:
    """Of every run; perplexities are 100 over epsilon, and the seed."""
    found = []
    for one in variations(recipe):
        epsilon = one.settings["plan"].get("epsilon")
        worth = 10.0 if epsilon is None else 100.0 / epsilon
        found.append(line_of(one.name, one.group, one.settings["seed"], epsilon, worth + one.settings["seed"]))
    return found


def results_of(recipe: Recipe, lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {"recipe": recipe.name, "scale": 1.0, "tuning": "Tuned.", "mixed": None, "runs": lines}


def charts(recipe: Recipe, lines: list[dict[str, Any]]) -> list[Drawing]:
    return [draw(one) for one in chart_data(recipe, lines)]


def markers(chart: Drawing) -> list[tuple[float, float]]:
    """Where circles and other shapes stand, the latter by the middle of their box."""
    found = []
    for circle in re.finditer(r'<circle class="marker[^"]*" cx="([\d.]+)" cy="([\d.]+)"', chart.picture):
        found.append((float(circle[1]), float(circle[2])))
    for shape in re.finditer(r'<path class="marker[^"]*" d="M([^"]+)Z"', chart.picture):
        xs, ys = zip(*[map(float, pair.split()) for pair in shape[1].split("L")], strict=True)
        found.append(((min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2))
    return found


# --- averages ---


@given(st.lists(st.none() | st.floats(-1e6, 1e6) | st.just(math.nan) | st.just(math.inf), max_size=6))
def test_g1_averages_are_those_of_numpy(values: list[float | None]) -> None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    found = averaged(values)
    if not known:
        assert found is None
        return
    assert found is not None
    assert found.mean == pytest.approx(np.mean(known), abs=1e-6)
    deviation = np.std(known, ddof=1) if len(known) > 1 else 0.0
    assert found.deviation == pytest.approx(deviation, abs=1e-6)
    assert (found.known, found.of) == (len(known), len(values))
    assert found.ends is None or found.ends == (found.mean - found.deviation, found.mean + found.deviation)


def test_g1_points_stand_at_means_and_whiskers_at_deviations(tmp_path: Path) -> None:
    """Places are recomputed from the numbers and the frame of the picture; a mean that is off by a tenth is seen."""
    recipe = recipe_of(tmp_path, {**TRADE, "x": "plan.epsilon", "log": {"x": True, "y": False}})
    (chart,) = charts(recipe, lines_of(recipe))
    means, deviation = {epsilon: 100 / epsilon + 1 for epsilon in EPSILONS}, 1.0
    ends = [mean + side for mean in means.values() for side in (-deviation, deviation)]
    x, y = axis_for("x", EPSILONS, True), axis_for("y", [*means.values(), *ends], False)
    expected = [(56 + 410 * x.place(epsilon), 284 - 250 * y.place(mean)) for epsilon, mean in means.items()]
    assert markers(chart) == [pytest.approx(place, abs=0.02) for place in expected]
    off = 284 - 250 * y.place(means[1] + 0.1)
    assert abs(off - expected[0][1]) > 0.02
    for (across, _), mean in zip(expected, means.values(), strict=True):
        low, high = (284 - 250 * y.place(mean + side) for side in (-deviation, deviation))
        whisker = rf'class="whisker c1" x1="{across:.2f}" y1="{low:.2f}" x2="{across:.2f}" y2="{high:.2f}"'
        assert re.search(whisker.replace(".", r"\."), chart.picture)
    assert [row[1:] for row in chart.table.rows] == [
        ("selective-epsilon-1", "1.000", "101.0 ± 1.0"),
        ("selective-epsilon-4", "4.000", "26.00 ± 1.0"),
    ]


def test_g1_models_on_the_way_are_averaged_step_by_step(tmp_path: Path) -> None:
    wanted = {"title": "Way", "points": "checkpoints", "x": "perplexity", "y": "exposure", "runs": "plain"}
    recipe = recipe_of(tmp_path, wanted)
    lines = lines_of(recipe)
    lines[1]["figures"]["attacks"]["checkpoints"].pop()  # one seed kept fewer models
    (chart,) = charts(recipe, lines)
    assert [row[2:] for row in chart.table.rows] == [
        ("10", "21.00 ± 1.0", "3.000 ± 1.0"),
        ("20", "31.00 ± 1.0", "3.000 ± 1.0"),
    ]


def test_g2_runs_without_a_number_are_named(tmp_path: Path) -> None:
    unknown: list[dict[str, Any]] = [
        {**TRADE, "y": "exposure, unknown"},
        {**TRADE, "y": ["exposure", "exposure, unknown"]},
    ]
    recipe = recipe_of(tmp_path, {**TRADE, "x": "plan.epsilon"}, TRADE, *unknown)
    lines = lines_of(recipe)
    for line in lines:
        if line["group"] == "selective-epsilon-4":
            line["figures"], line["refused"] = None, {"expected": "a", "found": "b", "way_out": "c"}
    by_setting, by_claim, empty, half = charts(recipe, lines)
    described = chart_data(recipe, lines)
    assert [chart.note.removeprefix("Without all numbers of this chart: ") for chart in described] == [
        "plain, selective-epsilon-4.",
        "selective-epsilon-4.",
        *["plain, selective-epsilon-1, selective-epsilon-4."] * 2,
    ]
    assert len(markers(half)) == 2
    assert len(markers(by_setting)) == 1
    assert [row[2] for row in by_claim.table.rows] == ["no claim", "1.000"]
    assert "no claim" in by_claim.picture
    assert described[2].description == "Nothing to draw: no run has both numbers."
    assert markers(empty) == []


def test_g3_a_run_has_one_look_and_more_lines_than_looks_have_others(tmp_path: Path) -> None:
    many = {
        "title": "Many",
        "x": "plan.public_epochs",
        "y": ["perplexity", "exposure"],
        "series": ["run", "plan.epsilon"],
    }
    recipe = recipe_of(tmp_path, {**TRADE, "runs": ["selective"]}, TRADE, many)
    first, second, third = charts(recipe, lines_of(recipe))
    looks = {entry.name: entry.swatch for entry in second.legend}
    assert first.legend[0].swatch == looks["selective"]
    assert first.legend[0].name == "selective"
    names = [entry.name for entry in third.legend]
    assert names[:2] == ["plain: perplexity", "plain: exposure"]
    assert "selective, epsilon 4: exposure" in names
    assert len({entry.swatch for entry in third.legend}) == len(names) == 6


def test_what_the_paper_prints_is_drawn_hollow(tmp_path: Path) -> None:
    paper = {
        "plain": {"perplexity": 60},
        "selective-epsilon-4": {"perplexity": 90, "printed epsilon": 2, "exposure": "low"},
    }
    recipe = recipe_of(tmp_path, TRADE, {**TRADE, "x": "plan.epsilon"}, {**TRADE, "y": "exposure"}, paper=paper)
    both, by_setting, words = charts(recipe, lines_of(recipe))
    assert [chart.picture.count("hollow") for chart in (both, by_setting, words)] == [2, 1, 0]
    assert "selective (paper)" in [entry.name for entry in both.legend]
    assert "selective-epsilon-4, as the paper prints it\nEpsilon 2.000\nPerplexity 90.00" in both.picture
    assert "plain, as the paper prints it\nEpsilon no claim\nPerplexity 60.00" in both.picture
    assert "as the paper prints it\nEpsilon 4.000\nPerplexity 90.00" in by_setting.picture


def test_settings_that_are_no_numbers_have_places_of_their_own(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, {"title": "By", "x": "plan.mechanism", "y": "two-stage membership"})
    (chart,) = charts(recipe, lines_of(recipe))
    assert [row[2] for row in chart.table.rows] == ["plain", "selective", "selective"]
    assert ">selective</text>" in chart.picture
    assert ">chance</text>" in chart.picture
    middles = [56 + 410 * share for share in (0.25, 0.75)]
    assert sorted({x for x, _ in markers(chart)}) == pytest.approx(middles)


def test_lines_of_one_word_stand_beside_each_other(tmp_path: Path) -> None:
    both = {"title": "Both", "x": "plan.mechanism", "y": ["exposure", "exposure, not planted"], "series": []}
    recipe = recipe_of(tmp_path, {**both, "runs": ["plain", "selective-epsilon-4"]})
    (chart,) = charts(recipe, lines_of(recipe))
    beside = 410 / 2 * 0.055
    expected = [56 + 410 * share + side for share in (0.25, 0.75) for side in (-beside, beside)]
    assert sorted(x for x, _ in markers(chart)) == pytest.approx(expected, abs=0.02)
    assert [entry.name for entry in chart.legend] == ["exposure", "exposure, not planted"]
    assert 'class="series' not in chart.picture  # no line from word to word
    assert ">0</text>" in chart.picture  # bits begin at none


def test_an_axis_for_claims_has_places_for_none_and_for_zero() -> None:
    axis = epsilon_axis("Epsilon", [0.0, 1.0, 8.0, math.inf])
    places = [axis.place(value) for value in (0.0, 1.0, 8.0, math.inf)]
    assert places == sorted(places)
    assert len(set(places)) == 4
    plain = epsilon_axis("Epsilon", [1.0, 8.0])
    assert (plain.zero, plain.infinite) == (False, False)
    words = word_axis("Policy", ["a", "b", "c"])
    assert [words.place(at) for at in words.ticks()] == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    assert [words.written(at) for at in words.ticks()] == ["a", "b", "c"]


def test_whiskers_end_where_they_should() -> None:
    point = Point(1, 2, x_ends=(0.5, 1.5), y_ends=(1, 4))
    axes = Axis("x", 0, 2), Axis("y", 0, 5)
    sketch = ScatterChart("k", "t", "d", *axes, (Series("s", (point,), 2, "s", hollow=True),), Table(("a",), (("1",),)))
    drawn = draw(sketch).picture
    bottom, top = (place_on(sketch, 1, y)[1] for y in (1, 4))
    assert f'class="whisker c2" x1="261" y1="{bottom:g}" x2="261" y2="{top:g}"' in drawn
    assert drawn.count("whisker") == 6
    assert 'class="marker c2 hollow"' in drawn


# --- words that mean nothing ---


@pytest.mark.parametrize(
    ("draws", "over", "words"),
    [
        ([{**TRADE, "y": "perplexety"}], {}, "did you mean perplexity"),
        ([{**TRADE, "x": "plan.epsilom"}], {}, "did you mean plan.epsilon"),
        ([{**TRADE, "y": "plan.epsilon"}], {}, "name of a column"),
        ([{**TRADE, "series": ["run", "polcy"]}], {}, "did you mean policy"),
        ([{**TRADE, "x": "seed"}], {}, "'seed'"),
        ([{**TRADE, "log": {"x": False}}], {}, "no log.x"),
        ([{**TRADE, "x": "policy", "log": {"x": True}}], {}, "no log.x"),
        ([{**TRADE, "runs": ["plane"]}], {}, "did you mean plain"),
        ([{**TRADE, "y": []}], {}, "y: list should have at least 1 item"),
        ([{**TRADE, "colour": "red"}], {}, "colour"),
        ([{**TRADE, "log": {"z": True}}], {}, "log.z"),
        ([{**TRADE, "points": "seeds"}], {}, "points"),
        ([{"x": "epsilon", "y": "perplexity"}], {}, "title"),
        ([{**TRADE, "points": "checkpoints"}], {}, "name of a column"),
        ([{**TRADE, "points": "checkpoints", "x": "step"}], {"audit": {}}, "checkpoints that audits attack"),
        ([{**TRADE, "points": "checkpoints", "x": "step"}], {"audit": False}, "checkpoints that audits attack"),
        ([], {"settings": {"corpus": "$train", "policy": "gold"}}, "none with training.save_steps"),
        ([], {"paper": {"plain": {"perplexety": 3}}}, "perplexety"),
        ([TRADE] * 31, {}, "at most 30 charts"),
    ],
)
def test_g3_of_recipes_draws_that_mean_nothing_are_refused(
    tmp_path: Path, draws: list[dict[str, Any]], over: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        recipe_of(tmp_path, *draws, **over)
    assert words in str(refused.value)
    assert recipe_of(tmp_path, TRADE).draws[0].title == "Trade"


def test_draws_is_a_list_of_pictures(tmp_path: Path) -> None:
    for wrong in ("epsilon", {"title": "x"}, ["epsilon"]):
        with pytest.raises(ConfigError, match="a list of charts"):
            recipe_of(tmp_path, draws=wrong)


def test_results_of_another_recipe_are_refused(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, TRADE)
    with pytest.raises(ConfigError, match="those of stranger"):
        charts(recipe, [line_of("stranger-seed-0", "stranger", 0, 1.0, 2.0)])


def test_every_column_takes_a_line_that_says_nothing_and_a_full_one(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, TRADE)
    full = lines_of(recipe)[0]
    assert all(column({"figures": None}) is None for column in chart_columns().values())
    filled = {name for name, column in chart_columns().items() if column(full) is not None}
    assert {"perplexity", "exposure", "best exposure", "two-stage membership"} <= filled
    assert table_columns().keys() <= chart_columns().keys()
    (point, *_) = full["figures"]["attacks"]["checkpoints"]
    assert {name for name, column in checkpoint_columns().items() if column(point) is None} == {
        name for name in checkpoint_columns() if "unknown" in name
    }
    assert checkpoint_columns()["perplexity"]({**point, "normalised": 7.0}) == 7.0


# --- the page ---

WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def drawn_page(folder: Path) -> Path:
    way = {"title": "On the <b>way</b>", "points": "checkpoints", "x": "perplexity", "y": "exposure"}
    nothing = {**TRADE, "title": "Nothing", "y": "blind"}
    both = {"title": "Both", "x": "plan.mechanism", "y": ["exposure", "exposure, not planted"]}
    recipe = recipe_of(folder, TRADE, {**way, "series": ["run", "plan.epsilon"]}, nothing, both)
    lines = lines_of(recipe)
    lines[-1]["figures"], lines[-1]["refused"] = None, {"expected": "<script>", "found": "x" * 300, "way_out": "w"}
    page = folder / "sweep.html"
    page.write_text(sweep_page(recipe, results_of(recipe, lines), "comparison.html", linked=True))
    return page


def test_the_page_is_pure_and_escapes_what_it_is_told(tmp_path: Path) -> None:
    text = drawn_page(tmp_path).read_text()
    assert text == drawn_page(tmp_path).read_text()
    assert "<b>way" not in text
    assert "Expected &lt;script&gt;" in text
    assert 'href="comparison.html"' in text
    assert 'href="plain-seed-0/release/tacit/report.html"' in text
    assert "selective-epsilon-4-seed-2/release" not in text
    recipe = recipe_of(tmp_path)
    bare = sweep_page(recipe, results_of(recipe, lines_of(recipe)))
    assert "<figure" not in bare
    assert "report.html" not in bare


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (360, False)])
def test_the_page_draws_in_a_browser(tmp_path: Path, tab: Browser, width: int, dark: bool) -> None:
    tab.open(drawn_page(tmp_path), width, dark=dark)
    assert tab.faults == []
    assert tab.requests == []
    assert tab.run(WIDER) == 0
    assert tab.run("document.querySelectorAll('svg.picture').length") == 4
    assert tab.run("document.querySelectorAll('svg.picture .point').length") == 3 + 9 + 6
    unnamed = "[...document.querySelectorAll('svg.picture')].filter(one => !one.querySelector('title, desc')).length"
    assert tab.run(unnamed) == 0
    ink = tab.run("getComputedStyle(document.querySelector('.whisker')).stroke")
    assert ink == ("rgb(156, 198, 242)" if dark else "rgb(42, 95, 152)")
    tab.run("document.querySelector('button[data-switch=\"series: plain\"]').click()")
    assert tab.run("document.querySelectorAll('.picture .off').length") == 2  # its lines on two pictures, no other
    aim = tab.run("document.querySelector('a.point').getAttribute('href')")
    assert tab.run(f"document.querySelector('{aim}').textContent.startsWith('plain')") is True


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_page_that_is_too_wide_would_be_seen(tmp_path: Path, tab: Browser) -> None:
    page = drawn_page(tmp_path)
    page.write_text(page.read_text().replace("<figure", '<figure style="width: 500px"', 1))
    tab.open(page, 360)
    assert tab.run(WIDER) > 0


# --- pictures for documents ---


def _pictures() -> ModuleType:
    place = Path(__file__).parents[2] / "benchmarks" / "reproduce" / "pictures.py"
    spec = importlib.util.spec_from_file_location("pictures", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_pictures_of_charts_are_small_files(tmp_path: Path) -> None:
    taking = _pictures()
    recipe = recipe_of(tmp_path, TRADE, {**TRADE, "y": "exposure"})
    results = tmp_path / "results.json"
    results.write_text(json.dumps(results_of(recipe, lines_of(recipe))))
    taken = taking.take(tmp_path / "drawn.yaml", results, tmp_path / "into")
    assert [one.name for one in taken] == ["drawn-1.png", "drawn-2.png"]
    for one in taken:
        content = one.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert 5_000 < len(content) < 120_000
    results.write_text(json.dumps({**results_of(recipe, []), "recipe": "other"}))
    with pytest.raises(ConfigError, match="results of drawn"):
        taking.take(tmp_path / "drawn.yaml", results, tmp_path)
    recipe_of(tmp_path)
    results.write_text(json.dumps(results_of(recipe, [])))
    with pytest.raises(ConfigError, match="a recipe that draws"):
        taking.take(tmp_path / "drawn.yaml", results, tmp_path)
