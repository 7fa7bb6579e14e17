"""Trains, attacks and reports the runs of a recipe, one process each, some at a time; the board shows how far they are.

G1 (once). A finished run is not done again; one that was stopped resumes from its checkpoint.
G2 (same name, same run). Other settings under the name of a run that took a step are refused.
G3 (independent). A run that fails is recorded with its reason and stops no other.
G4 (same results). Equal runs give equal results files, apart from seconds, without any path of the machine.
G5 (one sweep). A second sweep of the same folder is refused while a process of the first lives.
G6 (by content). A need is identified by its content, not by its path: a file or folder by the SHA-256 of its bytes, a
   policy (every YAML file is one) by its own hash, which covers the files that it names.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import yaml

from tacit.common.charts import Note, Result
from tacit.common.files import digest, write_bytes
from tacit.common.formatting import rounded_up
from tacit.common.progress import Progress
from tacit.common.serialize import json_values
from tacit.config.load import load_config, to_dict
from tacit.data.corpus import read as read_corpus
from tacit.data.corpus import write_jsonl
from tacit.data.fields import DEFAULT_FIELDS, Fields, fields_of
from tacit.errors import ConfigError, RunError, TacitError
from tacit.policies.registry import parse_policy
from tacit.reports.run_page import without_folders
from tacit.reports.write import report
from tacit.simulation.simulate import simulate
from tacit.sweeps.charts import PAGE, sweep_page
from tacit.sweeps.recipe import Need, Recipe, Variation, read_recipe, references, resolved, variations
from tacit.sweeps.result_columns import cell, table_columns
from tacit.sweeps.scheduler import Drive, Places, RunOutcome, RunPlace, SweepObserver, available_threads, locked
from tacit.sweeps.slurm import write_jobs
from tacit.sweeps.worker import (
    Job,
    JobIdentity,
    JobState,
    audit_config,
    content_hash,
    is_trained,
    is_untouched,
    read_state,
    write_state,
)

TUNING = "Whoever chooses among these runs by their figures has used the corpus once more: no guarantee covers that."
MIXED = "These runs were made with different versions of tacit: their figures may differ for that alone."


@dataclass(frozen=True, slots=True)
class Swept(Result):
    """How all runs ended, in the order of the recipe, and where the results are.

    page: of the sweep; compared: the page that compares its runs, if there are several; warnings: for whoever uses the
    figures.
    """

    outcomes: tuple[RunOutcome, ...]
    results: Path
    page: Path
    compared: Path | None
    warnings: tuple[str, ...]

    def tables(self) -> Iterator[Note]:
        """What failed and why, what to know, and where results and pages are."""
        for name, why in ((one.name, one.refused) for one in self.outcomes if one.refused is not None):
            text = f"{name} failed: expected {why['expected']}\n  found {why['found']}\n  way out: {why['way_out']}"
            yield Note(text, "bad")
        yield Note("\n".join(self.warnings), "warning")
        compared = [] if self.compared is None else [f"claims compared {self.compared}"]
        yield Note("\n".join([f"results {self.results}", f"page {self.page}", *compared]))

    def to_json(self) -> dict[str, Any]:
        """Where results and pages are, and each run with its figures or why it failed."""
        return {
            "results": str(self.results),
            "page": str(self.page),
            "compared": self.compared and str(self.compared),
            "warnings": list(self.warnings),
            "runs": [one.line for one in self.outcomes],
        }

    @property
    def exit_code(self) -> int:
        """1 when a run failed, 3 when an audit contradicts a claim, 0 otherwise."""
        if any(one.refused for one in self.outcomes):
            return 1
        return 3 if any(one.is_contradicted for one in self.outcomes) else 0


def sweep(
    recipe: RunPlace,
    out: RunPlace | None = None,
    results: RunPlace | None = None,
    data: RunPlace | None = None,
    scale: float = 1.0,
    jobs: int = 1,
    audit: bool = True,
    observe: SweepObserver | None = None,
) -> Swept:
    """Train, attack and report every run of a recipe, `jobs` at a time; then write and chart the results.

    By default runs go to RECIPE.runs, results to RECIPE.results.json, and files are looked for in data/, all next to
    the recipe. `observe` is called with the name of a run and its progress or outcome.
    """
    if jobs < 1:
        raise ConfigError("at least one job", str(jobs), "--jobs 1 does one run after the other")
    places = Places.of(Path(recipe), out, results, data, scale)
    read = _read(places, scale, audit)
    with locked(places.own / "lock") as lock:
        todo = _todo(read, places)
        with ThreadPoolExecutor(jobs) as pool:
            threads = max(1, available_threads() // min(jobs, len(todo)))
            outcomes = tuple(Drive(places, threads, lock, observe or (lambda *_: None)).all(pool, todo))
        warnings = (TUNING, MIXED) if _is_mixed(outcomes) else (TUNING,)
        content = {
            "recipe": read.name,
            "duration": read.duration,
            "scale": scale,
            "tuning": TUNING,
            "mixed": MIXED if MIXED in warnings else None,
            "settings": without_folders(read.settings),
            "runs": [one.line for one in outcomes],
        }
        write_bytes(places.results, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
        trained = [folder for one in outcomes if is_trained(folder := places.out / one.name)]
        compared = report(trained, places.out / "comparison.html").page if len(trained) > 1 else None
        page = places.out / PAGE
        write_bytes(page, sweep_page(read, content, compared.name if compared else None, linked=True).encode())
        return Swept(outcomes, places.results, page, compared, warnings)


def write_slurm(
    recipe: RunPlace,
    folder: RunPlace,
    out: RunPlace | None = None,
    results: RunPlace | None = None,
    data: RunPlace | None = None,
    scale: float = 1.0,
    audit: bool = True,
) -> Path:
    """Write the runs of a recipe as jobs of Slurm into `folder`; the script that submits them is returned."""
    places = Places.of(Path(recipe).absolute(), out, results, data, scale)
    read = _read(places, scale, audit)
    with locked(places.own / "lock"):
        jobs = {one.name: job for one, job in _todo(read, places)}
    where = {"--out": places.out, "--results": places.results, "--data": places.data, "--scale": scale}
    options = [str(part) for pair in where.items() for part in pair]
    collect = ["--quiet", "sweep", str(places.recipe), *options, "--audit" if audit else "--no-audit"]
    return write_jobs(Path(folder).absolute(), jobs, collect)


def _read(places: Places, scale: float, audit: bool) -> Recipe:
    """The recipe; the folders of its runs are there afterwards."""
    read = read_recipe(places.recipe, scale)
    if not places.results.parent.is_dir():
        raise ConfigError(f"a folder {places.results.parent}", "none", "make it, or choose another with --results")
    variations(read)
    places.out.mkdir(parents=True, exist_ok=True)
    places.own.mkdir(mode=0o700, exist_ok=True)  # parts of corpora are copied there
    return read if audit else read.model_copy(update={"audit": None})


def _todo(read: Recipe, places: Places) -> list[tuple[Variation, Job]]:
    """What is to be done for every run, with all that they need made."""
    everything = variations(read)
    needs = make_needs(read.needs, places.data, places.own / "needs", _fields(read, everything))
    todo = [(one, _job(read, one, needs, places)) for one in everything]
    for one, job in todo:
        _check_same(one.name, job)
    return todo


class Needed(NamedTuple):
    """Where a need is, and the digest of its content."""

    place: Path
    digest: str


def make_needs(
    needs: Mapping[str, Need], data: Path, folder: Path, fields: Mapping[str, Fields] | None = None
) -> dict[str, Needed]:
    """Every need: files are looked for in `data`; what is cut, written or simulated goes to `folder`.

    fields: what the corpora that are cut call the parts of a record, by need.
    """
    missing = {need.file: need.made_by for need in needs.values() if need.file and not (data / need.file).exists()}
    if missing:
        commands = [made_by.replace("FILE", str(data / file)) for file, made_by in missing.items() if made_by]
        ways = [f"make it: {command}" for command in commands]
        ways += ["put it there, or name its folder with --data"] if None in missing.values() else []
        raise ConfigError(f"in {data}: {', '.join(missing)}", "nothing there", "; ".join(ways))
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, need in needs.items():
        place = _made(name, need, data, folder, (fields or {}).get(name, DEFAULT_FIELDS)).absolute()
        is_policy = place.suffix in (".yaml", ".yml")
        made[name] = Needed(place, parse_policy(str(place)).hash if is_policy else digest(place))
    return made


def _made(name: str, need: Need, data: Path, folder: Path, fields: Fields) -> Path:
    if need.policy is not None:
        place = folder / f"{name}.yaml"
        place.write_text(yaml.safe_dump({"policy": need.policy, "beside": str(data)}), encoding="utf-8")
        return place
    place = folder / f"{name}.jsonl"
    if need.simulate is not None:
        write_jsonl(simulate(need.simulate, need.dialogs or 1, need.seed or 0, need.split or "train"), place)
        return place
    whole = data / str(need.file)
    if need.records is None:
        return whole
    write_jsonl(islice(read_corpus(whole, fields), need.records), place, fields)
    return place


def _fields(recipe: Recipe, everything: list[Variation]) -> dict[str, Fields]:
    """What the corpora that are cut call the parts of a record, by need: the same in all runs that use them."""
    found: dict[str, Fields] = {}
    for one in everything:
        own = fields_of(one.settings.get("data", {}))
        for name in references(one.settings):
            if recipe.needs[name].records is not None and found.setdefault(name, own) != own:
                raise ConfigError(
                    expected=f"the same field names (text_field and the like) in all runs that use ${name}",
                    found="different ones",
                    way_out="list the file twice under `needs`, with a name for each",
                )
    return found


def _job(recipe: Recipe, one: Variation, needs: dict[str, Needed], places: Places) -> Job:
    """What is to be done for one run; settings that mean nothing are refused."""
    from tacit.training.checks import check_run

    where = {name: str(need.place) for name, need in needs.items()}
    settings = resolved(one.settings, where)
    try:
        config = load_config(settings)
        check_run(config)
    except TacitError as error:
        raise ConfigError(f"in the run {one.name}: {error.expected}", error.found, error.way_out) from error
    audit = None if config.classifies else recipe.audit
    if audit is not None and config.training.save_steps is None and audit.get("checkpoints") is True:
        audit = {name: value for name, value in audit.items() if name != "checkpoints"}
    known = {name: needs[name].digest for name in references(one.settings)}
    full = load_config(resolved(one.settings, {name: f"${name}" for name in needs}))
    measure = recipe.perplexity_tokenizer
    identity = JobIdentity(
        content_hash([to_dict(full), known]),
        None if audit is None else content_hash(json_values(audit_config(audit))),
        None
        if measure is None
        else content_hash(resolved(measure, {name: need.digest for name, need in needs.items()})),
    )
    folder, state = str(places.out / one.name), str(places.state(one.name))
    return Job(folder, state, settings, audit, resolved(measure, where), identity, str(places.own / "prepared"))


def _check_same(name: str, job: Job) -> None:
    """Refuse a folder that is another run's; a run that took no step starts over."""
    state, folder = read_state(Path(job.state)), Path(job.folder)
    if state is not None and state.trained == job.identity.trained:
        return
    if state is None and folder.exists() and any(folder.iterdir()):
        raise RunError(f"no folder {folder} yet, or one that this sweep made", "another", "remove it, or choose --out")
    if state is not None and not is_untouched(folder):
        raise RunError(
            expected=f"the settings, and the files, that the run {name} was trained with",
            found="others under the same name",
            way_out=f"remove {folder} to start over, rename the run, or choose another --out",
        )
    shutil.rmtree(folder, ignore_errors=True)
    write_state(Path(job.state), JobState(job.identity.trained))


