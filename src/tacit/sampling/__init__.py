"""Drawing units: which rows of the prepared store a step reads. A draw looks at public annotation and chance alone."""

from tacit.sampling.base import Batch, Rows, Sampler, ShuffleState, bernoulli_positions
from tacit.sampling.pairs import PairSampler
from tacit.sampling.pools import Annotation, Pools, RowEntities, Units
from tacit.sampling.samplers import (
    PoissonRecordSampler,
    PoissonUserSampler,
    Samplers,
    ShuffledBatchSampler,
    ShuffledPassSampler,
    sampler_for,
)

__all__ = [
    "Annotation",
    "Batch",
    "PairSampler",
    "PoissonRecordSampler",
    "PoissonUserSampler",
    "Pools",
    "RowEntities",
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
