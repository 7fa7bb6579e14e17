"""The verb `report`: from run folders to pages, and for one run also its certificate and model card.

G1. For one run only files of `release/` are read, and only there or at `out` is anything written; each appears whole or
    not at all. `report_inside`, and the page of several runs, read `private/` too and must stay inside.
G2. Equal folders give equal files.
G3. A README.md that a person wrote is left alone; the manifest covers it as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.certificate import to_markdown, to_registry_yaml
from tacit.errors import ConfigError
from tacit.report.comparison_page import comparison_page
from tacit.report.model_card import MARK, model_card
from tacit.report.run_page import run_page
from tacit.report.runs import Finished, read_inside, read_run, read_runs
from tacit.run import PrivateFile, ReleaseFile, Run
from tacit.run.files import write_bytes

COMPARISON = Path("comparison.html")


@dataclass(frozen=True, slots=True)
class Reported:
    """The page, what else was written, and whether a person's own README.md was left as it is."""

    page: Path
    beside: tuple[Path, ...] = ()
    kept: Path | None = None


def report(folders: Sequence[Path], out: Path | None = None) -> Reported:
    """The page of one run (by default in its release folder), or of several (by default here)."""
    if not folders:
        raise ConfigError("at least one run folder", "none", "tacit report RUN [RUN ...]")
    if len(folders) > 1:
        page = out or COMPARISON
        _write(page, comparison_page(read_runs(folders)))
        return Reported(page)
    finished = read_run(folders[0])
    with Run.open(folders[0]) as run:
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


def _with_papers(run: Run, finished: Finished, page: Path) -> Reported:
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
