"""Markdown tables from the results of sweeps, put between markers of a document.

    python benchmarks/reproduce/tables.py [RECIPE.yaml ...] [--into docs/results.md]

A table replaces what stands between `<!-- table: NAME -->` and the next `<!-- end -->`, NAME being the recipe's;
without `--into` it is printed. A line is a run over all its seeds: the mean, and with more than one seed the deviation.
What the paper prints (`paper:` of the recipe) stands in brackets. Columns that no run fills are left out.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tacit.common.files import write_bytes
from tacit.errors import ConfigError, TacitError
from tacit.sweeps.recipe import Recipe, read_recipe
from tacit.sweeps.result_columns import ResultRow, columns_of, rows_of

END = "<!-- end -->"


def table(recipe: Recipe, results: dict[str, Any], command: str) -> str:
    """The table and what it was made with."""
    if results.get("recipe") != recipe.name:
        raise ConfigError(f"results of {recipe.name}", str(results.get("recipe")), "give the results of this recipe")
    columns = columns_of(results["runs"], recipe.paper)
    rows = [
        [f"`{row.name}`{_seeds(row)}", *row.cells, row.seconds]
        for row in rows_of(results["runs"], columns, recipe.paper)
    ]
    head = ["run", *columns, "seconds"]
    drawn = [head, ["---"] * len(head), *rows]
    said = [f"`{command}`", *_failures(results["runs"])]
    return "\n".join([*("| " + " | ".join(row) + " |" for row in drawn), "", *said]) + "\n"


def _seeds(row: ResultRow) -> str:
    return f", {len(row.lines)} seeds" if len(row.lines) > 1 else ""


def _failures(lines: list[dict[str, Any]]) -> list[str]:
    failed = [line["name"] for line in lines if line["refused"]]
    return [f"\nFailed: {', '.join(failed)}."] if failed else []


def put(document: str, name: str, content: str) -> str:
    """The document with `content` between the markers of this name."""
    start = f"<!-- table: {name} -->"
    before, found, after = document.partition(start)
    _, ended, rest = after.partition(END)
    if not found or not ended or start in rest:
        raise ConfigError(
            expected=f"one pair of markers, {start} and {END}",
            found="none" if not found else "no end" if not ended else "more",
            way_out="write both on lines of their own where the table belongs",
        )
    return f"{before}{start}\n{content}{END}{rest}"


def made(file: Path, results: dict[str, Any]) -> str:
    """The table of these results of the recipe in `file`, and the command that gives them."""
    scale = "" if results["scale"] == 1 else f" --scale {results['scale']:g}"
    return table(read_recipe(file), results, f"tacit sweep benchmarks/reproduce/{file.name}{scale}")


def main() -> None:
    """Parse, make, put."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, nargs="*", help="recipes (default: all here that have results)")
    parser.add_argument("--results", type=Path, help="of the one recipe (default: RECIPE.results.json)")
    parser.add_argument("--into", type=Path, help="the document with the markers")
    options = parser.parse_args()
    if options.results is not None and len(options.recipe) != 1:
        parser.error("--results is for one recipe")
    here = sorted(
        place for place in Path(__file__).parent.glob("*.yaml") if place.with_suffix(".results.json").exists()
    )
    try:
        for file in options.recipe or here:
            place = options.results or file.with_suffix(".results.json")
            content = made(file, json.loads(place.read_text(encoding="utf-8")))
            if options.into is None:
                print(content)
                continue
            document = options.into.read_text(encoding="utf-8")
            write_bytes(options.into, put(document, read_recipe(file).name, content).encode())
    except TacitError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
