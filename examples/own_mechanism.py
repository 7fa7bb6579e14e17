"""A mechanism of one's own: noisy steps on secrets first, public steps to finish; priced by the ledger.

    python examples/own_mechanism.py

One lists steps; tacit prices them and writes the sentence. Steps without a price are refused, as the end shows.
"""

import tempfile
from pathlib import Path

import tacit
from tacit.api import simulate
from tacit.errors import ClaimRefused
from tacit.mechanisms.custom import Own
from tacit.mechanisms.mechanism import PrivateSteps
from tacit.mechanisms.registry import register_mechanism
from tacit.mechanisms.settings import PlanSettings
from tacit.privacy.plan import Phase, Plan, Pool, Targets, Unit, View


def secrets_first(settings: PlanSettings) -> Own:
    """All private steps, then all public ones: the contrary of `twice`."""
    records = settings.need("records")
    public = settings.public(records)
    with_secrets = settings.private(settings.take("secret_records", records))

    def schedule(private: PrivateSteps) -> Plan:
        noisy = private.step(View.FULL, Pool.WITH_SECRETS, Targets.PRIVATE)
        exact = public.step(View.REDACTED, Pool.EVERY, Targets.PUBLIC)
        return Plan((Phase(((noisy, private.steps),)), Phase(((exact, public.steps),))))

    return Own("secrets-first", with_secrets, schedule, Unit.SECRETS)


def careless(settings: PlanSettings) -> Own:
    """The same, but the public steps read the text as it was written: no epsilon is true of that."""
    records = settings.need("records")
    public = settings.public(records)

    def schedule(private: PrivateSteps) -> Plan:
        noisy = private.step(View.FULL, Pool.WITH_SECRETS, Targets.PRIVATE)
        exact = public.step(View.FULL, Pool.EVERY)
        return Plan((Phase(((noisy, private.steps),)), Phase(((exact, public.steps),))))

    return Own("careless", settings.private(records), schedule, Unit.SECRETS)


def main() -> None:
    """Price it, train with it, and try one that cannot be priced."""
    register_mechanism("secrets-first", "private steps first, then public ones", secrets_first)
    register_mechanism("careless", "reads secrets without noise", careless)
    planned = tacit.plan("secrets-first", epsilon=2, counts={"records": 9800}, settings={"epochs": 3})
    private = planned.mechanism.private
    assert private is not None
    print(f"noise multiplier {private.noise_multiplier:.3f} for epsilon 2 on 9,800 records\n")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        simulate("customersim", dialogs=80, out=corpus)
        trained = tacit.train(
            corpus,
            out=Path(folder) / "run",
            policy="pii",
            mechanism="secrets-first",
            epsilon=8,
            epochs=1,
            settings={
                "held_out": 0.2,
                "model_config": {"embedding_size": 16, "hidden_size": 32},
                "plan": {"public_epochs": 1},
            },
        )
    print(trained.guarantee.sentence(), "\n")
    try:
        tacit.plan("careless", counts={"records": 9800}, settings={"noise_multiplier": 1})
    except ClaimRefused as refused:
        print(f"careless is refused: found {refused.found}")


if __name__ == "__main__":
    main()
