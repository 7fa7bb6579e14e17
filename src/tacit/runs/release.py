"""What a run releases: the names of its files, why each field may leave, what it was made with, and the manifest.

A path in the table of reasons is that of a field in its JSON, with [] for the entries of a list; one that ends in `.*`
means everything below it. A field that is null or empty needs no row: without a row it is never anything else, so it
tells nothing. release/ is a model folder as others publish it; what only tacit reads is in release/tacit/. There,
manifest.json has the SHA-256 of every released file, and where the ledger ends; it is written last.

G1 (default-deny). A file with a field that has no row is refused before anything is written (theory, section 9).
G2 (changes show). A released file that was changed, removed or added since the manifest was written is named.
G3 (no signature). Whoever rewrites file and manifest alike is not detected here; what `tacit verify` proves even then
   is that the claim follows from plan and ledger.
G4 (regular). Only regular files of the folder and of its tacit/ are opened, whatever the manifest names.
G5 (environment). made.json names no place on the machine, no person and no time; a run that was resumed with other
   versions lists both, in order.
"""

import hashlib
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tacit.common.files import DRAFT, digest
from tacit.config.schema import Config
from tacit.config.setting import NO, every_setting
from tacit.errors import RunError

OWN_FOLDER = "tacit"


class ReleaseFile(StrEnum):
    """What may leave your organization."""

    MODEL = "model.safetensors"
    MODEL_CONFIG = "config.json"
    ADAPTERS = "adapter_model.safetensors"
    ADAPTER_CONFIG = "adapter_config.json"
    GENERATION = "generation_config.json"
    PUBLIC_TOKENIZER = "tokenizer.json"
    TOKENIZER_CONFIG = "tokenizer_config.json"
    SPECIAL_TOKENS = "special_tokens_map.json"
    CHAT_TEMPLATE = "chat_template.jinja"
    MODEL_CARD = "README.md"
    TOKENIZER = "tacit/tokenizer.json"
    CONFIG = "tacit/config.json"
    PLAN = "tacit/plan.json"
    LEDGER = "tacit/ledger.jsonl"
    GUARANTEE = "tacit/guarantee.json"
    UTILITY = "tacit/utility.json"
    AUDIT = "tacit/audit.json"
    REPORT = "tacit/report.html"
    ARCHITECTURE = "tacit/model.json"
    MADE = "tacit/made.json"
    CERTIFICATE = "tacit/certificate.md"
    REGISTRY = "tacit/certificate.yaml"
    MANIFEST = "tacit/manifest.json"


class PrivateFile(StrEnum):
    """What may not."""

    LOCK = "lock"
    KEY = "key"
    GUARANTEE = "guarantee.json"
    UTILITY = "utility.json"
    AUDIT = "audit.json"
    FINDINGS = "findings.json"
    POLICY = "policy.json"
    SETTINGS = "settings.json"
    INPUTS = "inputs"
    STEPS = "steps.jsonl"
    MARKED = "marked"
    SUMMARY = "corpus.json"
    PREPARED = "prepared"
    MEMBERS = "members"
    HELD_OUT = "held-out"
    CHOICE = "choice"
    MARKS = "marks.safetensors"
    CANARIES = "canaries.json"
    CHECKPOINTS = "checkpoints"
    BEST = "best.safetensors"
    TENSORBOARD = "tensorboard"
    SAMPLE = "sample.json"
    SHARED = "shared.json"
    IDENTITY = "identity.json"
    INSIDE_REPORT = "report.html"
    NOTED = "prepared.json"
    STORE = "store.json"
    FORMS = "forms.json"
    PROCESSES = "processes.json"
    TIMING = "timing.json"
    SHADOWS = "shadows"


FileName = ReleaseFile | PrivateFile


class ReleaseReason(StrEnum):
    """The six reasons for which something may leave."""

    SETTING = "a public setting"
    PUBLIC = "a function of the public part of the corpus"
    NOISY_SUMS = "a function of the noisy sums"
    MADE_UP = "made up: canaries and their exposures"
    PRICED = "a release with a ledger line of its own"
    BASE_MODEL = "a public setting of the base model"


