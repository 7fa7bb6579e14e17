"""Why each field of `release/` may leave: what has no row here does not (theory, section 9).

A path is that of a field in its JSON, with [] for the entries of a list; one that ends in `.*` means everything
below it. A field that is null or empty needs no row: without a row it is never anything else, so it tells nothing.

G1 (default-deny). A file with a field that has no row is refused before anything is written.

release/manifest.json: SHA-256 of every released file, and where the ledger ends. It is written last.

G1 (changes show). A released file that was changed, removed or added since the manifest was written is named.
G2 (no signature). Whoever rewrites file and manifest alike is not found out here; what `tacit verify` proves even then
   is that the claim follows from plan and ledger.
G3 (regular). Only regular files directly in the folder are opened, whatever the manifest names.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tacit.common.files import DRAFT, digest
from tacit.config.schema import Config
from tacit.config.setting import NO, every_setting
from tacit.errors import RunError
from tacit.privacy.ledger_lines import Parsed
from tacit.runs.files import ReleaseFile


class ReleaseReason(StrEnum):
    """The five reasons for which something may leave."""

    SETTING = "a public setting"
    PUBLIC = "a function of the public part of the corpus"
    NOISY_SUMS = "a function of the noisy sums"
    MADE_UP = "made up: canaries and their exposures"
    PRICED = "a release with a ledger line of its own"


ReleaseRows = dict[str, ReleaseReason]


def _rows(reason: ReleaseReason, *paths: str) -> ReleaseRows:
    return dict.fromkeys(paths, reason)


SETTINGS = tuple(
    f"{one.name}{'.*' if one.open else '[]' if one.many else ''}" for one in every_setting(Config) if one.release != NO
)
"""Each setting declares whether it may leave; the corpus, seeds, examples of secrets, word lists and held-out files do
not."""

_STEP = "plan.phases[].turns[][]"

_PLAN = {
    **_rows(ReleaseReason.SETTING, "classifies", "chooses", "measuring.noise_multiplier", "measuring.chose"),
    **_rows(ReleaseReason.PUBLIC, "mechanism.*", "measuring.records"),  # settings, and public numbers of units
    **_rows(
        ReleaseReason.SETTING,
        *(f"{_STEP}.{word}" for word in ("name", "view", "pool", "optimizer", "targets", "trainable")),
    ),
    **_rows(ReleaseReason.SETTING, f"{_STEP}.update.*", f"{_STEP}.draw.kind", f"{_STEP}.draw.batch_size"),
    **_rows(
        ReleaseReason.SETTING, f"{_STEP}.draw.local_epochs", f"{_STEP}.draw.weight_cap", f"{_STEP}.draw.rate_is_public"
    ),
    # how often a step is taken, and at which rate, follow from public numbers of units
    **_rows(ReleaseReason.PUBLIC, "plan.phases[].rounds", _STEP, f"{_STEP}.draw.rate"),
    **_rows(ReleaseReason.PUBLIC, *(f"{_STEP}.draw.{unit}_rate" for unit in ("user", "entity", "other"))),
}

_GUARANTEE = {
    **_rows(
        ReleaseReason.SETTING,
        "mechanism",
        "code_version",
        "evidence.tuning",
        "evidence.record_is",
        "evidence.user_origin",
    ),
    **_rows(ReleaseReason.SETTING, "evidence.policy_id", "evidence.policy_hash", "evidence.conservative_id"),
    **_rows(ReleaseReason.SETTING, "evidence.detector_data", "evidence.examples_given", "evidence.pretrained"),
    **_rows(ReleaseReason.SETTING, "evidence.accelerated"),
    **_rows(
        ReleaseReason.SETTING,
        "evidence.repeatable",
        "evidence.coverage_inside",
        "holds_if[].text",
        "holds_if[].status",
        "not_protected[]",
    ),
    **_rows(ReleaseReason.PUBLIC, "evidence.dropped_share", "evidence.entity_list_hash"),  # the hash is keyed
    **_rows(ReleaseReason.NOISY_SUMS, "claim", "coverage[]", "figures[].*", "published.*"),
    **_rows(ReleaseReason.SETTING, "average_case.*"),
    **_rows(ReleaseReason.PRICED, "utility.epsilon", "utility.delta", "utility.records"),
}

_AUDIT = {  # findings about canaries, in whatever form an attack brings them; nothing about training records
    **_rows(ReleaseReason.MADE_UP, *(f"canaries[].{word}" for word in ("attack", "about", "sentence", "hint"))),
    **_rows(ReleaseReason.MADE_UP, "canaries[].warning", "canaries[].tables[].*", "canaries[].charts[].*"),
    **_rows(ReleaseReason.MADE_UP, "canaries[].highlights[].*", "canaries[].figures.*", "canaries[].verdict.*"),
    **_rows(ReleaseReason.MADE_UP, "verdict.outcome", "verdict.sentence"),
}

TABLE: dict[str, ReleaseRows] = {
    "config.json": _rows(ReleaseReason.SETTING, *SETTINGS),
    "plan.json": _PLAN,
    "model.json": _rows(ReleaseReason.SETTING, "kind", "settings.*", "shape.*", "config.*", "lora.*", "model", "name"),
    "made.json": _rows(
        ReleaseReason.SETTING, *(f"environments[].{word}" for word in ("code", "python", "system", "libraries[][]"))
    ),
    "guarantee.json": _GUARANTEE,
    "utility.json": {
        **_rows(ReleaseReason.SETTING, "longest", "noise_multiplier"),
        **_rows(ReleaseReason.PUBLIC, "records", "most_nats"),
        **_rows(ReleaseReason.PRICED, "sums[]"),
    },
    "audit.json": _AUDIT,
    "manifest.json": _rows(ReleaseReason.NOISY_SUMS, "files.*", "ledger.head", "ledger.length"),  # of the other files
}
"""The files that are written as JSON. The model and the ledger are functions of the noisy sums, pages and papers of the
other released files; the tokenizer is public, or a function of the redacted view where the claim allows it."""


def check_fields(name: str, content: object) -> None:
    """Refuse a file with a field that may not leave."""
    rows = TABLE.get(name, {})
    found = sorted({path for path in _paths(content) if not any(True for _ in _matching(rows, path))})
    if found:
        raise RunError(
            expected=f"a {name} whose every field has a reason to leave",
            found=f"fields without one: {', '.join(found)}",
            way_out="write them to a private file, or give each its row in tacit/runs/release.py",
        )


def reason(name: str, path: str) -> ReleaseReason | None:
    """Why a field may leave; None if it may not."""
    return next(_matching(TABLE.get(name, {}), path), None)


def _matching(rows: ReleaseRows, path: str) -> Iterator[ReleaseReason]:
    if path in rows:
        yield rows[path]
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        below = rows.get(f"{'.'.join(parts[:end])}.*")
        if below is not None:
            yield below


def _paths(content: object, path: str = "") -> Iterator[str]:
    """The paths of all fields that are neither null nor empty."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _paths(value, f"{path}.{key}" if path else str(key))
    elif isinstance(content, list):
        for value in content:
            yield from _paths(value, f"{path}[]")
    elif content is not None:
        yield path


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """The digest of the ledger's last line, and how many lines there are."""

    head: str
    length: int

    @classmethod
    def of(cls, parsed: Parsed) -> "LedgerEnd":
        """Where these lines end."""
        return cls(parsed.chain, parsed.lines)


