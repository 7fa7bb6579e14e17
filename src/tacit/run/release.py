"""Why each field of `release/` may leave: what has no row here does not (theory, section 9).

A path is that of a field in its JSON, with [] for the entries of a list; one that ends in `.*` means everything
below it. A field that is null or empty needs no row: without a row it is never anything else, so it tells nothing.

G1 (default-deny). A file with a field that has no row is refused before anything is written.
"""

from collections.abc import Iterator
from enum import StrEnum

from tacit.errors import RunError


class Reason(StrEnum):
    """The five reasons for which something may leave."""

    SETTING = "a public setting"
    PUBLIC = "a function of the public part of the corpus"
    NOISY_SUMS = "a function of the noisy sums"
    MADE_UP = "made up: canaries and their exposures"
    PRICED = "a release with a ledger line of its own"


Rows = dict[str, Reason]


def _rows(reason: Reason, *paths: str) -> Rows:
    return dict.fromkeys(paths, reason)


SETTINGS = (
    *("task", "classes[]", "policy", "plan.*", "conservative", "coverage", "duplicates", "pieces", "users"),
    *("entity_kinds[]", "aliases", "tokenizer", "vocabulary_corpus", "vocabulary_size", "max_tokens", "longest_full"),
    *("model", "shape.*", "lora.*", "public.*", "private.*", "local.*", "positions", "device", "precision"),
    *("checkpoint_steps", "checkpoint_minutes", "keep_every", "choose_every", "choose_on", "patience", "log"),
    *("held_out", "mode", "canaries[].count", "canaries[].inside_probability", "canaries[].known"),
    *("canaries[].repetitions", "canaries[].template"),
)
"""Of the corpus, of seeds, of examples of secrets, of word lists and of held-out files there is nothing."""

_STEP = "plan.phases[].turns[][]"
_PLAN = {
    **_rows(Reason.SETTING, "classifies", "chooses", "measuring.noise_multiplier", "measuring.chose"),
    **_rows(Reason.PUBLIC, "mechanism.*", "measuring.records"),  # settings, and public numbers of units
    **_rows(Reason.SETTING, *(f"{_STEP}.{word}" for word in ("name", "view", "pool", "optimiser", "targets", "moves"))),
    **_rows(Reason.SETTING, f"{_STEP}.update.*", f"{_STEP}.draw.kind", f"{_STEP}.draw.batch_size"),
    **_rows(Reason.SETTING, f"{_STEP}.draw.local_epochs", f"{_STEP}.draw.weight_cap", f"{_STEP}.draw.rate_is_public"),
    # how often a step is taken, and at which rate, follow from public numbers of units
    **_rows(Reason.PUBLIC, "plan.phases[].rounds", _STEP, f"{_STEP}.draw.rate"),
    **_rows(Reason.PUBLIC, *(f"{_STEP}.draw.{unit}_rate" for unit in ("user", "entity", "other"))),
}
_GUARANTEE = {
    **_rows(
        Reason.SETTING, "mechanism", "code_version", "evidence.tuning", "evidence.record_is", "evidence.user_origin"
    ),
    **_rows(Reason.SETTING, "evidence.policy_id", "evidence.policy_hash", "evidence.conservative_id"),
    **_rows(Reason.SETTING, "evidence.detector_data", "evidence.examples_given", "evidence.pretrained"),
    **_rows(Reason.SETTING, "evidence.accelerated"),
    **_rows(
        Reason.SETTING,
        "evidence.repeatable",
        "evidence.coverage_inside",
        "holds_if[].text",
        "holds_if[].status",
        "not_protected[]",
    ),
    **_rows(Reason.PUBLIC, "evidence.dropped_share", "evidence.entity_list_hash"),  # the hash is keyed
    **_rows(Reason.NOISY_SUMS, "claim", "coverage[]", "figures[].*", "published.*"),
    **_rows(Reason.PRICED, "utility.epsilon", "utility.delta", "utility.records"),
}
_EXPOSURE = "canaries[].exposure"
_AUDIT = {
    **_rows(Reason.MADE_UP, *(f"canaries[].{word}" for word in ("template", "known", "repetitions"))),
    **_rows(Reason.MADE_UP, f"{_EXPOSURE}.canaries[].id", f"{_EXPOSURE}.canaries[].inside"),
    **_rows(Reason.MADE_UP, *(f"{_EXPOSURE}.canaries[].{which}.*" for which in ("own", "twin"))),
    **_rows(Reason.MADE_UP, *(f"{_EXPOSURE}.{word}" for word in ("method", "space", "draws", "fit_distance"))),
    **_rows(Reason.MADE_UP, f"{_EXPOSURE}.best_chance", f"{_EXPOSURE}.excess.*"),
    **_rows(Reason.MADE_UP, "bounds[].template", "bounds[].measured.*", "bounds[].bound.*"),
    **_rows(Reason.MADE_UP, "bounds[].verdict.finding", "bounds[].verdict.sentence"),
    **_rows(Reason.MADE_UP, "verdict.finding", "verdict.sentence"),
}
TABLE: dict[str, Rows] = {
    "config.json": _rows(Reason.SETTING, *SETTINGS),
    "plan.json": _PLAN,
    "model.json": _rows(Reason.SETTING, "kind", "settings.*", "shape.*", "config.*", "lora.*", "model", "name"),
    "made.json": _rows(
        Reason.SETTING,
        *(f"environments[].{word}" for word in ("code", "python", "system", "libraries[][]")),
    ),
    "guarantee.json": _GUARANTEE,
    "utility.json": {
        **_rows(Reason.SETTING, "longest", "noise_multiplier"),
        **_rows(Reason.PUBLIC, "records", "most_nats"),
        **_rows(Reason.PRICED, "sums[]"),
    },
    "audit.json": _AUDIT,
    "manifest.json": _rows(Reason.NOISY_SUMS, "files.*", "ledger.head", "ledger.length"),  # of the other files
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
            way_out="write them to a private file, or give each its row in tacit/run/release.py",
        )


def reason(name: str, path: str) -> Reason | None:
    """Why a field may leave; None if it may not."""
    return next(_matching(TABLE.get(name, {}), path), None)


def _matching(rows: Rows, path: str) -> Iterator[Reason]:
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
