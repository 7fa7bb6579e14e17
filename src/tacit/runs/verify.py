"""Whether a run's files are what they should be: the command `verify`, and what was prepared for training.

G1 (release alone). `verify` reads nothing but `release/`, under whatever name it was sent.
G2 (the same conclusion). The claim is concluded again by the function that training used (`tacit.mechanisms.build`).
G3 (numbers). Another machine's arithmetic differs in the last digits: numbers agree within `TOLERANCE` of their size.
G4 (words). A text agrees when it is equal, but for a number that rounds to another digit although the figures agree.
G5 (curves). The points of a curve may be others; each must be true.
G6 (named). What does not hold is reported in one sentence that names the file and what it disagrees with.
G7 (prepared). A changed byte in a prepared store, in the marks that make pools or in the planted canaries is refused
   before a run is resumed and before an audit: training would be another one under the same claim.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import numpy as np

from tacit.common.charts import Note, Result, Table
from tacit.common.files import digest
from tacit.common.formatting import rounded_up
from tacit.common.serialize import to_json
from tacit.config.audit_schema import CanaryPlan
from tacit.data.marked import CanaryRecord, draw_canaries, plant
from tacit.data.records import Record
from tacit.data.store import PreparedCorpus
from tacit.errors import RunError, TacitError
from tacit.mechanisms.build import Terms
from tacit.mechanisms.mechanism import Spent
from tacit.privacy.account import account
from tacit.privacy.events import Event
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import read_lines
from tacit.privacy.ledger_lines import Parsed, event_to_json
from tacit.runs.folder import RunFolder
from tacit.runs.release import LedgerEnd, MadeWith, Manifest, PrivateFile, ReleaseFile, disagreements

T = TypeVar("T")
TOLERANCE = 1e-6
PAPERS = frozenset({ReleaseFile.REPORT, ReleaseFile.CERTIFICATE, ReleaseFile.REGISTRY, ReleaseFile.MODEL_CARD})
"""What `report` makes of the other files: it can be made again."""
AFTER_TRAINING = PAPERS | {ReleaseFile.AUDIT}
_LARGEST_FILE = 50_000_000
_RESTORE = "restore the file from a copy, or train again"
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_DIGITS = (3, 4, 6)  # with which figures are printed
_FROM = "from plan.json and ledger.jsonl"
_STORES = (PrivateFile.PREPARED, PrivateFile.HELD_OUT, PrivateFile.MEMBERS, PrivateFile.CHOICE)
_BESIDE = (PrivateFile.MARKS, PrivateFile.CANARIES, PrivateFile.FORMS)
_Json = dict[str, "_Json"] | list["_Json"] | str | float | bool | None


def disagreement(written: Guarantee, follows: Guarantee) -> str | None:
    """What `written` has that does not follow, as the end of a sentence; curves are not compared."""
    figures = [number for one in follows.figures for number in (one.epsilon, one.delta, one.mu)]
    found = next(_differences(_without_curves(written), _without_curves(follows), figures, ""), None)
    if found is not None and written.code_version != version("tacit"):
        found += f" (it was written by tacit {written.code_version}; this is {version('tacit')})"
    return found


def untrue_curve(written: Guarantee, follows: Guarantee, spent: Spent) -> str | None:
    """Which curve has a point that is not true of what was spent; `follows` has as many figures, of the same units."""
    for place, (one, other) in enumerate(zip(written.figures, follows.figures, strict=True)):
        if not one.curve or one.curve == other.curve:
            continue
        epsilons, deltas = np.array(one.curve).T
        least = np.minimum(account(spent[one.neighbors]).law.deltas(epsilons), 1) * (1 - TOLERANCE)
        if not (np.all(epsilons >= 0) and np.all(deltas >= least)):
            return f"has a point in figures.{place}.curve that is not true of what ledger.jsonl counts"
    return None


def _without_curves(guarantee: Guarantee) -> _Json:
    figures = tuple(replace(one, curve=()) for one in guarantee.figures)
    plain: _Json = json.loads(to_json(replace(guarantee, figures=figures)))
    return plain


def _differences(written: _Json, follows: _Json, figures: list[float], where: str) -> Iterator[str]:
    if isinstance(written, dict) and isinstance(follows, dict):
        for key in follows:
            yield from _differences(written[key], follows[key], figures, f"{where}.{key}".lstrip("."))
    elif isinstance(written, list) and isinstance(follows, list):
        if len(written) != len(follows):
            yield f"has {len(written)} entries in {where} where {len(follows)} follow {_FROM}"
        for place, (one, other) in enumerate(zip(written, follows, strict=False)):
            yield from _differences(one, other, figures, f"{where}.{place}")
    elif isinstance(written, str) and isinstance(follows, str):
        yield from _in_words(written, follows, figures, where)
    elif isinstance(written, float) and isinstance(follows, float):
        if not math.isclose(written, follows, rel_tol=TOLERANCE):
            yield f"has {written!r} as {where} where {follows!r} follows {_FROM}"
    elif type(written) is not type(follows) or written != follows:
        yield f"has {json.dumps(written)} as {where} where {json.dumps(follows)} follows {_FROM}"


def _in_words(written: str, follows: str, figures: list[float], where: str) -> Iterator[str]:
    numbers, expected = _NUMBER.findall(written), _NUMBER.findall(follows)
    if len(numbers) == len(expected):
        for number, other in zip(numbers, expected, strict=True):
            if number != other and not _is_rounding(number, other, figures):
                yield f"has {number} in its {where} where {other} follows {_FROM}"
    if _NUMBER.split(written) != _NUMBER.split(follows):
        yield f"has another {where} than follows {_FROM}"


def _is_rounding(number: str, follows: str, figures: list[float]) -> bool:
    """Whether the number that follows is a figure rounded up, which `number` is too by a hair."""
    rounded = (one for one in figures if any(rounded_up(one, digits) == follows for digits in _DIGITS))
    return any(math.isclose(float(number), one, rel_tol=TOLERANCE) for one in rounded)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold: whether it does, and if not, why and what to do."""

    name: str
    holds: bool
    why: str = ""
    way_out: str = ""


