"""The runs of a recipe, one process each, some at a time; what is done stays done.

G1 (once). A finished run is not done again; one that was stopped goes on from its checkpoint.
G2 (same name, same run). Other settings under the name of a run that took a step are refused.
G3 (alone). A run that fails is recorded with its reason and stops no other.
G4 (same results). Equal runs give equal results files, seconds apart, and no place of the machine is in them.
G5 (one sweep). A second sweep of the same folder is refused while a process of the first lives.
G6 (by content). A need is known by what it holds, not by where it stands: a file or folder by the SHA-256 of its bytes,
   a policy (every YAML file is one) by its own hash, which covers the files that it names.

A sweep as a table of words: one line per run, with how far it is, what it is worth and what is claimed.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tacit.common.charts import Note, Result
from tacit.common.files import digest, write_bytes
from tacit.common.formatting import rounded_up
from tacit.common.progress import Progress
from tacit.common.serialize import to_json
from tacit.data.corpus import read as read_corpus
from tacit.data.corpus import write_jsonl
from tacit.errors import ConfigError, RunError, TacitError
from tacit.policies.registry import parse_policy
from tacit.simulation.simulate import simulate
from tacit.sweeps.charts import PAGE, sweep_page
from tacit.sweeps.recipe import Need, Recipe, Variation, read_recipe, references, resolved, variations
from tacit.sweeps.result_columns import ResultLine, table_columns, written
from tacit.sweeps.scheduler import Drive, Places, RunOutcome, RunPlace, Told, available_threads, locked, without_places
from tacit.sweeps.worker import (
    Job,
    JobIdentity,
    JobState,
    audit_settings,
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
    """How all runs ended, in the order of the recipe; where the results are, the page of the sweep, and the one that
    compares its runs where there are several.
    """

    outcomes: tuple[RunOutcome, ...]
    results: Path
    page: Path
    compared: Path | None

    @property
    def is_mixed(self) -> bool:
        """Whether the runs were not all made with one and the same code."""
        return len(_codes(self.outcomes)) > 1

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever uses the figures should know."""
        return (TUNING, MIXED) if self.is_mixed else (TUNING,)

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
        places = {
            "results": str(self.results),
            "page": str(self.page),
            "compared": self.compared and str(self.compared),
        }
        runs = [{"name": one.name, "refused": one.refused, **one.line} for one in self.outcomes]
        return {**places, "warnings": list(self.warnings), "runs": runs}

    @property
    def exit_code(self) -> int:
        """1 when a run failed, 3 when an audit contradicts a claim, 0 otherwise."""
        if any(one.refused for one in self.outcomes):
            return 1
        return 3 if any(one.is_contradicted for one in self.outcomes) else 0


def unwatched(_: str, __: Progress | RunOutcome) -> None:
    """Sees nothing."""


