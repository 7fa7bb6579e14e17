"""The files that the runs of a sweep read: found, cut, written or simulated, and known by their content.

G1 (by content). What identifies a need is the SHA-256 of its file, not where it stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from tacit.corpus.read import read
from tacit.corpus.simulate import simulate
from tacit.corpus.write import write_jsonl
from tacit.errors import ConfigError
from tacit.run.files import digest
from tacit.sweeping.recipe import Need


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
    return {name: Needed(place, digest(place)) for name, place in places.items()}


def _missing(need: Need, data: Path) -> tuple[str, str]:
    file = str(need.file)
    if need.made_by is None:
        return file, "put it there, or name its folder with --data"
    return file, "make it: " + need.made_by.replace("FILE", str(data / file))


def _made(name: str, need: Need, data: Path, folder: Path) -> Path:
    if need.policy is not None:
        place = folder / f"{name}.yaml"
        place.write_text(yaml.safe_dump({"policy": need.policy}), encoding="utf-8")
        return place
    place = folder / f"{name}.jsonl"
    if need.simulate is not None:
        write_jsonl(simulate(need.simulate, need.dialogs or 1, need.seed or 0, need.split or "train"), place)
        return place
    whole = data / str(need.file)
    if need.records is None:
        return whole
    write_jsonl(islice(read(whole), need.records), place)
    return place