@dataclass(frozen=True, slots=True)
class Verified(Result):
    """All checks. `sentence` is the claim: stated only where every check holds.

    exported_from: of a folder that `tacit export` wrote, the digest of its run (`tacit.runs.exported`).
    """

    holds: bool
    checks: tuple[Check, ...]
    sentence: str | None = None
    exported_from: str | None = None

    def tables(self) -> Iterator[Table | Note]:
        """Every check, and the claim if all of them hold."""
        failed = tuple(one for one in self.checks if not one.holds)
        yield Table((), tuple(("holds", one.name) for one in self.checks if one.holds))
        yield from (Note(f"does not hold: {one.name}\n{one.why}. Way out: {one.way_out}.", "bad") for one in failed)
        if self.exported_from is not None:
            yield Note(
                f"`tacit export` wrote these weights; the files of their run have the digest {self.exported_from}"
            )
        yield Note(self.sentence or "Not verified: the claim of this run is not repeated here.")


@dataclass(frozen=True, slots=True)
class _Problem:
    why: str
    way_out: str = _RESTORE


def verify(folder: Path) -> Verified:
    """Check the run in `folder`, or a copy of its `release/`."""
    release = _Release(RunFolder.view(folder))
    checks = tuple(release.checks())
    holds = all(one.holds for one in checks)
    if not holds:
        return Verified(holds, checks)
    return Verified(holds, checks, release.guarantee().sentence(), release.made().exported_from)


def check_verified(run: RunFolder, leave_out: frozenset[str] = frozenset()) -> None:
    """Refuse a run that does not verify. `leave_out`: files that are not read next, and can be made again."""
    for check in _Release(run, leave_out).checks():
        if not check.holds:
            raise RunError(f"a run that verifies: {check.name}", check.why, check.way_out)


