"""Every attack on every mechanism: CustomerSim, one LSTM each, and a table of what was found with n and interval.

    python benchmarks/attacks.py FOLDER [--dialogs 2000] [--only plain,dpsgd] [--model FOLDER] [--scale F]

Runs and audits are kept in FOLDER and resumed there: what is finished is not made again. results.json has every figure,
table.md the table. Half of the people are held out, so that both sides have many secrets.
"""

import argparse
import json
import sys
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
MORE: dict[str, dict[str, Any]] = {"crt": {"conservative_policy": "conservative"}}
SHARED = {"policy": "pii", "held_out": 0.5, "mode": "research", "max_tokens": 128, "max_full_tokens": 128}
TITLES = {
    "membership of secrets": "secrets",
    "membership in": "membership",
    "inference:": "inference",
    "secrets that came out": "extraction",
    "epsilon, with": "epsilon",
    "exposure of planted": "exposure",
    "what these canaries": "power",
}


def trained(mechanism: str, corpus: Path, folder: Path, model: str, scale: float) -> Path:
    """The finished run, begun, resumed or taken as it is."""
    place = folder / mechanism
    if (place / "release/tacit/manifest.json").exists():
        return place
    if (place / "private/settings.json").exists():
        api.resume(place, observe=unwatched)
        return place
    plan = {name: value * (scale if "epochs" in name else 1) for name, value in MECHANISMS[mechanism].items()}
    settings = {**SHARED, **MORE.get(mechanism, {}), "model": model}
    settings |= {f"plan.{name}": value for name, value in {"mechanism": mechanism, **plan}.items()}
    api.train_config(api.config(corpus, settings=settings), place)
    return place


def audited(run: Path) -> Audit:
    """What its audit found, made here if there is none."""
    if not (run / "private" / PrivateFile.AUDIT).exists():
        api.audit(run)
    found = api.load(run).read(Audit, PrivateFile.AUDIT)
    assert found is not None
    return found


def cells(found: Audit) -> dict[str, str]:
    """One line per attack: the first columns of its tables, as they were printed."""
    tables = [table for finding in found.findings for table in finding.tables]
    return {name: _cell(table) for title, name in TITLES.items() for table in tables if table.title.startswith(title)}


def _cell(table: Table) -> str:
    return "; ".join(" ".join(filter(None, row[:5])) for row in table.rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dialogs", type=int, default=2000)
    parser.add_argument("--only", default=",".join(MECHANISMS))
    parser.add_argument("--model", default="lstm")
    parser.add_argument("--scale", type=float, default=1.0, help="Factor on all passes.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    corpus, results = given.folder / "corpus.jsonl", given.folder / "results.json"
    if not corpus.exists():
        api.simulate("customersim", dialogs=given.dialogs, out=corpus)
    known: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    for mechanism in given.only.split(","):
        found = audited(trained(mechanism, corpus, given.folder, given.model, given.scale))
        known[mechanism] = {"verdict": found.verdict.sentence, "figures": found.figures, "cells": cells(found)}
        results.write_text(json.dumps(known, indent=1))
        sys.stderr.write(f"{mechanism}: {found.verdict.outcome}\n")
    heads = sorted({name for one in known.values() for name in one["cells"]})
    lines = [f"| mechanism | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    lines += [
        f"| {name} | {' | '.join(one['cells'].get(head, '–') for head in heads)} |" for name, one in known.items()
    ]
    (given.folder / "table.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
