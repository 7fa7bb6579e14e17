"""Named choices that settings take."""

from enum import StrEnum
from typing import Literal


class Mode(StrEnum):
    """Whether a run can be repeated from its seed, or its model may leave your organization."""

    RESEARCH = "research"  # everything from one seed
    RELEASE = "release"  # everything from the operating system


Duplicates = Literal["keep", "exact", "doubtful"]
Pieces = Literal["record", "turn", "sentence"]


class Method(StrEnum):
    """How ranks are found."""

    EXACT = "exact"
    SAMPLED = "sampled"
    EXTRAPOLATED = "extrapolated"