class _Release:
    """The files of one `release/`."""

    def __init__(self, run: RunFolder, leave_out: frozenset[str] = frozenset()) -> None:
        self._run = run
        self._leave_out = leave_out

    def checks(self) -> Iterator[Check]:
        """Each check, cheap ones first; one that needs a file that cannot be read does not hold."""
        checks: dict[str, Callable[[], _Problem | None]] = {
            "the run is finished": self._finished,
            "every released file is as it was sealed": self._files,
            "the ledger is whole": self._ledger,
            "the plan follows from the mechanism's settings": self._plan,
            "the ledger has the plan's prices": self._prices,
            "the ledger counts every planned step": self._counts,
            "the claim follows from plan and ledger": self._claim,
        }
        for name, check in checks.items():
            try:
                problem = check()
            except TacitError as error:
                problem = _Problem(f"expected {error.expected}; found {error.found}")
            except (ArithmeticError, ValueError) as error:  # numbers that no mechanism has
                problem = _Problem(f"plan.json or ledger.jsonl has impossible numbers ({type(error).__name__})")
            yield Check(name, True) if problem is None else Check(name, False, problem.why, problem.way_out)

    def guarantee(self) -> Guarantee:
        return self._read(Guarantee, ReleaseFile.GUARANTEE)

    def made(self) -> MadeWith:
        """What made.json says; there may be none."""
        return self._read(MadeWith, ReleaseFile.MADE) if self._run.path(ReleaseFile.MADE).exists() else MadeWith()

    def _finished(self) -> _Problem | None:
        if self._run.path(ReleaseFile.MANIFEST).is_file():
            return None
        why = "manifest.json is missing: the run is not finished, or somebody removed the file"
        return _Problem(why, f"tacit train --resume {self._run.folder.name}")

    def _files(self) -> _Problem | None:
        manifest = self._read(Manifest, ReleaseFile.MANIFEST)
        found = dict(disagreements(self._run.release, manifest, self._leave_out))
        if not found:
            self.made()  # which must be readable
            return None
        first = next(iter(found))
        way_out = _RESTORE if first in manifest.files else "remove it from release/"
        if first in AFTER_TRAINING:
            command = "audit" if first == ReleaseFile.AUDIT else "report"
            way_out = f"make it again: tacit {command} {self._run.folder.name}"
        return _Problem("; ".join(found.values()), way_out)

    def _ledger(self) -> _Problem | None:
        parsed, sealed = self._lines(), self._read(Manifest, ReleaseFile.MANIFEST).ledger
        end = LedgerEnd(parsed.chain, parsed.lines)
        if parsed.torn:
            return _Problem("the last line of ledger.jsonl is cut off")
        if end.length != sealed.length:
            return _Problem(f"ledger.jsonl has {end.length} lines where manifest.json has {sealed.length}")
        return None if end == sealed else _Problem("ledger.jsonl does not end with the digest in manifest.json")

    def _plan(self) -> _Problem | None:
        self._terms().rebuilt()
        return None

    def _prices(self) -> _Problem | None:
        priced, declared = self._terms().prices(), self._lines().settled().prices
        for step in [*priced, *(declared.keys() - priced.keys())]:
            if step not in declared or step not in priced:
                has, has_not = ("plan.json", "ledger.jsonl") if step in priced else ("ledger.jsonl", "plan.json")
                return _Problem(f"{has} has the step {step!r}, which {has_not} does not have")
            for notion in [*priced[step], *(declared[step].keys() - priced[step].keys())]:
                found, follows = _prices_apart(declared[step].get(notion), priced[step].get(notion))
                if found != follows:
                    return _Problem(f"{step!r} has {found} for {notion} in ledger.jsonl, but {follows} by plan.json")
        return None

    def _counts(self) -> _Problem | None:
        terms, charges = self._terms(), self._lines().settled().charges()
        for step, times in terms.planned().items():
            if charges.get(step, 0) < times and not terms.chooses:
                return _Problem(
                    f"ledger.jsonl counts {charges.get(step, 0)} executions of {step!r} where plan.json has {times}"
                )
        return None

    def _claim(self) -> _Problem | None:
        written, terms, charges = self.guarantee(), self._terms(), self._lines().settled().charges()
        again = replace(terms.conclude(charges, written.evidence), code_version=written.code_version)
        found = disagreement(written, again) or untrue_curve(written, again, terms.spent(charges))
        return None if found is None else _Problem(f"guarantee.json {found}")

    def _terms(self) -> Terms:
        return self._read(Terms, ReleaseFile.PLAN)

    def _lines(self) -> Parsed:
        return read_lines(self._file(ReleaseFile.LEDGER))

    def _read(self, kind: type[T], name: ReleaseFile) -> T:
        self._file(name)
        return self._run.read_json(kind, name)

    def _file(self, name: ReleaseFile) -> Path:
        path = self._run.path(name)
        if not path.is_file() or path.is_symlink() or path.stat().st_size > _LARGEST_FILE:
            raise RunError(f"a regular file {name} of at most 50 MB", "none", _RESTORE)
        return path


