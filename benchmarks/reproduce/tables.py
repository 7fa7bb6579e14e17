"""Markdown tables from the results of sweeps, put between markers of a document.

    python benchmarks/reproduce/tables.py RECIPE.yaml RESULTS.json [--into docs/results.md]

A table replaces what stands between `<!-- table: NAME -->` and the next `<!-- end -->`, NAME being the recipe's;
without `--into` it is printed. A line is a run over all its seeds: the mean, and with more than one seed the deviation.
What the paper prints (`paper:` of the recipe) stands in brackets. Columns that no run fills are left out.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, TacitError
from tacit.rounding import rounded_up
from tacit.run.files import write_bytes
from tacit.sweeping import Recipe, read_recipe

Line = dict[str, Any]
END = "<!-- end -->"


def _at(*path: str) -> Callable[[Line], Any]:
    """What stands at a path of a line, none where it ends early."""

    def found(line: Line) -> Any:  # noqa: ANN401
        value: Any = line
        for word in path:
            value = None if value is None else value.get(word)
        return value

    return found


def _perplexity(part: str) -> Callable[[Line], Any]:
    """A measure's tokens where there is one, the run's own otherwise."""

    def found(line: Line) -> Any:  # noqa: ANN401
        normalised = _at("figures", "utility", "normalised")(line)
        parts = normalised or _at("figures", "utility", "tokens")(line)
        return parts[part]["perplexity"] if parts else None

    return found


def _canaries(known: bool, word: str) -> Callable[[Line], Any]:
    def found(line: Line) -> Any:  # noqa: ANN401
        plans = _at("figures", "attacks", "canaries")(line) or []
        return next((plan.get(word) for plan in plans if plan["known"] is known), None)

    return found


def _membership(groups: bool) -> Callable[[Line], Any]:
    """Ranking by perplexity, as in the papers; the best of several attacks would be chosen by the truth."""

    def found(line: Line) -> Any:  # noqa: ANN401
        attacks = _at("figures", "attacks", "membership")(line) or []
        loss = next((attack for attack in attacks if attack["attack"] == "loss"), None)
        judged = loss["groups"] if loss and groups else loss
        return judged["accuracy"] if judged else None

    return found


def _headline(line: Line) -> Any:  # noqa: ANN401
    figures = _at("figures", "claim", "figures")(line)
    return figures[0]["epsilon"] if figures else None


COLUMNS: dict[str, Callable[[Line], Any]] = {
    "perplexity": _perplexity("overall"),
    "public perplexity": _perplexity("public"),
    "private perplexity": _perplexity("private"),
    "accuracy": _at("figures", "utility", "tokens", "overall", "accuracy"),
    "nats a character": _at("figures", "utility", "nats_a_character"),
    "test error rate": _at("figures", "utility", "labels", "overall", "error_rate"),
    "epsilon": _headline,
    "printed epsilon": _at("figures", "claim", "published", "epsilon"),
    "exposure": _canaries(True, "median"),
    "exposure, not planted": _canaries(True, "median_held_out"),
    "exposure, unknown": _canaries(False, "median"),
    "membership": _membership(False),
    "group membership": _membership(True),
    "blind": _at("figures", "attacks", "blind", "accuracy"),
}
"""Every column, and where a line has it."""
_ROUNDED_UP = {"epsilon", "printed epsilon"}


def table(recipe: Recipe, results: dict[str, Any], command: str) -> str:
    """The table and what it was made with."""
    if results.get("recipe") != recipe.name:
        raise ConfigError(f"results of {recipe.name}", str(results.get("recipe")), "give the results of this recipe")
    groups: dict[str, list[Line]] = {}
    for line in results["runs"]:
        groups.setdefault(line["group"], []).append(line)
    unknown = {column for printed in recipe.paper.values() for column in printed} - COLUMNS.keys()
    for column in sorted(unknown):
        raise ConfigError.unknown_name("column, under `paper`", column, COLUMNS)
    filled = [
        column
        for column, value in COLUMNS.items()
        if any(value(line) is not None for line in results["runs"])
        or any(column in printed for printed in recipe.paper.values())
    ]
    rows = [_row(name, lines, filled, recipe.paper.get(name, {})) for name, lines in groups.items()]
    head = ["run", *filled, "seconds"]
    drawn = [head, ["---"] * len(head), *rows]
    said = [f"`{command}`", *_failures(results["runs"])]
    return "\n".join([*("| " + " | ".join(row) + " |" for row in drawn), "", *said]) + "\n"


def _row(name: str, lines: list[Line], columns: list[str], printed: dict[str, float | str]) -> list[str]:
    cells = [_cell(column, [COLUMNS[column](line) for line in lines], printed.get(column)) for column in columns]
    seconds = [sum(line["seconds"].values()) for line in lines if line["seconds"]]
    seeds = f", {len(lines)} seeds" if len(lines) > 1 else ""
    return [f"`{name}`{seeds}", *cells, f"{statistics.mean(seconds):.0f}" if seconds else "–"]


def _cell(column: str, values: list[float | None], printed: float | str | None) -> str:
    known = [value for value in values if value is not None and math.isfinite(value)]
    say = _up if column in _ROUNDED_UP else _plain
    ours = say(statistics.mean(known)) if known else "–"
    if len(known) > 1:
        ours += f" ± {_plain(statistics.stdev(known))}"
    if 0 < len(known) < len(values):
        ours += f" ({len(known)} of {len(values)})"
    if printed is None:
        return ours
    return f"{ours} (paper: {printed if isinstance(printed, str) else f'{printed:g}'})"


def _up(value: float) -> str:
    return rounded_up(value, 3)


def _plain(value: float) -> str:
    return f"{value:.3g}"


def _failures(lines: list[Line]) -> list[str]:
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


def main() -> None:
    """Parse, make, put."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--into", type=Path, help="the document with the markers")
    options = parser.parse_args()
    try:
        results = json.loads(options.results.read_text(encoding="utf-8"))
        recipe = read_recipe(options.recipe)
        scale = "" if results["scale"] == 1 else f" --scale {results['scale']:g}"
        made = table(recipe, results, f"tacit sweep benchmarks/reproduce/{options.recipe.name}{scale}")
        if options.into is None:
            print(made, end="")
            return
        document = options.into.read_text(encoding="utf-8")
        write_bytes(options.into, put(document, recipe.name, made).encode())
    except TacitError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