def _rows(
    setting: Iterable[str] = (),
    public: Iterable[str] = (),
    noisy_sums: Iterable[str] = (),
    made_up: Iterable[str] = (),
    priced: Iterable[str] = (),
    base_model: Iterable[str] = (),
) -> dict[str, ReleaseReason]:
    paths = zip(ReleaseReason, (setting, public, noisy_sums, made_up, priced, base_model), strict=True)
    return {path: reason for reason, group in paths for path in group}


def _below(parent: str, names: str) -> list[str]:
    return [f"{parent}.{name}" for name in names.split()]


PUBLISHED = (
    *(ReleaseFile.MODEL_CONFIG, ReleaseFile.ADAPTER_CONFIG, ReleaseFile.GENERATION),
    *(ReleaseFile.TOKENIZER_CONFIG, ReleaseFile.SPECIAL_TOKENS),
)
"""Settings of the model in the form of transformers and peft, without places on the machine (`tacit.models.saving`)."""

SETTINGS = tuple(
    f"{one.name}{'.*' if one.open else '[]' if one.many else ''}" for one in every_setting(Config) if one.release != NO
)
"""Each setting declares whether it may leave; the corpus, seeds, examples of secrets, word lists and held-out files do
not."""

_STEP = "plan.phases[].turns[][]"
_EVIDENCE = (
    "tuning record_is user_origin policy_id policy_hash conservative_id detector_data examples_given pretrained "
    "accelerated repeatable distributed coverage_inside"
)
_FINDING = "attack about sentence hint warning tables[].* charts[].* highlights[].* figures.* verdict.*"

TABLE: dict[str, dict[str, ReleaseReason]] = {
    ReleaseFile.CONFIG: _rows(setting=SETTINGS),
    ReleaseFile.PLAN: _rows(
        setting=(
            *("classifies", "chooses", "disjoint", *_below("measuring", "noise_multiplier chose")),
            *_below(_STEP, "name view pool optimizer targets trainable update.*"),
            *_below(f"{_STEP}.draw", "kind batch_size local_epochs weight_cap rate_is_public"),
            "plan.forms.*",
        ),
        # settings and public numbers of units, from which follows how often a step is taken, and at which rate
        public=(
            *("mechanism.*", "measuring.records", "plan.phases[].rounds", _STEP),
            *_below(f"{_STEP}.draw", "rate user_rate entity_rate other_rate"),
        ),
        # the plan, the counts and the evidence that the earlier run released itself, and a digest of its files
        noisy_sums=_below("earlier", "terms.* charges.* evidence.* digest"),
    ),
    ReleaseFile.ARCHITECTURE: _rows(
        setting=("kind", "settings.*", "shape.*", "config.*", "lora.*", "model", "name"),
        base_model=_below("base", "name sha256"),
    ),
    ReleaseFile.MADE: _rows(
        setting=_below("environments[]", "code python system libraries[][]"),
        noisy_sums=("exported_from",),  # a digest of files that the run released
    ),
    ReleaseFile.GUARANTEE: _rows(
        setting=(
            *("mechanism", "code_version", "average_case.*", "not_protected[]"),
            *_below("holds_if[]", "text status"),
            *_below("evidence", _EVIDENCE),
        ),
        public=_below("evidence", "dropped_share entity_list_hash"),  # the hash is keyed
        made_up=_below("evidence", "planted"),
        noisy_sums=("claim", "coverage[]", "figures[].*", "published.*", "earlier"),
        priced=_below("utility", "epsilon delta records runs"),
    ),
    ReleaseFile.UTILITY: _rows(("longest", "noise_multiplier"), ("records", "most_nats"), priced=("sums[]",)),
    # findings about canaries, in whatever form an attack brings them; nothing about training records
    ReleaseFile.AUDIT: _rows(made_up=(*_below("canaries[]", _FINDING), *_below("verdict", "outcome sentence"))),
    # what transformers and peft read: kinds, sizes and tokens, as the base model's folder or the settings have them
    **dict.fromkeys(PUBLISHED, _rows(base_model=("*",))),
    ReleaseFile.MANIFEST: _rows(noisy_sums=("files.*", "ledger.head", "ledger.length")),  # of the other files
}
"""The files that are written as JSON. The model and the ledger are functions of the noisy sums, pages and papers of the
other released files; the tokenizer is public, or a function of the redacted view where the claim allows it."""