def _is_mixed(outcomes: tuple[RunOutcome, ...]) -> bool:
    """Whether the finished runs were made with different code; figures of an earlier version may not name theirs."""
    finished = [one.line["figures"] for one in outcomes if one.line["figures"] is not None]
    return len({code for figures in finished for code in figures.get("code", ["unknown"])}) > 1


@dataclass(slots=True)
class Board:
    """What is known about every run, in the order of the recipe."""

    HEADS: ClassVar = ("run", "how far", "perplexity", "on secrets", "epsilon", "canaries", "seconds")
    names: tuple[str, ...]
    title: str
    _latest: dict[str, Progress | RunOutcome] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Path, scale: float) -> "Board":
        """The runs of a recipe, all of which wait."""
        read = read_recipe(recipe, scale)
        names = tuple(one.name for one in variations(read))
        return cls(names, f"{read.name}, {len(names)} runs" + (f": {read.duration}" if read.duration else ""))

    def observe(self, name: str, news: Progress | RunOutcome) -> None:
        self._latest[name] = news
        self._began.setdefault(name, time.monotonic())

    def line(self, name: str) -> str:
        """The latest about a run, as one line."""
        latest = self._latest[name]
        if isinstance(latest, Progress):
            return f"{name}: {_how_far(latest)}"
        return f"{name}: {' '.join(filter(None, row_of(latest)[1:]))}"

    def rows(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self._row(name) for name in self.names)

    def _row(self, name: str) -> tuple[str, ...]:
        latest = self._latest.get(name)
        if latest is None:
            return (name, "waits", "", "", "", "", "")
        if not isinstance(latest, Progress):
            return row_of(latest)
        spent = "" if latest.epsilon is None else rounded_up(latest.epsilon, 3)
        return (name, _how_far(latest), "", "", spent, "", f"{time.monotonic() - self._began[name]:.0f}")


