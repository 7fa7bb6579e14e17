"""Drawing units: which rows of the prepared store a step reads. A draw looks at public annotation and chance alone."""

from tacit.sampling.pools import Annotation, Pools, Rows, Units
from tacit.sampling.samplers import (
    Batch,
    PoissonRecordSampler,
    PoissonUserSampler,
    Sampler,
    Samplers,
    ShuffledBatchSampler,
    ShuffledPassSampler,
    ShuffleState,
    bernoulli_positions,
    sampler_for,
)

__all__ = [
    "Annotation",
    "Batch",
    "PoissonRecordSampler",
    "PoissonUserSampler",
    "Pools",
    "Rows",
    "Sampler",
    "Samplers",
    "ShuffleState",
    "ShuffledBatchSampler",
    "ShuffledPassSampler",
    "Units",
    "bernoulli_positions",
    "sampler_for",
]
