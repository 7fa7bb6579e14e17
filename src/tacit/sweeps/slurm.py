"""A sweep on a cluster: one file for `sbatch` per run, and one that collects the results when all have ended.

    FOLDER/NAME.json, FOLDER/NAME.sbatch      what is to be done for a run, and how it is started
    FOLDER/collect.sbatch                     the same sweep, which finds every run done, and writes results and pages
    FOLDER/submit.sh                          submits all of them, the last one to wait for the others

G1 (same runs). A run of the cluster is the run that `tacit sweep` would make, in the same folder with the same state.
G2 (no pickle). A job is JSON.
"""

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from tacit.common.files import write_bytes
from tacit.common.progress import unwatched
from tacit.common.serialize import from_json, to_json
from tacit.errors import ConfigError, TacitError
from tacit.sweeps.worker import Job, JobState, perform, read_state, write_state

COLLECT, SUBMIT = "collect", "submit.sh"
_LOG = "%x-%j.log"


def write_jobs(folder: Path, jobs: dict[str, Job], collect: list[str]) -> Path:
    """All files of a sweep in a new folder; the script that submits is returned.

    collect: the arguments of tacit that collect the results.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"a new folder {folder}", "one with files", "choose another, or remove it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, job in jobs.items():
        place = folder / f"{name}.json"
        write_bytes(place, to_json(job).encode(), 0o600)
        _write_batch(folder, name, [sys.executable, "-m", "tacit.sweeps.slurm", str(place)])
    _write_batch(folder, COLLECT, [sys.executable, "-m", "tacit", *collect])
    submit = folder / SUBMIT
    write_bytes(submit, _submitting(folder, list(jobs)).encode(), 0o700)
    return submit


def _write_batch(folder: Path, name: str, command: list[str]) -> None:
    lines = ("#!/bin/bash", f"#SBATCH --job-name={name}", f"#SBATCH --output={folder / _LOG}", shlex.join(command))
    write_bytes(folder / f"{name}.sbatch", ("\n".join(lines) + "\n").encode(), 0o600)


def _submitting(folder: Path, names: list[str]) -> str:
    """Options that are given to the script, such as --partition, go to every job."""
    lines = ["#!/bin/bash", "set -e", "after="]
    lines += [f'after="$after:$(sbatch --parsable "$@" {shlex.quote(str(folder / name))}.sbatch)"' for name in names]
    collect = shlex.quote(str(folder / f"{COLLECT}.sbatch"))
    return "\n".join([*lines, f'sbatch --parsable "$@" --dependency="afterany$after" {collect}']) + "\n"


def main(place: Path) -> int:
    """Do the job of one run; the exit code."""
    job = from_json(Job, place.read_bytes())
    state = read_state(Path(job.state)) or JobState(job.identity.trained)
    if state.is_done(job.identity) and Path(job.folder).exists():
        return 0
    try:
        perform(job, unwatched)
    except TacitError as error:
        print(error, file=sys.stderr)
        state = read_state(Path(job.state)) or state
        refused = {"expected": error.expected, "found": error.found, "way_out": error.way_out}
        write_state(Path(job.state), replace(state, refused=refused, figures=None))
        return 1
    return 0


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(Path(sys.argv[1])))
