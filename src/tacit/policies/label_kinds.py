"""The kinds of a model's labels: those that a person gives, else those of the one vocabulary (`common_kind`).

A label that nobody listed keeps its own name, in capitals and as one word: dropping it would lose secrets silently.
"""

import re
from collections.abc import Collection, Mapping

from tacit.data.records import common_kind
from tacit.errors import PolicyError
from tacit.policies.policy import Policy, nested

PLAIN = "O"
"""The label of plain text."""

MODELS = ("gliner", "token-classifier")
"""Keys in the content of policies that read with a model's labels."""

_PREFIX = re.compile(r"[BILUSEM]-(?=\S)")
_SHOWN = 12


def kinds_of_labels(labels: Collection[str], given: Mapping[str, str]) -> dict[str, str]:
    """The kind of each label; `given` names labels with or without their prefix (B-, I- and so on)."""
    bare = {label: _PREFIX.sub("", label, count=1) for label in labels}
    unknown = sorted(set(given) - {*bare, *bare.values()})
    if unknown:
        some = sorted({*bare.values()})
        raise PolicyError(
            expected=f"labels of the model: {', '.join(some[:_SHOWN])}{' and more' if len(some) > _SHOWN else ''}",
            found=", ".join(unknown),
            way_out="name labels under `labels` as the model does, with or without B- and I-",
        )
    return {label: _one_word(given.get(label) or given.get(bare[label]) or label) for label in labels}


def _one_word(label: str) -> str:
    kind = re.sub(r"\W+", "_", common_kind(label)).strip("_")
    if not kind:
        raise PolicyError("labels with a letter or a digit in them", repr(label), "rename it under `labels`")
    return kind


def label_kinds(policy: Policy) -> dict[str, str]:
    """The kinds that the labels of all models inside a policy became, without prefixes."""
    models = (
        part for part in nested(policy.content()) if isinstance(part, dict) and not part.keys().isdisjoint(MODELS)
    )
    return {
        _PREFIX.sub("", label, count=1): kind
        for part in models
        for label, kind in sorted(part["labels"].items())
        if kind != PLAIN
    }


def label_sentence(kinds: Mapping[str, str]) -> str:
    """Which labels became which kinds; empty when every label is a kind's own name."""
    renamed: dict[str, list[str]] = {}
    for label, kind in kinds.items():
        if label != kind:
            renamed.setdefault(kind, []).append(label)
    rows = [f"{kind} from {', '.join(labels)}" for kind, labels in sorted(renamed.items())]
    return f"Kinds from the model's labels: {'; '.join(rows)}." if rows else ""