def _prices_apart(one: Event | None, other: Event | None) -> tuple[str, str]:
    """Two prices in words: where they differ."""
    ours, theirs = ({} if event is None else event_to_json(event) for event in (one, other))
    differ = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
    words = [", ".join(f"{name} {price[name]}" for name in differ if name in price) for price in (ours, theirs)]
    return words[0] or "no price", words[1] or "no price"


@dataclass(frozen=True, slots=True)
class Noted:
    """SHA-256 of files of `private/`: those beside the stores, and of each store the header that names the rest."""

    files: dict[str, str]


def note_stores(run: RunFolder) -> None:
    """Write down what was prepared; what is noted already stays."""
    known = _noted(run)
    found = {name: digest(run.folder / "private" / name) for name in _present(run) if name not in known}
    if found:
        run.write_json(PrivateFile.NOTED, Noted(known | found))


def check_stores(run: RunFolder) -> None:
    """Read all that was prepared so far; refuse what is not as it was written."""
    present = _present(run)
    for name, known in _noted(run).items():
        if name not in present or digest(run.folder / "private" / name) != known:
            raise RunError(
                expected=f"private/{name} as it was prepared",
                found="another content" if name in present else "no such file",
                way_out="restore it from a copy, or train again in another folder",
            )
    for store in _STORES:
        if run.path(store).exists():
            PreparedCorpus(run.path(store)).verify()


def _present(run: RunFolder) -> list[str]:
    headers = [f"{store}/private/header.json" for store in _STORES]
    return [name for name in (*_BESIDE, *headers) if (run.folder / "private" / name).is_file()]


def _noted(run: RunFolder) -> dict[str, str]:
    return (run.read_optional(Noted, PrivateFile.NOTED) or Noted({})).files


@dataclass(frozen=True, slots=True)
class Planted:
    """One plan and its canaries."""

    plan: CanaryPlan
    canaries: tuple[CanaryRecord, ...]


@dataclass(frozen=True, slots=True)
class Planting:
    """All that was planted with a run, a plan each."""

    planted: tuple[Planted, ...] = ()

    @property
    def copies(self) -> int:
        """How many records were planted."""
        return sum(canary.repetitions for one in self.planted for canary in one.canaries if canary.inside)

    def records(self) -> Iterator[Record]:
        """Copies of those that are inside; their place in a corpus changes nothing, as draws are shuffled."""
        for one in self.planted:
            yield from plant((), one.plan, one.canaries, 0, np.random.default_rng(0))


def plant_canaries(run: RunFolder, plans: Sequence[CanaryPlan], seed: int | None) -> Planting:
    """What the run has; a new run draws it. Without a seed the operating system's randomness is taken."""
    if not run.path(PrivateFile.CANARIES).exists():
        generator = np.random.default_rng(seed)
        drawn = (Planted(plan, draw_canaries(plan, generator, f"canary-{n}")) for n, plan in enumerate(plans))
        run.write_json(PrivateFile.CANARIES, Planting(tuple(drawn)))
    return planted_canaries(run)


def planted_canaries(run: RunFolder) -> Planting:
    return run.read_optional(Planting, PrivateFile.CANARIES) or Planting()
