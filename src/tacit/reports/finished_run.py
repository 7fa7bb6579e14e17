"""A finished run as pages show it.

G1. A folder that is not a run, a run that is not finished and one that does not verify are refused with the way out;
    one without an audit is not.
G2. For a page that may be released, only files of `release/` are read (and the mark of the folder). Pages that stay
    inside also read exact numbers in `private/` if they are there, and `read_inside` the sample, with secrets hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tacit.audits.findings import Audit, Finding, Outcome
from tacit.common.formatting import name
from tacit.errors import ConfigError, RunError
from tacit.mechanisms.build import Terms
from tacit.policies.card import PolicyCard
from tacit.policies.marking import Inside
from tacit.privacy.events import Composition
from tacit.privacy.guarantee import Figure, Guarantee
from tacit.privacy.ledger import read_entries
from tacit.privacy.ledger_lines import Entries
from tacit.privacy.noisy_utility import ReleasedUtility
from tacit.privacy.plan import Plan
from tacit.runs.folder import RunFolder
from tacit.runs.release import OWN_FOLDER, Environment, FileName, MadeWith, PrivateFile, ReleaseFile
from tacit.runs.utility import Utility
from tacit.runs.verify import PAPERS, check_verified

T = TypeVar("T")
_LARGEST_FILE = 50_000_000


@dataclass(frozen=True, slots=True)
class Finished:
    """A run. `name` tells it from the others of its page; `at` is its place among them, from 1.

    released: its utility, with noise. For pages that stay inside: utility, exact, and measured, how its policy did.
    """

    name: str
    at: int
    config: dict[str, Any]
    plan: Plan
    ledger: Entries
    guarantee: Guarantee
    released: ReleasedUtility
    utility: Utility | None
    audit: Audit | None
    measured: PolicyCard | None = None
    made: tuple[Environment, ...] = ()
    before: Composition = ()  # what earlier runs spent of the headline, whose model it began with
    architecture: dict[str, Any] = field(default_factory=dict)  # its model.json

    @property
    def key(self) -> str:
        return f"run-{self.at}"

    @property
    def inside(self) -> bool:
        """Whether it has numbers that may not be released."""
        return self.utility is not None

    @property
    def claim(self) -> str:
        """The claim with what its terms mean here, without its coverage lines."""
        return replace(self.guarantee, coverage=()).sentence()

    @property
    def headline(self) -> Figure | None:
        """The first figure of the claim; None if nothing is claimed."""
        return self.guarantee.figures[0] if self.guarantee.figures else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What attacks found; nothing if it was not audited."""
        return () if self.audit is None else self.audit.findings

    @property
    def verdict_kind(self) -> str:
        """How its audit ended, or "not audited"."""
        return "not audited" if self.audit is None else str(self.audit.verdict.outcome)

    @property
    def verdict_sentence(self) -> str:
        if self.audit is None:
            return "Nobody has attacked this model yet: run tacit audit on its folder."
        return self.audit.verdict.sentence

    @property
    def verdict_reason(self) -> str:
        """The sentence without the outcome that it begins with, for where the outcome is its heading."""
        _, colon, rest = self.verdict_sentence.partition(": ")
        begins = colon and self.verdict_sentence.lower().startswith(f"{self.verdict_kind}:")
        return rest[:1].upper() + rest[1:] if begins else self.verdict_sentence

    @property
    def tone(self) -> str:
        """good, bad or mute: the color of the verdict."""
        tones = {str(Outcome.CONSISTENT): "good", str(Outcome.CONTRADICTED): "bad"}
        return tones.get(self.verdict_kind, "mute")


def read_run(folder: Path, inside: bool = False) -> Finished:
    """The run in `folder`; with `inside`, with exact numbers if this folder has them."""
    run = RunFolder.view(folder)
    for needed in (ReleaseFile.CONFIG, ReleaseFile.PLAN, ReleaseFile.UTILITY, ReleaseFile.GUARANTEE):
        if not run.path(needed).is_file():
            raise RunError(
                f"a finished run in {folder}", f"one without {needed}", f"finish it: tacit train --resume {folder}"
            )
    exact = [PrivateFile.GUARANTEE, PrivateFile.UTILITY, PrivateFile.AUDIT, PrivateFile.POLICY] if inside else []
    usual: list[FileName] = [file for file in ReleaseFile if file.startswith(OWN_FOLDER)]
    present = {run.path(file) for file in (*usual, *exact) if run.path(file).is_file()}
    for path in present:
        _check_size(path)
    check_verified(run, PAPERS)

    def first(kind: type[T], *files: FileName) -> T | None:
        """The content of the first of these files that is there."""
        there = [file for file in files if run.path(file) in present]
        return run.read_json(kind, there[0]) if there else None

    guarantee = first(Guarantee, PrivateFile.GUARANTEE) or run.read_json(Guarantee, ReleaseFile.GUARANTEE)
    made = run.read_json(MadeWith, ReleaseFile.MADE) if run.path(ReleaseFile.MADE).is_file() else MadeWith()
    terms = run.read_json(Terms, ReleaseFile.PLAN)
    return Finished(
        name(folder.resolve().name),
        1,
        run.read_json(dict, ReleaseFile.CONFIG),
        terms.plan,
        read_entries(run.path(ReleaseFile.LEDGER)),
        guarantee,
        run.read_json(ReleasedUtility, ReleaseFile.UTILITY),
        first(Utility, PrivateFile.UTILITY),
        first(Audit, PrivateFile.AUDIT, ReleaseFile.AUDIT),
        first(PolicyCard, PrivateFile.POLICY),
        made.environments,
        terms.before(guarantee.figures[0].neighbors) if guarantee.figures else (),
        first(dict, ReleaseFile.ARCHITECTURE) or {},
    )


def read_inside(folder: Path) -> Inside:
    """The sample that the run in `folder` keeps for pages that stay inside your organization."""
    run = RunFolder.view(folder)
    path = run.path(PrivateFile.SAMPLE)
    if not path.is_file():
        raise RunError(
            expected=f"private/{PrivateFile.SAMPLE} in {folder}",
            found="none: only the machine that trained has it",
            way_out="make the page there, or leave --sample out",
        )
    _check_size(path)
    return run.read_json(Inside, PrivateFile.SAMPLE)


def _check_size(path: Path) -> None:
    if path.stat().st_size > _LARGEST_FILE:
        raise RunError(f"a {path.name} that tacit wrote", "more than 50 MB", "give a run folder that nobody changed")


def read_runs(folders: Sequence[Path]) -> tuple[Finished, ...]:
    """Several runs for a page that stays inside, each named by as much of its path as tells them apart."""
    whole = [folder.resolve() for folder in folders]
    if len(set(whole)) < len(whole):
        raise ConfigError("different run folders", "one of them twice", "give each run once")
    names = _names(whole)
    return tuple(
        replace(read_run(folder, inside=True), name=name(called), at=at)
        for at, (folder, called) in enumerate(zip(whole, names, strict=True), 1)
    )


def _names(folders: list[Path]) -> list[str]:
    deepest = max(len(folder.parts) for folder in folders)
    for depth in range(1, deepest + 1):
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [f"{folder.name} {at}" for at, folder in enumerate(folders, 1)]
