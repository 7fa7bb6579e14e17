"""Conditions that several claims depend on, each with how it is known to hold."""

from tacit.privacy.guarantee import Condition, Status

FRESH_DRAW = Condition(
    "by the plan, each private draw is a fresh Poisson draw that reaches the model through its noisy sum alone",
    Status.MET,
)

CONSTANT_DIVISOR = Condition("sampling rate, clip norm and divisor are public constants", Status.MET)
PUBLIC_COUNT = Condition("the number of units is treated as public", Status.ASSUMED)

PUBLIC_TOKENIZER = Condition(
    "tokenizer, length limits, schedules and model choice depend on public data only", Status.ASSUMED
)

FROZEN_MARKS = Condition(
    "public text, and where marked spans stand and of which kind, are treated as public", Status.ASSUMED
)

LEARNED_ELSEWHERE = "trained on public or disjoint data"

FROZEN_DETECTOR = Condition(
    f"the detector or model behind the marks was {LEARNED_ELSEWHERE} and frozen", Status.ASSUMED
)

FOREIGN_BASE = Condition("the base model was not trained on this corpus", Status.ASSUMED)

UNCOMPARED_DEVICE = Condition(
    "no row changes what the accelerator computes for another: neighbours were compared on processors alone",
    Status.ASSUMED,
)

KNOWN_SEED = Condition(
    "nobody can repeat the randomness (a research run: no guarantee against anyone who knows or guesses the seed)",
    Status.UNMET,
)

INVENTED = Condition("what was invented for secrets comes from their kinds and from public examples", Status.ASSUMED)
INVENTED_BY_KIND = Condition("what was invented for secrets comes from their kinds alone", Status.MET)

LABELLED = Condition(
    "labels of a random sample of this corpus are right; secrets whose redaction is not stable count as missed",
    Status.MEASURED,
)

FLOAT32 = Condition(
    "rounding of float32 numbers stays within the margin of clipping, and their last digits reveal nothing",
    Status.ASSUMED,
)

NOISY_CONDITIONS = (FRESH_DRAW, CONSTANT_DIVISOR, PUBLIC_COUNT, PUBLIC_TOKENIZER, FLOAT32)
