"""Every attack on every mechanism: CustomerSim, one model each, and a table of what was found with n and interval.

    python benchmarks/attacks.py FOLDER [--dialogs 2000] [--only plain,dpsgd] [--scale F] [--shadow-models 2]
    python benchmarks/attacks.py FOLDER --model FOLDER_OF_A_MODEL
    python benchmarks/attacks.py FOLDER --repeated [--dialogs 500] [--only plain,selective,dpsgd]

With --repeated: canaries that come ten times, 50 that the policy marks and 50 that it does not, in place of the usual
ones, and only the attacks on them (paraphrases, exposure). With --model: adapters of rank 8 on a Hugging Face folder,
300 dialogs, three passes, and plain, dpsgd and selective. Of LSTMs, the first weights are random ones.
Runs and audits are kept in FOLDER and resumed there: what is finished is not made again, down to single attacks.
results.json has every figure, table.md two tables: one row per mechanism, with the first figure of its main attacks and
their controls (blind baselines); and one row per attack and mechanism, with all of them. Half of the people are held
out, so that both sides have many secrets.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tacit import api
from tacit.audits.findings import Audit
from tacit.common.charts import Table
from tacit.common.progress import unwatched
from tacit.runs.release import PrivateFile

MECHANISMS: dict[str, dict[str, Any]] = {
    "plain": {"public_epochs": 10},
    "redaction": {"public_epochs": 10},
    "invented": {"public_epochs": 10},
    "dpsgd": {"epsilon": 8, "epochs": 10},
    "selective": {"epsilon": 8, "epochs": 4, "public_epochs": 10},
    "crt": {"epsilon": 8, "epochs": 4, "public_epochs": 10},
    "cadp": {"epsilon": 8, "epochs": 4, "public_epochs": 10},
    "user": {"epsilon": 8, "epochs": 4},
}
OF_ADAPTERS = ("plain", "dpsgd", "selective")
PASSES, RANK, DIALOGS = 3, 8, 300
"""Of adapters."""
OF_REPEATED = ("plain", "selective", "dpsgd")
REPEATED = [
    {"template": "My ID is {4 digits}.", "count": 50, "repetitions": 10, "inside_probability": 1.0},
    {
        "template": "The answer is {4 digits}.",
        "count": 50,
        "repetitions": 10,
        "inside_probability": 1.0,
        "known": False,
    },
]
MORE: dict[str, dict[str, Any]] = {"crt": {"conservative_policy": "conservative"}}
SHARED = {"policy": "pii", "held_out": 0.5, "mode": "research", "max_tokens": 128, "max_full_tokens": 128}
SMALLER = {
    "candidates": 150,
    "secrets": 100,
    "surrogates": 2,
    "sampling.texts": 128,
    "reconstruction.places": 100,
    "extraction.tries": 4,
}
"""How hard the audit of a model from a folder attacks: each text takes it a hundred times as long."""

Found = tuple[str, str, str]
"""An attack, what it found, and its control."""


def plan_of(mechanism: str, adapters: bool, scale: float) -> dict[str, Any]:
    """The settings of a plan."""
    plan = MECHANISMS[mechanism]
    if adapters:
        plan = {name: PASSES if "epochs" in name else value for name, value in plan.items()}
    return {name: value * (scale if "epochs" in name else 1) for name, value in plan.items()}


def trained(mechanism: str, corpus: Path, folder: Path, model: str, scale: float, *, repeated: bool = False) -> Path:
    """The finished run, begun, resumed or taken as it is."""
    place, adapters = folder / mechanism, model != "lstm"
    if (place / "release/tacit/manifest.json").exists():
        return place
    if (place / "private/settings.json").exists():
        api.resume(place, observe=unwatched)
        return place
    settings = {**SHARED, **MORE.get(mechanism, {}), "model": model}
    settings |= {"lora": {"rank": RANK}} if adapters else {"initial_weights": "random"}
    settings |= {"audit.canaries": REPEATED} if repeated else {}
    plan = {"mechanism": mechanism, **plan_of(mechanism, adapters, scale)}
    settings |= {f"plan.{name}": value for name, value in plan.items()}
    api.train_config(api.config(corpus, settings=settings), place)
    return place


def audited(run: Path, settings: dict[str, Any], shadow_models: int, attacks: Sequence[str] | None = None) -> Audit:
    """What its audit found, made here if there is none."""
    if not (run / "private" / PrivateFile.AUDIT).exists():
        api.audit(run, settings=settings, shadow_models=shadow_models, attacks=attacks)
    found = api.load(run).read(Audit, PrivateFile.AUDIT)
    assert found is not None
    return found


def _membership(table: Table) -> Iterator[Found]:
    rows = {row[0]: row for row in table.rows}
    blind = rows.pop("text alone")
    for name, (_, sides, accuracy, auc, low, *_) in rows.items():
        found = f"{accuracy} % right; AUC {auc}; {low} % at 1 % false alarms; members, others {sides}"
        yield f"membership, {name}", found, f"text alone {blind[2]} %"


def _secrets(table: Table) -> Iterator[Found]:
    rows = {row[0]: row[1] for row in table.rows}
    control = f"form alone {rows.get('form alone, no model', '–')}; held-out places {rows.get('held-out places', '–')}"
    for name, right in rows.items():
        if name not in ("form alone, no model", "held-out places"):
            yield f"secrets, {name}", right, control


def _two_sides(attack: str) -> Callable[[Table], Iterator[Found]]:
    def cells(table: Table) -> Iterator[Found]:
        for way, own, other, *_ in table.rows:
            yield f"{attack}, {way}", own, f"held out {other}"

    return cells


def _inference(table: Table) -> Iterator[Found]:
    for own, other, chance in table.rows:
        yield "inference among 100", own, f"held out {other}; chance {chance}"


def _sampling(table: Table) -> Iterator[Found]:
    for way, texts, own, other, precision in table.rows:
        yield (
            f"sampling, {way}",
            f"recall {own}; precision {precision}; {texts} texts",
            f"held out {other}; precision 50 %",
        )


def _exposure(table: Table) -> Iterator[Found]:
    for template, _, planted, median, best, most, p, _ in table.rows:
        yield (
            f"exposure, {template}",
            f"median {median}, best {best} of {most} bits; planted {planted}",
            f"in brackets; p {p}",
        )


def _paraphrases(table: Table) -> Iterator[Found]:
    for template, count, itself, reworded, _, p in table.rows:
        yield f"paraphrases, {template}", f"own words {itself}; {count} rewordings {reworded}", f"in brackets; p {p}"


def _epsilon(table: Table) -> Iterator[Found]:
    for template, count, unit, least, ideal, claimed, _, outcome in table.rows:
        found = f"at least {least} for {unit}; claimed {claimed}: {outcome}; n {count}"
        yield f"epsilon, {template}", found, f"ideal attacker {ideal}"


def _power(table: Table) -> Iterator[Found]:
    for template, count, _, least, control in table.rows:
        yield (
            f"power, {template}",
            f"shows {least} or more to an ideal attacker; n {count}",
            f"unprotected copy {control}",
        )


CELLS: dict[str, Callable[[Table], Iterator[Found]]] = {  # by how the title of a table begins
    "exposure of planted": _exposure,
    "canaries retrieved": _paraphrases,
    "epsilon, with": _epsilon,
    "what these canaries": _power,
    "membership in": _membership,
    "membership of secrets": _secrets,
    "inference:": _inference,
    "secrets that came out": _two_sides("extraction"),
    "reconstruction:": _two_sides("reconstruction"),
    "sampling:": _sampling,
}


MAIN = {
    "membership, min-k": "membership, Min-K%++; text alone",
    "secrets, single values": "secrets, %; form alone",
    "secrets, groups of 20": "groups of 20 secrets, %; form alone",
    "inference among 100": "inference; held out",
    "extraction, one of 10 by beam search": "extraction; held out",
    "reconstruction, guessed, by the text on both sides": "reconstruction; held out",
    "sampling, both together": "sampling; held out",
    "exposure, {word}": "exposure of a rare token (never planted)",
    "epsilon, {word}": "epsilon; ideal attacker",
}
"""Attacks of the short table, and the heads of their columns."""


def short_table_of(known: dict[str, Any]) -> str:
    """One row per mechanism."""
    lines = [f"| mechanism | {' | '.join(MAIN.values())} |", "|---" * (len(MAIN) + 1) + "|"]
    for mechanism, one in known.items():
        found = {attack: (figure, control) for attack, figure, control in one["cells"]}
        row = [_first(*found[attack]) if attack in found else "–" for attack in MAIN]
        lines.append(f"| `{mechanism}` | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _first(found: str, control: str) -> str:
    """The first figure of both; where the control is in brackets already, of the finding alone."""
    figure, beside = found.split(";")[0].split(" for ")[0].removeprefix("recall "), control.split(";")[0]
    names = ("text alone ", "form alone ", "held out ", "ideal attacker ")
    return "; ".join([figure, *(beside.removeprefix(name) for name in names if beside.startswith(name))])


def cells(found: Audit) -> list[Found]:
    """What every attack found, in one order."""
    tables = [table for finding in found.findings for table in finding.tables]
    return [
        one for title, read in CELLS.items() for table in tables if table.title.startswith(title) for one in read(table)
    ]


def table_of(known: dict[str, Any]) -> str:
    """One row per attack and mechanism, those of one attack together."""
    attacks = list(dict.fromkeys(attack for one in known.values() for attack, _, _ in one["cells"]))
    lines = ["| attack | mechanism | found | control |", "|---|---|---|---|"]
    for attack in attacks:
        for mechanism, one in known.items():
            row = next((cell for cell in one["cells"] if cell[0] == attack), None)
            found, control = ("–", "–") if row is None else row[1:]
            lines.append(f"| {attack} | {mechanism} | {found} | {control} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dialogs", type=int, help="Default: 2000, with --model 300.")
    parser.add_argument("--only", help="Mechanisms, with commas.")
    parser.add_argument("--model", default="lstm")
    parser.add_argument("--scale", type=float, default=1.0, help="Factor on all passes.")
    parser.add_argument("--shadow-models", type=int, default=0)
    parser.add_argument("--repeated", action="store_true", help="Canaries that come ten times.")
    given = parser.parse_args()
    adapters = given.model != "lstm"
    given.folder.mkdir(parents=True, exist_ok=True)
    corpus, results = given.folder / "corpus.jsonl", given.folder / "results.json"
    if not corpus.exists():
        api.simulate("customersim", dialogs=given.dialogs or (DIALOGS if adapters else 2000), out=corpus)
    known: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    usual = OF_REPEATED if given.repeated else OF_ADAPTERS if adapters else MECHANISMS
    attacks = ("exposure", "paraphrases") if given.repeated else None
    for mechanism in given.only.split(",") if given.only else usual:
        run = trained(mechanism, corpus, given.folder, given.model, given.scale, repeated=given.repeated)
        found = audited(run, SMALLER if adapters else {}, given.shadow_models, attacks)
        known[mechanism] = {"verdict": found.verdict.sentence, "figures": found.figures, "cells": cells(found)}
        results.write_text(json.dumps(known, indent=1))
        (given.folder / "table.md").write_text(f"{short_table_of(known)}\n{table_of(known)}")
        sys.stderr.write(f"{mechanism}: {found.verdict.outcome}\n")


if __name__ == "__main__":
    main()
