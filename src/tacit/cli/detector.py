"""`tacit detector`: train a context detector, show its card, measure it on sentences of one's own."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tacit import api
from tacit.cli.output import FIELDS, AsJson, field_names, watching, with_flags
from tacit.cli.output import show as show_result
from tacit.common.serialize import LARGEST_SEED

detector = typer.Typer(
    help="Train, show and measure a detector of sensitive contexts, which works as a policy.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(help="A folder that `tacit detector train` wrote.")]


@detector.command("train")
def train(
    out: Annotated[Path, typer.Argument(help="New folder for the detector.")],
    negatives: Annotated[Path, typer.Option(help="A public corpus of harmless text. Never use the corpus to protect.")],
    templates: Annotated[
        Path | None, typer.Option(help='Sensitive prompts, one per line: "My ID is {6 digits}"; or YAML.')
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A corpus of prompts with the labels sensitive and harmless.")
    ] = None,
    encoder: Annotated[
        Path | None, typer.Option(help="A Hugging Face encoder's folder.", show_default="a linear detector")
    ] = None,
    epochs: Annotated[int, typer.Option(min=0, help="Epochs of fine-tuning the encoder; 0 trains only the head.")] = 0,
    reword: Annotated[bool, typer.Option(help="Paraphrase with tacit's synonyms and sentence frames.")] = True,
    round_trip: Annotated[
        list[str] | None,
        typer.Option(help='Programs that translate lines there and back: "apertium -u eng-spa | apertium -u spa-eng".'),
    ] = None,
    seq2seq: Annotated[
        list[str] | None,
        typer.Option(
            help="Folder of a paraphrasing model, or two separated by a comma, which translate there and back."
        ),
    ] = None,
    same_meaning: Annotated[
        Path | None, typer.Option(help="An encoder's folder: drop paraphrases that mean something else.")
    ] = None,
    alike: Annotated[
        float, typer.Option(min=-1, max=1, help="Minimum cosine similarity with the prompt, for --same-meaning.")
    ] = 0.5,
    most: Annotated[int, typer.Option(min=1, help="Maximum paraphrases per prompt.")] = 400,
    recall: Annotated[float, typer.Option(help="Minimum share of held-out paraphrases to find.")] = 0.99,
    false_alarms: Annotated[
        float, typer.Option(help="Maximum share of public sentences to flag; recall takes precedence.")
    ] = 0.002,
    sentences: Annotated[int, typer.Option(min=20, help="Public sentences to use.")] = 20_000,
    harmless: Annotated[bool, typer.Option(help="Also learn from tacit's harmless prompts.")] = True,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same detector.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a detector on prompts, their paraphrases and public text, and write it with its card."""
    with watching() as observe:
        trained = api.detector_train(
            out,
            negatives,
            templates=templates,
            prompts=prompts,
            encoder=encoder,
            epochs=epochs,
            reword=reword,
            round_trip=round_trip or (),
            seq2seq=seq2seq or (),
            same_meaning=same_meaning,
            alike=alike,
            most=most,
            recall=recall,
            false_alarms=false_alarms,
            sentences=sentences,
            harmless=harmless,
            seed=seed,
            observe=observe,
        )
    show_result(trained, as_json)


@detector.command("show")
def show(folder: Folder) -> None:
    """Check that a detector is unchanged, and print its card as JSON."""
    found = api.detector_show(folder)
    typer.echo(json.dumps({"hash": found.hash, **found.card}, indent=2))


def measure(
    *,
    folder: Folder,
    corpus: Annotated[
        Path, typer.Argument(help="Sentences: all sensitive ones for recall, or public text for alarms.")
    ],
    as_json: AsJson = False,
    flags: dict[str, str],
) -> None:
    """Count the sentences of a corpus that a detector flags, with an exact interval."""
    show_result(api.detector_measure(folder, corpus, **field_names(flags)), as_json)


detector.command("measure")(with_flags(measure, FIELDS))