def sweep(
    recipe: RunPlace,
    out: RunPlace | None = None,
    results: RunPlace | None = None,
    data: RunPlace | None = None,
    scale: float = 1.0,
    jobs: int = 1,
    audit: bool = True,
    observe: Told = unwatched,
) -> Swept:
    """Train, attack and report every run of a recipe, `jobs` at a time; then write and draw the results.

    By default runs go to RECIPE.runs, results to RECIPE.results.json, and files are looked for in data/, all beside the
    recipe. `observe` hears of each run by its name: how far it is, and how it ended.
    """
    if jobs < 1:
        raise ConfigError("at least one job", str(jobs), "--jobs 1 does one run after the other")
    places = Places.of(Path(recipe), out, results, data, scale)
    read = read_recipe(places.recipe, scale)
    if not audit:
        read = read.model_copy(update={"audit": None})
    if not places.results.parent.is_dir():
        raise ConfigError(f"a folder {places.results.parent}", "none", "make it, or choose another with --results")
    everything = variations(read)
    places.out.mkdir(parents=True, exist_ok=True)
    places.own.mkdir(mode=0o700, exist_ok=True)  # parts of corpora are copied there
    with locked(places.own / "lock") as lock:
        needs = make_needs(read.needs, places.data, places.own / "needs")
        todo = [(one, _job(read, one, needs, places)) for one in everything]
        for one, job in todo:
            _check_same(one.name, job, places)
        with ThreadPoolExecutor(jobs) as pool:
            drive = Drive(places, max(1, available_threads() // min(jobs, len(todo))), lock, observe)
            outcomes = tuple(drive.all(pool, todo))
        content = _results(read, scale, outcomes)
        write_bytes(places.results, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
        compared = _compared(places, outcomes)
        page = places.out / PAGE
        beside = None if compared is None else compared.name
        write_bytes(page, sweep_page(read, content, beside, linked=True).encode())
        return Swept(outcomes, places.results, page, compared)


@dataclass(frozen=True, slots=True)
class Needed:
    """Where a need stands, and the digest of its content."""

    place: Path
    digest: str


def make_needs(needs: Mapping[str, Need], data: Path, folder: Path) -> dict[str, Needed]:
    """Every need: files are looked for in `data`; what is cut, written or simulated goes to `folder`."""
    missing = [_missing(need, data) for need in needs.values() if need.file and not (data / need.file).exists()]
    if missing:
        raise ConfigError(
            expected=f"in {data}: {', '.join(file for file, _ in missing)}",
            found="nothing there",
            way_out="; ".join(dict.fromkeys(way for _, way in missing)),
        )
    folder.mkdir(parents=True, exist_ok=True)
    places = {name: _made(name, need, data, folder).absolute() for name, need in needs.items()}
    return {name: Needed(place, _known_by(place)) for name, place in places.items()}


def _known_by(place: Path) -> str:
    return parse_policy(str(place)).hash if place.suffix in (".yaml", ".yml") else digest(place)


def _missing(need: Need, data: Path) -> tuple[str, str]:
    file = str(need.file)
    if need.made_by is None:
        return file, "put it there, or name its folder with --data"
    return file, "make it: " + need.made_by.replace("FILE", str(data / file))


def _made(name: str, need: Need, data: Path, folder: Path) -> Path:
    if need.policy is not None:
        place = folder / f"{name}.yaml"
        words = {"policy": need.policy, "beside": str(data)}
        place.write_text(yaml.safe_dump(words), encoding="utf-8")
        return place
    place = folder / f"{name}.jsonl"
    if need.simulate is not None:
        write_jsonl(simulate(need.simulate, need.dialogs or 1, need.seed or 0, need.split or "train"), place)
        return place
    whole = data / str(need.file)
    if need.records is None:
        return whole
    write_jsonl(islice(read_corpus(whole), need.records), place)
    return place


def _job(recipe: Recipe, one: Variation, needs: dict[str, Needed], places: Places) -> Job:
    """What is to be done for one run; refused when its settings mean nothing."""
    from tacit.config.load import load_config, to_dict
    from tacit.training.checks import check_run

    where = {name: str(need.place) for name, need in needs.items()}
    words = resolved(one.words, where)
    try:
        experiment = load_config(words)
        check_run(experiment)
    except TacitError as error:
        raise ConfigError(f"in the run {one.name}: {error.expected}", error.found, error.way_out) from error
    audit = None if experiment.classifies else recipe.audit
    if audit is not None and experiment.training.save_steps is None and audit.get("checkpoints") is True:
        audit = {word: value for word, value in audit.items() if word != "checkpoints"}
    measure = recipe.perplexity_tokenizer
    known = {name: needs[name].digest for name in references(one.words)}
    full = load_config(resolved(one.words, {name: f"${name}" for name in needs}))
    identity = JobIdentity(
        content_hash([to_dict(full), known]),
        None if audit is None else content_hash(json.loads(to_json(audit_settings(audit)))),
        None if measure is None else content_hash(_measured_in(measure, needs)),
    )
    perplexity_tokenizer = None if measure is None else str(resolved(measure, where))
    folder, state = places.folder(one.name), places.state(one.name)
    return Job(str(folder), str(state), words, audit, perplexity_tokenizer, identity)


def _measured_in(measure: str, needs: dict[str, Needed]) -> str:
    return needs[measure[1:]].digest if measure.startswith("$") else measure


def _check_same(name: str, job: Job, places: Places) -> None:
    """Refuse a folder that is another run's; one that took no step is begun anew."""
    state, folder = read_state(places.state(name)), places.folder(name)
    if state is not None and state.trained == job.identity.trained:
        return
    if state is None and folder.exists() and any(folder.iterdir()):
        raise RunError(f"no folder {folder} yet, or one that this sweep made", "another", "remove it, or choose --out")
    if state is not None and not is_untouched(folder):
        raise RunError(
            expected=f"the settings, and the files, that the run {name} was trained with",
            found="others under the same name",
            way_out=f"remove {folder} to begin anew, rename the run, or choose another --out",
        )
    shutil.rmtree(folder, ignore_errors=True)
    write_state(places.state(name), JobState(job.identity.trained))


def _results(recipe: Recipe, scale: float, outcomes: tuple[RunOutcome, ...]) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "duration": recipe.duration,
        "scale": scale,
        "tuning": TUNING,
        "mixed": MIXED if len(_codes(outcomes)) > 1 else None,
        "settings": without_places(recipe.settings),
        "runs": [one.line for one in outcomes],
    }


def _codes(outcomes: tuple[RunOutcome, ...]) -> set[str]:
    """What the finished runs were made with; of one that an earlier version finished it is not known."""
    finished = [one.line["figures"] for one in outcomes if one.line["figures"] is not None]
    return {code for figures in finished for code in figures.get("code", ["unknown"])}


def _compared(places: Places, outcomes: tuple[RunOutcome, ...]) -> Path | None:
    from tacit.reports.write import report

    finished = [places.folder(one.name) for one in outcomes if is_trained(places.folder(one.name))]
    return report(finished, places.out / "comparison.html").page if len(finished) > 1 else None


_WAITS = "waits"


@dataclass(slots=True)
class Board:
    """What is known of every run, in the order of the recipe."""

    HEADS: ClassVar = ("run", "how far", "perplexity", "on secrets", "epsilon", "canaries", "seconds")
    names: tuple[str, ...]
    title: str
    _news: dict[str, Progress | RunOutcome] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Path, scale: float) -> "Board":
        """Of the runs of a recipe, all of which wait."""
        read = read_recipe(recipe, scale)
        names = tuple(one.name for one in variations(read))
        stated = f": {read.duration}" if read.duration else ""
        return cls(names, f"{read.name}, {len(names)} runs{stated}")

    def told(self, name: str, news: Progress | RunOutcome) -> None:
        """Remember the latest of a run."""
        self._news[name] = news
        self._began.setdefault(name, time.monotonic())

    def news(self, name: str) -> str:
        """The latest of a run in a line."""
        latest = self._news[name]
        if isinstance(latest, Progress):
            return f"{name}: {how_far(latest)}"
        return f"{name}: {' '.join(filter(None, row_of(latest)[1:]))}"

    def rows(self) -> tuple[tuple[str, ...], ...]:
        """One per run, under HEADS."""
        return tuple(self._row(name) for name in self.names)

    def _row(self, name: str) -> tuple[str, ...]:
        news = self._news.get(name)
        if news is None:
            return (name, _WAITS, "", "", "", "", "")
        if not isinstance(news, Progress):
            return row_of(news)
        spent = "" if news.epsilon is None else rounded_up(news.epsilon, 3)
        return (name, how_far(news), "", "", spent, "", f"{time.monotonic() - self._began[name]:.0f}")


def how_far(news: Progress) -> str:
    """A stage and its share."""
    if news.total is None:
        return f"{news.stage} {news.done:,}" if news.done else news.stage
    return f"{news.stage} {news.done / max(1, news.total):.0%}"


def row_of(outcome: RunOutcome) -> tuple[str, ...]:
    """A run that ended, under HEADS."""
    figures, seconds = outcome.line["figures"], outcome.line["seconds"]
    passed = f"{sum(seconds.values()):.0f}" if seconds else ""
    if outcome.refused is not None:
        return (outcome.name, "failed", "", "", "", "", passed)
    if figures is None:
        return (outcome.name, "stopped", "", "", "", "", passed)
    state = "done before" if outcome.known else "done"
    if outcome.is_contradicted:
        state += ", CONTRADICTED"
    epsilon = _value(outcome.line, "epsilon")
    spent = "none" if epsilon is None else written("epsilon", epsilon)
    return (outcome.name, state, *_worth(outcome.line), spent, _canaries(outcome.line), passed)


def _worth(line: ResultLine) -> tuple[str, str]:
    if "labels" in line["figures"]["utility"]:
        return _wrong(line, "test error rate"), _wrong(line, "test error rate, with secrets")
    return _number(line, "perplexity"), _number(line, "private perplexity")


def _wrong(line: ResultLine, column: str) -> str:
    rate = _value(line, column)
    return "–" if rate is None else f"{rate:.1%} wrong"


def _canaries(line: ResultLine) -> str:
    """Exposure of canaries that the policy knows, and of those it does not; in brackets, of values not planted."""
    said = [
        f"{before}{_number(line, column)} ({_number(line, f'{column}, not planted')})"
        for before, column in (("", "exposure"), ("unknown ", "exposure, unknown"))
        if _value(line, column) is not None
    ]
    return f"{', '.join(said)} bits" if said else ""


def _value(line: ResultLine, column: str) -> float | None:
    return table_columns()[column](line)


def _number(line: ResultLine, column: str) -> str:
    value = _value(line, column)
    return "–" if value is None else written(column, value)
