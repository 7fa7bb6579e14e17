"""`tacit simulate`: a simulated corpus with gold spans, written to a file."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from tacit.common.serialize import LARGEST_SEED
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record
from tacit.errors import ConfigError


def simulate(
    simulator: Annotated[str, typer.Argument(help="Name of the simulator: customersim.")],
    dialogs: Annotated[int, typer.Option(help="How many dialogs.")] = 10_000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .jsonl, or .jsonl.gz, .xz, .zst. An older one is replaced.",
            show_default="SIMULATOR-SPLIT.jsonl",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="The same seed gives the same corpus.")] = 0,
    split: Annotated[str, typer.Option(help="train, validation or test: no person is in two of them.")] = "train",
    held_out_people: Annotated[
        Path | None,
        typer.Option(help="Also write to this file as many people who are in no split, for membership tests."),
    ] = None,
) -> None:
    """Write a simulated corpus with gold spans."""
    # The word lists behind the people take a fifth of a second to load, which no other verb should wait for.
    from tacit.simulation.simulate import simulate as simulate_records
    from tacit.simulation.simulate import simulate_held_out

    records = simulate_records(simulator, dialogs, seed, split)
    out = out or Path(f"{simulator}-{split}.jsonl")
    if held_out_people is not None and held_out_people.resolve() == out.resolve():
        raise ConfigError(
            expected="two files", found=f"{out} for both", way_out="give --held-out-people another file than --out"
        )
    users: set[str | None] = set()
    kinds: Counter[str] = Counter()
    _write(_counted(records, users, kinds), dialogs, out)
    secrets = ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items()))
    if held_out_people is not None:
        _write(simulate_held_out(simulator, len(users), seed), len(users), held_out_people)
        typer.echo(f"{len(users):,} held-out people written to {held_out_people}")
    typer.echo(f"{dialogs:,} dialogs of {len(users):,} users written to {out}; secrets: {secrets}")


def _write(records: Iterable[Record], how_many: int, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            expected=f"a folder that can be made at {path.parent}",
            found=error.strerror or "an error while making it",
            way_out="choose another folder, or one you may write to",
        ) from error
    console = Console(stderr=True)
    shown = track(records, path.name, total=how_many, console=console, transient=True, disable=not console.is_terminal)
    write_jsonl(shown, path)


def _counted(records: Iterable[Record], users: set[str | None], kinds: Counter[str]) -> Iterator[Record]:
    for record in records:
        users.add(record.user)
        kinds.update(span.kind for span in record.spans or ())
        yield record
