"""What decides a price: the settings of a plan, and the public numbers of a corpus."""

from functools import partial

from tacit.config.setting import REQUIRED, VALUE, PublicView, section, setting
from tacit.privacy.plan import ClipStyle, Targets, TrainablePart

plan_number = partial(setting, release=VALUE, why="a public number of the plan")


@section
class CorpusCounts:
    """Public numbers of a corpus, for `tacit plan`; training counts them itself."""

    records: int | None = setting(None, "Records in the corpus.", ge=1)
    secret_records: int | None = setting(None, "Records with marked secrets.", ge=1, auto="all records")
    flagged: int | None = setting(None, "Records routed to the protected set.", ge=1)
    other_records: int | None = setting(None, "Records without a listed entity.", ge=1)
    users: int | None = setting(None, "Users in the corpus.", ge=1)
    sensitive_share: float | None = setting(None, "UeDP as printed: sensitive / all sentences.", gt=0, le=1)
    segments_per_record: int | None = setting(None, "S-DP as printed: secrets of one record.", ge=1, auto=1)


@section
class PlanConfig:
    """Mechanism, privacy target and everything that decides a price."""

    mechanism: str = plan_number(REQUIRED, "How to train; `tacit plan --list` lists the mechanisms.", flag=True)
    epsilon: float | None = plan_number(
        None,
        "Privacy target; the noise is derived from it. Smaller is more private: 1 to 8 is common.",
        gt=0,
        allow_inf_nan=False,
        flag=True,
    )
    noise_multiplier: float | None = plan_number(
        None, "Noise / clip norm, given by hand instead of epsilon.", gt=0, allow_inf_nan=False
    )
    delta: float | None = plan_number(None, "Delta of the guarantee.", gt=0, lt=1, auto="1 / (10 x units)")
    expected_batch_size: float | None = plan_number(
        None,
        "Records drawn on average per private step; larger improves the privacy-utility trade-off and takes more time.",
        gt=0,
        auto="1/40 of the units, at least 64",
        flag=True,
    )
    sampling_rate: float | None = plan_number(
        None, "Probability of a unit in a private draw, instead of expected_batch_size.", gt=0, le=1
    )
    epochs: float | None = plan_number(
        None, "Expected passes over the private units.", gt=0, allow_inf_nan=False, auto=20.0, flag=True
    )
    steps: int | None = plan_number(None, "Private steps, instead of epochs.", ge=1)
    clip_norm: float | None = plan_number(
        None,
        "Largest L2 norm of one unit's gradient. Lower it if most gradients are short; noise scales with it.",
        gt=0,
        allow_inf_nan=False,
        auto=1.0,
    )
    clip_style: ClipStyle | None = plan_number(
        None, "How gradients are clipped: flat, automatic or per parameter.", auto="flat"
    )
    trainable: TrainablePart | None = plan_number(
        None, "What private steps train: all, head, biases or adapters.", auto="all"
    )
    public_batch_size: int | None = plan_number(None, "Records in a public batch.", ge=1, auto=32)
    public_epochs: float | None = plan_number(
        None, "Passes over the public text.", ge=0, allow_inf_nan=False, auto="epochs"
    )
    public_view: PublicView | None = plan_number(
        None,
        "What public steps (all steps of crt) read in place of a secret: a placeholder (redacted), one made up by fixed"
        " rules for its kind (invented), or one of a form that is counted with noise before the first step (learned).",
        auto="invented",
    )
    form_epsilon: float | None = plan_number(
        None,
        "With public_view=learned: what counting the form of secrets may cost by itself. It is part of epsilon.",
        gt=0,
        allow_inf_nan=False,
        auto="half of epsilon; 0.5 where the noise is given by hand",
    )
    targets: Targets | None = plan_number(None, "Losses of private steps: of private or of all tokens.", auto="private")
    weight_cap: int | None = plan_number(None, "Records from which a user has full weight.", ge=1, auto=1)
    local_epochs: int | None = plan_number(None, "Passes of a user's local update.", ge=1, auto=1)
    user_cap: int | None = plan_number(None, "Maximum records per user.", ge=1)
    entity_cap: int | None = plan_number(None, "Maximum records per entity.", ge=1)
    entity_rate: float | None = plan_number(None, "UeDP as printed: q_e.", gt=0, le=1)
    other_rate: float | None = plan_number(None, "UeDP as printed: q_s; 0 is the estimator f_E.", ge=0, le=1, auto=1.0)
    recall: float | None = plan_number(None, "CADP as printed: the detector's recall.", gt=0, le=1)
    events_per_batch: float | None = plan_number(
        None, "S-DP as printed: private updates per batch.", gt=0, auto="counted"
    )
    noised_states: int | None = plan_number(None, "S-DP as printed: hidden states noised per segment.", ge=0, auto=2)
    disjoint_from_model: bool = plan_number(
        False,
        "true: no record or user of this corpus was in the corpora of the runs that the model comes from. What those"
        " spent is then not added, and the guarantee lists this as an assumption.",
    )


@section
class PlanRequest:
    """What `tacit plan` prices."""

    plan: PlanConfig = setting(REQUIRED, "Mechanism, epsilon and what else decides a price.")
    counts: CorpusCounts = setting(CorpusCounts, "Public numbers of the corpus.")
