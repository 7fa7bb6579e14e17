"""The runs of a recipe, one process each, some at a time; what is done stays done.

G1 (once). A finished run is not done again; one that was stopped goes on from its checkpoint.
G2 (same name, same run). Other settings under the name of a run that took a step are refused.
G3 (alone). A run that fails is recorded with its reason and stops no other.
G4 (same results). Equal runs give equal results files, seconds apart, and no place of the machine is in them.
G5 (one sweep). A second sweep of the same folder is refused while a process of the first lives.
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tacit.codec import from_words, to_json
from tacit.errors import ConfigError, RunError
from tacit.progress import Progress
from tacit.run.files import write_bytes
from tacit.sweeping.needs import Needed, make_needs
from tacit.sweeping.processes import Drive, Outcome, Place, Places, Told, available_threads, locked, without_places
from tacit.sweeping.recipe import Recipe, Variation, read_recipe, references, resolved, variations
from tacit.sweeping.state import Identity, State, content_hash, read_state, write_state
from tacit.sweeping.work import Job, audit_settings, is_trained, is_untouched

TUNING = "Whoever chooses among these runs by their figures has used the corpus once more: no guarantee covers that."


@dataclass(frozen=True, slots=True)
class Swept:
    """How all runs ended, in the order of the recipe; where the results and the page over all are."""

    outcomes: tuple[Outcome, ...]
    results: Path
    page: Path | None

    @property
    def exit_code(self) -> int:
        """1 when a run failed, 3 when an audit contradicts a claim, 0 otherwise."""
        if any(one.refused for one in self.outcomes):
            return 1
        return 3 if any(one.is_contradicted for one in self.outcomes) else 0


def unwatched(_: str, __: Progress | Outcome) -> None:
    """Sees nothing."""


def sweep(
    recipe: Place,
    out: Place | None = None,
    results: Place | None = None,
    data: Place | None = None,
    scale: float = 1.0,
    jobs: int = 1,
    audit: bool = True,
    observe: Told = unwatched,
) -> Swept:
    """Train, attack and report every run of a recipe, `jobs` at a time; then write the results and one page over all.

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
        write_bytes(places.results, _results(read, scale, outcomes).encode())
        return Swept(outcomes, places.results, _compared(places, outcomes))


def _job(recipe: Recipe, one: Variation, needs: dict[str, Needed], places: Places) -> Job:
    """What is to be done for one run; refused when its settings mean nothing."""
    from tacit.settings import Experiment, check_used

    where = {name: str(need.place) for name, need in needs.items()}
    words = resolved(one.words, where)
    try:
        experiment = from_words(Experiment, words)
        check_used(experiment)
    except ConfigError as error:
        raise ConfigError(f"in the run {one.name}: {error.expected}", error.found, error.way_out) from error
    audit = None if experiment.classifies else recipe.audit
    measure = recipe.normalise_with
    known = {name: needs[name].digest for name in references(one.words)}
    full = from_words(Experiment, resolved(one.words, {name: f"${name}" for name in needs}))
    identity = Identity(
        content_hash([full.model_dump(mode="json"), known]),
        None if audit is None else content_hash(json.loads(to_json(audit_settings(audit)))),
        None if measure is None else content_hash(_measured_in(measure, needs)),
    )
    normalise_with = None if measure is None else str(resolved(measure, where))
    folder, state = places.folder(one.name), places.state(one.name)
    return Job(str(folder), str(state), words, audit, normalise_with, identity)


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
    write_state(places.state(name), State(job.identity.trained))


def _results(recipe: Recipe, scale: float, outcomes: tuple[Outcome, ...]) -> str:
    content = {
        "recipe": recipe.name,
        "states": recipe.states,
        "scale": scale,
        "tuning": TUNING,
        "settings": without_places(recipe.settings),
        "runs": [one.line for one in outcomes],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _compared(places: Places, outcomes: tuple[Outcome, ...]) -> Path | None:
    from tacit.report.writing import report

    finished = [places.folder(one.name) for one in outcomes if is_trained(places.folder(one.name))]
    return report(finished, places.out / "comparison.html").page if len(finished) > 1 else None