@dataclass(frozen=True, slots=True)
class Manifest:
    """`files`: the SHA-256 of each, by its name."""

    files: dict[str, str]
    ledger: LedgerEnd


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A file that is not as the manifest has it, and why, in a sentence that names it; `unknown`: no entry has it."""

    file: str
    why: str
    unknown: bool = False


def released(folder: Path) -> list[str]:
    """The names in `folder` but the manifest's own and drafts, which the next writer removes."""
    return sorted(
        place.name
        for place in folder.iterdir()
        if place.name != ReleaseFile.MANIFEST and not place.name.startswith(DRAFT)
    )


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each of these files that is there."""
    return {name: digest(folder / name) for name in names if _is_regular(folder / name)}


def disagreements(folder: Path, manifest: Manifest, leave_out: frozenset[str] = frozenset()) -> Iterator[Disagreement]:
    """What in `folder` is not as `manifest` has it, small files first; files to `leave_out` are not opened."""
    present = set(released(folder)) - leave_out
    covered = manifest.files.keys() - leave_out
    for name in sorted(covered - present):
        yield Disagreement(name, f"{name} is missing; manifest.json names it")
    for name in sorted(present - covered):
        yield Disagreement(name, f"{name} is not covered by the manifest", unknown=True)
    for name in sorted(covered & present, key=lambda name: (folder / name).lstat().st_size):
        if not _is_regular(folder / name):
            yield Disagreement(name, f"{name} is not a regular file")
        elif digest(folder / name) != manifest.files[name]:
            yield Disagreement(name, f"{name} was changed: its SHA-256 is not the one in manifest.json")


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
