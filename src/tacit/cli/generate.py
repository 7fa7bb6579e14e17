"""`tacit generate`: talk to a trained model.

`tacit export`: its model as a folder for transformers alone.

`tacit context`: which words before a secret make a language model expect it.
"""

import json
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from tacit import api
from tacit.cli.output import AsJson, print_part, show
from tacit.common.charts import Note, Table
from tacit.common.formatting import BLOCK, number, printable
from tacit.common.serialize import LARGEST_SEED

if TYPE_CHECKING:
    from tacit.papers.alpha_context import Contexts, Suffix


Base = Annotated[
    Path | None,
    typer.Option(help="Folder of the base model of adapters.", show_default="the one that was trained with"),
]


def generate(
    run: Annotated[Path, typer.Argument(help="A finished run folder, or a copy of its release/.")],
    prompt: Annotated[str, typer.Option(help="The text to continue.")] = "",
    chat: Annotated[
        str | None, typer.Option(help="A message to answer instead, with the model's chat template; prints the answer.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Maximum number of tokens to add.")] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 always takes the most likely token.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same text.")] = 0,
    base: Base = None,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt with the model of a run, or answer a message."""
    text = api.generate(run, prompt, tokens, temperature, seed, chat=chat, base=base)
    typer.echo(json.dumps({"text": text}, indent=2) if as_json else text)


def export(
    run: Annotated[Path, typer.Argument(help="A finished run folder, or a copy of its release/.")],
    merged: Annotated[Path, typer.Option(help="The folder to write; it must not exist.")],
    base: Base = None,
    as_json: AsJson = False,
) -> None:
    """Write the model of a run as a Hugging Face folder with all weights, adapters merged into them."""
    folder = api.export(run, merged, base=base)
    said = f"written to {folder}: load it with from_pretrained"
    typer.echo(json.dumps({"folder": str(folder)}, indent=2) if as_json else said)


_WORD = re.compile(r"\w+|[^\w\s]")


def context(
    text: Annotated[str, typer.Argument(help="The text, or - to read it from standard input.")],
    target: Annotated[str, typer.Option(help="The part of the text whose context to show.")],
    model: Annotated[Path, typer.Option(help="A finished run folder, or a local Hugging Face causal model.")],
    alpha: Annotated[
        float,
        typer.Option(
            help="Maximum difference between the probability after a suffix and after the whole preceding text."
        ),
    ] = 0.01,
    occurrence: Annotated[
        int | None, typer.Option(min=1, help="Which occurrence of the target, from 1.", show_default="the last")
    ] = None,
    reword: Annotated[
        bool,
        typer.Option("--reword", help="Also use paraphrases of a suffix, by tacit's synonyms and sentence frames."),
    ] = False,
    round_trip: Annotated[
        list[str] | None, typer.Option(help="Also use paraphrases by programs, such as 'to-french | to-english'.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Maximum paraphrases per suffix.")] = 10,
    table: Annotated[bool, typer.Option("--table", help="Print the probability after every suffix.")] = False,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Print the target.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which words before a secret make a model expect it: the shortest suffix that has the effect of the whole."""
    text = sys.stdin.read() if text == "-" else text
    told = api.context(
        text, target, model, alpha=alpha, occurrence=occurrence, reword=reword, round_trip=round_trip or (), most=most
    )
    if as_json:
        show(told, as_json)
        return
    shown, console = _Shown(text, None if show_secrets else target), Console(highlight=False)
    console.print(_marked(shown, told.start, told.start + len(target), told.shortest), "", sep="\n")
    print_part(console, Note(_sentence(told)))
    if reword or round_trip:
        print_part(console, Note(f"Each suffix was tried with {most:,} paraphrases at most; the farthest counts."))
    if table:
        print_part(console, _table(shown, told))


def _sentence(told: "Contexts") -> str:
    shortest, lasting, within = told.shortest, told.settled, f"within {told.alpha:g} of that"
    read = f"the {told.suffixes[-1].words:,} words and marks before it that the model can read"
    text = f"After {read} the target has probability {number(told.probability)}."
    if shortest is None:
        return f"{text} No suffix is {within} with all its paraphrases."
    after = number(shortest.probabilities[0])
    if shortest.words == 0:
        text += f" After none it has {after}, {within}: no context is needed."
    else:
        text += f" The last {shortest.words:,} are the shortest suffix {within}: {after}."
    if lasting is not None and lasting.words != shortest.words:
        text += f"\nSome longer suffixes are farther off; from {lasting.words:,} words and marks on, none is."
    return text


def _table(shown: "_Shown", told: "Contexts") -> Table:
    rows = tuple(
        (
            f"{suffix.words:,}",
            number(suffix.probabilities[0]),
            number(suffix.gap(told.probability)),
            "yes" if suffix.gap(told.probability) <= told.alpha else "no",
            shown.first_word(suffix.start) if suffix.words else "",
        )
        for suffix in told.suffixes
    )
    return Table(("words", "probability", "difference", f"within {told.alpha:g}", "begins with"), rows)


class _Shown:
    """Parts of a text for the screen; every word that a target's character is in is blacked out, wherever it is.

    Which characters are hidden is decided on the whole text, so that no cut through a target shows a part of it.
    """

    def __init__(self, text: str, target: str | None) -> None:
        self._text, self._hidden = text, bytearray(len(text))
        if target is None:
            return
        across = re.compile(f"(?={re.escape(target)})", re.IGNORECASE)  # where it overlaps itself, too
        for match in across.finditer(text):
            self._hide(match.start(), match.start() + len(target))
        for start, end in [match.span() for match in re.finditer(r"\w+", text)]:
            if any(self._hidden[start:end]):
                self._hide(start, end)

    def _hide(self, start: int, end: int) -> None:
        self._hidden[start:end] = bytes([True]) * (end - start)

    def part(self, start: int, end: int) -> str:
        shown, at = "", start
        for hidden, run in groupby(self._hidden[start:end]):
            after = at + sum(1 for _ in run)
            shown += BLOCK if hidden else printable(self._text[at:after])
            at = after
        return shown

    def first_word(self, start: int) -> str:
        found = _WORD.match(self._text, start)
        return self.part(*found.span()) if found else ""

    def __len__(self) -> int:
        return len(self._text)


def _marked(shown: _Shown, start: int, end: int, suffix: "Suffix | None") -> Text:
    begins = start if suffix is None else suffix.start
    marked = Text(shown.part(0, begins), style="dim")
    if begins < start:
        marked.append(f"[context {shown.part(begins, start).rstrip()}]", style="not dim yellow reverse")
        marked.append(" ")
    marked.append(f"[target {shown.part(start, end)}]", style="not dim bold red reverse")
    return marked.append(shown.part(end, len(shown)), style="dim")
