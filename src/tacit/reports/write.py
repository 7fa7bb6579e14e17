"""`tacit report`: from run folders to pages, and for one run also its certificate and model card.

G1. For one run only files of `release/` are read, and only there or at `out` is anything written; each appears whole or
    not at all. `report_inside`, and the page of several runs, also read `private/` and must stay inside.
G2. Equal folders give equal files.
G3. A README.md that a person wrote is left alone; the manifest covers it as it is.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tacit.common.charts import Note, Result
from tacit.common.files import write_bytes
from tacit.common.formatting import name, printable, text
from tacit.errors import ConfigError
from tacit.privacy.guarantee import to_markdown, to_registry_yaml
from tacit.reports.comparison_page import comparison_page
from tacit.reports.finished_run import Finished, read_inside, read_run, read_runs
from tacit.reports.run_page import run_page, tiles
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile

_ON_A_HUB = re.compile(r"([\w-][\w.-]*/)?[\w-][\w.-]*", re.ASCII)
COMPARISON = Path("comparison.html")
MARK = "<!-- written by tacit report; without this line it is left alone -->"


def model_card(run: Finished) -> str:
    """The README.md of a released model, as Hugging Face shows it: front matter for machines, then the claim."""
    rows = [f"| {escaped(one.name)} | {escaped(one.value)} | {escaped(one.detail)} |" for one in tiles(run)]
    kind = "text classifier" if run.released.classifies else "language model"
    table = "\n".join(["| | | |", "|---|---|---|", *rows])
    parts = [
        f"---\n{yaml.safe_dump(_front_matter(run), sort_keys=False, allow_unicode=True)}---",
        MARK,
        f"# {escaped(run.name)}",
        f"A {kind} trained with **{escaped(run.guarantee.mechanism)}** by tacit. "
        f"[report.html]({ReleaseFile.REPORT}) has the whole account; it opens from disk.",
        f"## At a glance\n\n{table}",
        f"## Audit\n\n**{run.verdict_kind.capitalize()}.** {escaped(run.verdict_reason)}",
        _lowered(to_markdown(run.guarantee)),
        "## Out of scope\n\nThe claim is about what was trained on. It says nothing about what people type into the "
        "model, and nothing under “Not protected” is hidden.",
    ]
    return "\n\n".join(parts) + "\n"


def escaped(content: str) -> str:
    """Text that Markdown and HTML leave alone, on one line."""
    line = " ".join(text(content).split())
    return re.sub(r"([\\`*_{}\[\]()#+!|<>&~])", r"\\\1", line).replace("\\<", "&lt;").replace("\\&", "&amp;")


def _front_matter(run: Finished) -> dict[str, object]:
    classifies = run.released.classifies
    return {
        **_library(run.architecture),
        "pipeline_tag": "text-classification" if classifies else "text-generation",
        "tags": ["tacit", "privacy", *(["differential-privacy"] if run.guarantee.figures else [])],
        "model-index": [
            {
                "name": re.sub(r"[^\w .-]", "_", name(run.name)),
                "results": [
                    {
                        "task": {"type": "text-classification" if classifies else "text-generation"},
                        "dataset": {"type": "private", "name": "held-out part of the training corpus"},
                        "metrics": _metrics(run),
                    }
                ],
            }
        ],
    }


def _library(architecture: Mapping[str, Any]) -> dict[str, object]:
    """Which library loads the model, and what adapters belong to, if a hub could have a model of that name."""
    base = architecture.get("base")
    if isinstance(base, dict):
        called = str(base.get("name"))
        return {"library_name": "peft", **({"base_model": called} if _ON_A_HUB.fullmatch(called) else {})}
    published = architecture.get("kind") in ("gpt", "sequence-classifier")
    return {"library_name": "transformers" if published else "tacit"}


def _metrics(run: Finished) -> list[dict[str, object]]:
    released = run.released
    if released.classifies:
        return [{"type": "error_rate", "value": round(released.error_rate.value, 6)}]
    found = {"perplexity": released.perplexity.value, "accuracy": released.accuracy.value}
    return [{"type": name, "value": float(f"{value:.6g}")} for name, value in found.items() if math.isfinite(value)]


def _lowered(markdown: str) -> str:
    """Headings one level down, and no HTML from the files of a run."""
    safe = printable(markdown).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"^(#+) ", r"#\1 ", safe.strip(), flags=re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reported(Result):
    """The page, what else was written, and whether a person's own README.md was left as it is."""

    page: Path
    beside: tuple[Path, ...] = ()
    kept: Path | None = None

    def tables(self) -> Iterator[Note]:
        """What was written, and what was not."""
        kept = [] if self.kept is None else [f"left as it is: {self.kept}, which somebody else wrote"]
        yield Note("\n".join([f"page {self.page}", *(f"  and {path}" for path in self.beside), *kept]))


def report(folders: Sequence[Path], out: Path | None = None) -> Reported:
    """The page of one run (by default in its release folder), or of several (by default here)."""
    if not folders:
        raise ConfigError("at least one run folder", "none", "tacit report RUN [RUN ...]")
    if len(folders) > 1:
        page = out or COMPARISON
        _write(page, comparison_page(read_runs(folders)))
        return Reported(page)
    finished = read_run(folders[0])
    with RunFolder.open(folders[0]) as run:
        page = out or run.path(ReleaseFile.REPORT)
        if out is not None:
            _write(out, run_page(finished))
        else:
            run.write_text(ReleaseFile.REPORT, run_page(finished))
        written = _with_papers(run, finished, page)
        run.seal()
    return written


def report_inside(folder: Path, records: int) -> Reported:
    """The page of one run with a sample of its training records, secrets hidden: in `private/`, not for release."""
    if records < 1:
        raise ConfigError("at least one record in the sample", str(records), "--sample 5")
    page = folder / "private" / PrivateFile.INSIDE_REPORT
    content = run_page(read_run(folder, inside=True), read_inside(folder), records)
    write_bytes(page, content.encode(), 0o600)
    return Reported(page)


def _with_papers(run: RunFolder, finished: Finished, page: Path) -> Reported:
    described = f"A model trained with {finished.guarantee.mechanism}"
    papers = {
        ReleaseFile.CERTIFICATE: to_markdown(finished.guarantee),
        ReleaseFile.REGISTRY: to_registry_yaml(finished.guarantee, finished.name, described),
    }
    card = run.path(ReleaseFile.MODEL_CARD)
    own = card.exists() and MARK not in card.read_text(encoding="utf-8", errors="replace")
    if own:
        run.cover(ReleaseFile.MODEL_CARD)
    else:
        papers[ReleaseFile.MODEL_CARD] = model_card(finished)
    for file, content in papers.items():
        run.write_text(file, content)
    return Reported(page, tuple(run.path(file) for file in papers), card if own else None)


def _write(path: Path, content: str) -> None:
    if not path.parent.is_dir():
        raise ConfigError(f"a folder {path.parent}", "none", "make it, or choose another place with --out")
    write_bytes(path, content.encode())
