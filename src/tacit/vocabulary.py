"""Every word with which a person asks for a mechanism, its type and its meaning; light to load."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tacit.plan import ClipStyle, Moves, Targets

BASELINES: dict[str, str] = {
    "noiseless": "plain",  # UeDP, section 5: "trained without any privacy-preserving mechanisms"; No-DP in S-DP
    "de-identification": "redaction",  # UeDP, section 5: listed entities are masked; the policy says which
    "anonymisation": "redaction",  # S-DP, section 5.4: all that the policy finds, there digits, becomes <num>
    "user-level": "user",  # UeDP, section 5: McMahan et al.
}
"""What papers call their baselines, and the mechanism that each is: the claim is that mechanism's."""

_INVENTING = ("selective", "twice")


class Vocabulary(BaseModel):
    """Every word, its type and its meaning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mechanism: str = Field(description="Name of the mechanism; `tacit plan --list` lists them.")
    epsilon: float | None = Field(None, gt=0, allow_inf_nan=False, description="Target; the noise is derived from it.")
    noise_multiplier: float | None = Field(None, gt=0, allow_inf_nan=False, description="Noise / clip norm, by hand.")
    delta: float | None = Field(None, gt=0, lt=1, description="Default: 1 / (10 x units).")
    records: int | None = Field(None, ge=1, description="Records in the corpus.")
    secret_records: int | None = Field(None, ge=1, description="Records with marked secrets. Default: all records.")
    flagged: int | None = Field(None, ge=1, description="Records routed to the protected set.")
    other_records: int | None = Field(None, ge=1, description="Records without a listed entity.")
    users: int | None = Field(None, ge=1, description="Users in the corpus.")
    batch: float | None = Field(None, gt=0, description="Expected units in a private draw.")
    sampling_rate: float | None = Field(None, gt=0, le=1, description="Probability of a unit in a private draw.")
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False, description="Expected passes over the private units.")
    steps: int | None = Field(None, ge=1, description="Private steps.")
    clip_norm: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Largest norm a unit's gradient keeps."
    )
    clip_style: ClipStyle | None = Field(
        None, description="How gradients are clipped: flat, automatic or per parameter."
    )
    moves: Moves | None = Field(None, description="What private steps move: all, head, biases or adapters.")
    public_batch: int | None = Field(None, ge=1, description="Records in a public batch.")
    public_epochs: float | None = Field(None, ge=0, allow_inf_nan=False, description="Passes over the public text.")
    public_view: Literal["redacted", "invented"] | None = Field(
        None,
        description="What public steps read for a secret: a placeholder (redacted), or an invented one of its kind. "
        "Default: invented for selective and twice, redacted elsewhere.",
    )
    targets: Targets | None = Field(None, description="Losses of private steps: private (default) or all tokens.")
    weight_cap: int | None = Field(None, ge=1, description="Records from which a user has full weight.")
    local_epochs: int | None = Field(None, ge=1, description="Passes of a user's local update.")
    user_cap: int | None = Field(None, ge=1, description="Most records a user keeps.")
    entity_cap: int | None = Field(None, ge=1, description="Most records an entity keeps.")
    entity_rate: float | None = Field(None, gt=0, le=1, description="UeDP as printed: q_e.")
    other_rate: float | None = Field(None, ge=0, le=1, description="UeDP as printed: q_s; 0 is the estimator f_E.")
    sensitive_share: float | None = Field(None, gt=0, le=1, description="UeDP as printed: sensitive / all sentences.")
    recall: float | None = Field(None, gt=0, le=1, description="CADP as printed: the detector's recall.")
    events_per_batch: float | None = Field(None, gt=0, description="S-DP as printed: private updates a batch.")
    segments_per_record: int | None = Field(None, ge=1, description="S-DP as printed: secrets of one record.")
    noised_states: int | None = Field(None, ge=0, description="S-DP as printed: hidden states noised a segment.")


def invents(mechanism: str, public_view: str | None) -> bool:
    """Whether public steps of the mechanism read invented secrets; `public_view` is what a person said, if anything."""
    return public_view == "invented" if public_view is not None else mechanism in _INVENTING
