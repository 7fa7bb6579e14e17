"""A folder with the model of a run in another form, and with the claim of that run: what `tacit export` writes.

The folder is a release: it verifies, is loaded and is built on as the run itself.

G1 (the same claim). Plan, ledger, guarantee and all else but the weights are copied, each as the run was sealed.
G2 (weights). They are other files than those of the run. made.json says of which run, by the digest of what its
   training sealed; who has that run can export it again, and compare.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.common.files import write_new
from tacit.common.serialize import to_json
from tacit.errors import RunError
from tacit.runs.earlier import release_digest
from tacit.runs.folder import RunFolder
from tacit.runs.release import (
    OWN_FOLDER,
    MadeWith,
    Manifest,
    ReleaseFile,
    check_fields,
    digests,
    disagreements,
    environment,
    released,
)

_WEIGHTS = frozenset({ReleaseFile.MODEL, ReleaseFile.MODEL_CONFIG, ReleaseFile.ADAPTERS, ReleaseFile.ADAPTER_CONFIG})
_ANEW = _WEIGHTS | {ReleaseFile.ARCHITECTURE, ReleaseFile.MADE, ReleaseFile.MANIFEST}
_ADAPTERS_CARD, _WHOLE_CARD = (f"---\nlibrary_name: {name}\n" for name in ("peft", "transformers"))


def write_claim(run: RunFolder, place: Path, described: Mapping[str, Any]) -> None:
    """Make `place`, which has the weights of a finished run, a release with its claim.

    described: the content of its model.json.
    """
    sealed = run.read_json(Manifest, ReleaseFile.MANIFEST)
    changed = next(disagreements(run.release, sealed, _WEIGHTS), None)
    if changed is not None:
        raise RunError("a run that verifies", changed[1], f"see what `tacit verify {run.folder.name}` says")
    (place / OWN_FOLDER).mkdir()
    for name in ReleaseFile:
        if name in sealed.files and name not in _ANEW:
            shutil.copyfile(run.release / name, place / name)
    _correct_card(place / ReleaseFile.MODEL_CARD)
    _write(place, ReleaseFile.ARCHITECTURE, described)
    known = (run.read_optional(MadeWith, ReleaseFile.MADE) or MadeWith()).environments
    made = known if known[-1:] == (environment(),) else (*known, environment())
    _write(place, ReleaseFile.MADE, MadeWith(made, release_digest(run)))
    _write(place, ReleaseFile.MANIFEST, Manifest(digests(place, released(place)), sealed.ledger))


def _write(place: Path, name: ReleaseFile, value: object) -> None:
    text = to_json(value)
    check_fields(name, json.loads(text))
    write_new(place / name, text.encode())


def _correct_card(card: Path) -> None:
    """A card of adapters says which library loads them; merged, another one does."""
    if card.is_file():
        text = card.read_text(encoding="utf-8")
        if text.startswith(_ADAPTERS_CARD):
            card.write_text(_WHOLE_CARD + text.removeprefix(_ADAPTERS_CARD), encoding="utf-8")
