"""PNG pictures of what a recipe draws, one a chart, from the results of its sweep: for documents.

    python benchmarks/reproduce/pictures.py [RECIPE.yaml ...] [--into docs/pictures]

The page of the sweep is made anew from the recipe and its results, and opened in the browser that the tests use.
Pictures are named by the recipe's name and the place of the chart under `draws`: NAME-1.png, NAME-2.png and so on.
"""

import argparse
import base64
import json
import sys
import tempfile
from pathlib import Path

from tacit.common.files import write_bytes
from tacit.errors import ConfigError, TacitError
from tacit.sweeps.charts import sweep_page
from tacit.sweeps.recipe import read_recipe

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from browser import CHROMIUM, Browser, browser

_WIDTH, _HEIGHT, _SCALE = 1160, 900, 1.5
_MOST_BYTES = 120_000
_BOXES = """(() => {
  for (const one of document.querySelectorAll('figure details, nav, .tip')) one.remove();
  document.querySelector(".pair").style.alignItems = "start";
  return [...document.querySelectorAll('figure')].map(one => {
    const box = one.getBoundingClientRect();
    return {x: box.left + scrollX, y: box.top + scrollY, width: box.width, height: box.height, scale: SCALE};
  });
})()"""


def pictures(page: Path, tab: Browser) -> list[bytes]:
    """A PNG of every chart of a page, in order."""
    tab.open(page, _WIDTH, _HEIGHT)
    return [
        base64.b64decode(tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=box)["data"])
        for box in tab.run(_BOXES.replace("SCALE", str(_SCALE)))
    ]


def take(recipe: Path, results: Path, folder: Path) -> list[Path]:
    """The pictures of a recipe's charts, as files."""
    content = json.loads(results.read_text(encoding="utf-8"))
    read = read_recipe(recipe, content["scale"])
    if content.get("recipe") != read.name:
        raise ConfigError(f"results of {read.name}", str(content.get("recipe")), "give the results of this recipe")
    if not read.draws:
        raise ConfigError("a recipe that draws", f"no `draws:` in {recipe.name}", "see docs/sweeps.md")
    if CHROMIUM is None:
        raise ConfigError("Chromium, to take pictures with", "none", "install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    places = [folder / f"{read.name}-{at}.png" for at in range(1, len(read.draws) + 1)]
    with tempfile.TemporaryDirectory() as scratch, browser() as tab:
        page = Path(scratch) / "sweep.html"
        page.write_text(sweep_page(read, content), encoding="utf-8")
        for place, taken in zip(places, pictures(page, tab), strict=True):
            if len(taken) > _MOST_BYTES:
                raise ConfigError(f"pictures of at most {_MOST_BYTES:,} bytes", f"{len(taken):,}", "draw fewer points")
            write_bytes(place, taken)
    return places


def _draws(recipe: Path) -> bool:
    return recipe.with_suffix(".results.json").exists() and bool(read_recipe(recipe).draws)


def main() -> None:
    """Parse, take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, nargs="*", help="recipes (default: all here that draw and have results)")
    parser.add_argument("--results", type=Path, help="of the one recipe (default: RECIPE.results.json)")
    parser.add_argument("--into", type=Path, default=Path("docs/pictures"), help="the folder")
    options = parser.parse_args()
    if options.results is not None and len(options.recipe) != 1:
        parser.error("--results is for one recipe")
    try:
        for recipe in options.recipe or sorted(filter(_draws, Path(__file__).parent.glob("*.yaml"))):
            results = options.results or recipe.with_suffix(".results.json")
            for place in take(recipe, results, options.into):
                print(f"{place}, {place.stat().st_size:,} bytes")
    except TacitError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
