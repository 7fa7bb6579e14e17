"""`tacit context`: which words before a secret make a language model expect it."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.context import Phi, Suffix


def context(
    text: Annotated[str, typer.Argument(help="The text, or - to read it from standard input.")],
    target: Annotated[str, typer.Option(help="The part of the text whose context is asked for.")],
    model: Annotated[Path, typer.Option(help="A finished run folder, or a local Hugging Face causal model.")],
    alpha: Annotated[
        float, typer.Option(help="How far the probability may be from that after the whole context.")
    ] = 0.01,
    occurrence: Annotated[
        int | None, typer.Option(min=1, help="Which occurrence of the target, from 1.", show_default="the last")
    ] = None,
    reword: Annotated[
        bool, typer.Option("--reword", help="Paraphrases of a suffix, by tacit's own synonyms and frames, must agree.")
    ] = False,
    round_trip: Annotated[
        list[str] | None, typer.Option(help="Those of a command must agree, such as 'to-french | to-english'.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Paraphrases a suffix, at most.")] = 10,
    table: Annotated[bool, typer.Option("--table", help="Print the probability after every suffix.")] = False,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Print the target.")] = False,
) -> None:
    """Show the alpha-context of a secret: the shortest text before it after which a model expects it as after all."""
    from tacit.context import LeftContext, check_alpha, context_model, settled

    check_alpha(alpha)
    text = sys.stdin.read() if text == "-" else text
    start = _place(text, target, occurrence)
    left = LeftContext(context_model(model.resolve()), text, start, start + len(target))
    phi = _phi(reword, round_trip or [], most)
    whole, suffixes = left.probability, list(left.suffixes(phi))
    shortest = next((suffix for suffix in suffixes if suffix.gap(whole) <= alpha), None)
    lasting = settled(suffixes, whole, alpha)
    hidden = _Hidden(None if show_secrets else target)
    console = Console(highlight=False)
    console.print(_shown(text, start, target, shortest, hidden), "", sep="\n")
    console.print(Text(_sentence(shortest, suffixes, whole, alpha)), soft_wrap=True)
    if phi is not None:
        console.print(
            Text(f"Each suffix was tried with {most:,} paraphrases at most; the farthest counts."), soft_wrap=True
        )
    if lasting is not None and shortest is not None and lasting.words != shortest.words:
        said = f"Some longer suffixes are farther off; from {lasting.words:,} words and marks on, none is."
        console.print(Text(said), soft_wrap=True)
    if table:
        console.print("", _table(text, suffixes, whole, alpha, hidden), sep="\n")


def _phi(reword: bool, round_trips: list[str], most: int) -> "Phi | None":
    if not reword and not round_trips:
        return None
    from tacit.detecting.ways import phi_of

    chosen = phi_of(reword, round_trips=round_trips, most=most + 1)
    return lambda texts: [said[1:] for said in chosen.paraphrases(texts, seed=0)]  # the first is the text itself


class _Hidden:
    """Text for the screen, with the target blacked out wherever it stands, in whatever case."""

    def __init__(self, target: str | None) -> None:
        self._pattern = None if target is None else re.compile(re.escape(target), re.IGNORECASE)

    def __call__(self, text: str) -> str:
        from tacit.scan.excerpt import BLOCK, printable

        return printable(text if self._pattern is None else self._pattern.sub(BLOCK, text))


def _place(text: str, target: str, occurrence: int | None) -> int:
    if not target:
        raise ConfigError("a target", "an empty one", "name the part of the text with --target")
    places = [found.start() for found in re.finditer(f"(?={re.escape(target)})", text)]
    if not places:
        raise ConfigError("a target that stands in the text", "a text without it", "write it as it stands in the text")
    if occurrence is not None and occurrence > len(places):
        raise ConfigError(
            expected=f"occurrence {occurrence} of the target",
            found=f"{len(places)} in the text",
            way_out="name an earlier one",
        )
    return places[-1 if occurrence is None else occurrence - 1]


def _shown(text: str, start: int, target: str, suffix: "Suffix | None", hidden: _Hidden) -> Text:
    begins = start if suffix is None else suffix.start
    shown = Text(hidden(text[:begins]), style="dim")
    if begins < start:
        shown.append(f"[context {hidden(text[begins:start]).rstrip()}]", style="not dim yellow reverse")
        shown.append(" ")
    shown.append(f"[target {hidden(target)}]", style="not dim bold red reverse")
    return shown.append(hidden(text[start + len(target) :]), style="dim")


def _sentence(shortest: "Suffix | None", suffixes: "Sequence[Suffix]", whole: float, alpha: float) -> str:
    from tacit.report.words import number

    read = f"the {suffixes[-1].words:,} words and marks before it that the model can read"
    said = f"After {read} the target has probability {number(whole)}."
    if shortest is None:
        return f"{said} No suffix is within {alpha:g} of that with all its paraphrases."
    after = number(shortest.probabilities[0])
    if shortest.words == 0:
        return f"{said} After none it has {after}, within {alpha:g} of that: no context is needed."
    return f"{said} The last {shortest.words:,} are the shortest suffix within {alpha:g} of that: {after}."


def _table(text: str, suffixes: "Sequence[Suffix]", whole: float, alpha: float, hidden: _Hidden) -> Table:
    from tacit.report.words import number

    table = Table(box=None, pad_edge=False)
    for name in ("words", "probability", "difference", f"within {alpha:g}"):
        table.add_column(name, justify="right")
    table.add_column("begins with", overflow="fold")
    for suffix in suffixes:
        first = re.match(r"\w+|[^\w\s]", text[suffix.start :]) if suffix.words else None
        inside = "yes" if suffix.gap(whole) <= alpha else "no"
        cells = (f"{suffix.words:,}", number(suffix.probabilities[0]), number(suffix.gap(whole)), inside)
        table.add_row(*cells, Text(hidden(first.group()) if first else ""))
    return table
