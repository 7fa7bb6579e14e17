"""A finished run as the beginning of another one: what its `release/` says about what it spent.

G1 (verified). Only a run that verifies is built on.
G2 (released). Nothing of its `private/` becomes part of a later run.
G3 (stable). Auditing or reporting the earlier run changes nothing here; training it further does.
"""

import hashlib
from pathlib import Path

from tacit.errors import RunError
from tacit.mechanisms.build import EarlierRun, Terms
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import read_entries
from tacit.runs.folder import RunFolder, is_run, whole_run
from tacit.runs.release import Manifest, ReleaseFile
from tacit.runs.verify import AFTER_TRAINING, check_verified


def read_earlier(folder: Path) -> EarlierRun | None:
    """The run in `folder`, or whose `release/` it is; None if it is no run of tacit's."""
    if not is_run(folder):
        return None
    run = RunFolder.view(whole_run(folder))
    if not run.path(ReleaseFile.MANIFEST).is_file():
        raise RunError("a finished run to begin with", "one without a manifest.json", "resume it, so that it ends")
    check_verified(run, AFTER_TRAINING)
    evidence = run.read_json(Guarantee, ReleaseFile.GUARANTEE).evidence
    charges = read_entries(run.path(ReleaseFile.LEDGER)).charges()
    return EarlierRun(run.read_json(Terms, ReleaseFile.PLAN), charges, evidence, release_digest(run))


def release_digest(run: RunFolder) -> str:
    """SHA-256 over the digests of all files that training sealed, by their names."""
    sealed = run.read_json(Manifest, ReleaseFile.MANIFEST).files
    lines = (f"{name}\0{sealed[name]}\n" for name in sorted(sealed.keys() - AFTER_TRAINING))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