def check_fields(name: str, content: object) -> None:
    """Refuse a file with a field that may not leave."""
    found = sorted({path for path in _paths(content) if reason(name, path) is None})
    if found:
        raise RunError(
            expected=f"a {name} whose every field has a reason to leave",
            found=f"fields without one: {', '.join(found)}",
            way_out="write them to a private file, or give each its row in tacit/runs/release.py",
        )


def reason(name: str, path: str) -> ReleaseReason | None:
    """Why a field may leave; None if it may not."""
    rows, parts = TABLE.get(name, {}), path.split(".")
    above = (".".join((*parts[:end], "*")) for end in range(len(parts) - 1, -1, -1))
    return next((rows[row] for row in (path, *above) if row in rows), None)


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


@dataclass(frozen=True, slots=True)
class Manifest:
    """`files`: the SHA-256 of each, by its name."""

    files: dict[str, str]
    ledger: LedgerEnd


def released(folder: Path) -> list[str]:
    """The names in `folder` and its tacit/ but the manifest's own and drafts, which the next writer removes."""
    own = folder / OWN_FOLDER
    places = [place for place in folder.iterdir() if place != own or not _is_folder(own)]
    places += list(own.iterdir()) if _is_folder(own) else []
    names = (place.relative_to(folder).as_posix() for place in places if not place.name.startswith(DRAFT))
    return sorted(name for name in names if name != ReleaseFile.MANIFEST)


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each of these files that is there."""
    return {name: digest(folder / name) for name in names if _is_regular(folder / name)}


def disagreements(
    folder: Path, manifest: Manifest, leave_out: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """Files that are not as `manifest` has them, small ones first, and why; files to `leave_out` are not opened."""
    present = set(released(folder)) - leave_out
    covered = manifest.files.keys() - leave_out
    for name in sorted(covered - present):
        yield name, f"{name} is missing; manifest.json names it"
    for name in sorted(present - covered):
        yield name, f"{name} is not covered by the manifest"
    for name in sorted(covered & present, key=lambda name: (folder / name).lstat().st_size):
        if not _is_regular(folder / name):
            yield name, f"{name} is not a regular file"
        elif digest(folder / name) != manifest.files[name]:
            yield name, f"{name} was changed: its SHA-256 is not the one in manifest.json"


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


_LIBRARIES = ("tacit", "torch", "numpy", "scipy", "dp-accounting", "tokenizers", "transformers", "peft", "faker")
_CODE = (".py", ".jinja", ".cpp")


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment. `code`: SHA-256 over the files of the package; `libraries`: (name, version), installed ones."""

    code: str
    python: str
    system: str
    libraries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MadeWith:
    """Every environment that wrote to the run, in order.

    exported_from: in a folder that `tacit export` wrote, the digest of what the training of its run sealed.
    """

    environments: tuple[Environment, ...] = ()
    exported_from: str | None = None


def environment() -> Environment:
    installed = []
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            installed.append((name, version(name)))
    system = f"{platform.system()} {platform.machine()}"
    return Environment(code_hash(), platform.python_version(), system, tuple(installed))


@cache
def code_hash() -> str:
    """SHA-256 over the names and contents of the package's files, in the order of their names."""
    root = Path(__file__).parent.parent
    state = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.suffix in _CODE):
        content = file.read_bytes()
        state.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        state.update(content)
    return state.hexdigest()
