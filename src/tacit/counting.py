"""The public numbers of a corpus that a plan needs: how many records, users, secrets."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tacit.mechanisms.words import default_batch
from tacit.plan import Pool
from tacit.sampling import Annotation, Pools

_TRIALS = 200


def measured_counts(
    annotation: Annotation, pools: Pools, words: Mapping[str, Any]
) -> Mapping[str, Callable[[], float]]:
    """Each number by its word, counted when a mechanism asks for it; records are those that caps kept."""
    everyone = Pool.EVERY if annotation.kept is None else Pool.CAPPED

    def records(pool: Pool) -> Callable[[], float]:
        return lambda: len(pools.records(pool))

    return {
        "records": records(everyone),
        "secret_records": records(Pool.WITH_SECRETS),
        "flagged": records(Pool.FLAGGED),
        "other_records": records(Pool.NO_ENTITY),
        "users": lambda: len(pools.users(Pool.EVERY)),
        "sensitive_share": lambda: 0.0 if annotation.with_entity is None else float(annotation.with_entity.mean()),
        "segments_per_record": lambda: max(1, int(annotation.span_counts.max())),
        "events_per_batch": lambda: _most_segments(annotation, words),
    }


COUNTED = frozenset(
    ("records", "secret_records", "flagged", "other_records", "users", "sensitive_share", "segments_per_record")
)
"""Words of a plan that a corpus decides."""


def _most_segments(annotation: Annotation, words: Mapping[str, Any]) -> float:
    """The most secrets of a record in a drawn batch, on average: how many private updates Algorithm 1 of S-DP makes."""
    counts, chance = annotation.span_counts, np.random.default_rng(0)
    rate = words.get("sampling_rate") or words.get("batch", default_batch(len(counts))) / len(counts)
    draws = (counts[chance.random(len(counts)) < rate] for _ in range(_TRIALS))
    return max(1.0, float(np.mean([drawn.max(initial=0) for drawn in draws])))