def _how_far(news: Progress) -> str:
    if news.total is None:
        return f"{news.stage} {news.done:,}" if news.done else news.stage
    return f"{news.stage} {news.done / max(1, news.total):.0%}"


def row_of(outcome: RunOutcome) -> tuple[str, ...]:
    """A run that ended, under HEADS."""
    line, columns = outcome.line, table_columns()
    passed = f"{sum(line['seconds'].values()):.0f}" if line["seconds"] else ""
    if line["figures"] is None:
        return (outcome.name, "stopped" if outcome.refused is None else "failed", "", "", "", "", passed)
    state = "done before" if outcome.known else "done"
    if outcome.is_contradicted:
        state += ", CONTRADICTED"
    if "labels" in line["figures"]["utility"]:
        rates = [columns[name](line) for name in ("test error rate", "test error rate, with secrets")]
        worth = ["–" if rate is None else f"{rate:.1%} wrong" for rate in rates]
    else:
        worth = [cell(name, [line]) for name in ("perplexity", "private perplexity")]
    spent = "none" if columns["epsilon"](line) is None else cell("epsilon", [line])
    exposures = [  # of canaries that the policy knows, and of others; in parentheses, of values not planted
        f"{before}{cell(column, [line])} ({cell(f'{column}, not planted', [line])})"
        for before, column in (("", "exposure"), ("unknown ", "exposure, unknown"))
        if columns[column](line) is not None
    ]
    return (outcome.name, state, *worth, spent, f"{', '.join(exposures)} bits" if exposures else "", passed)
