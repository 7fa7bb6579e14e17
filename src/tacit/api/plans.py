"""Prices before training, and what to change first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tacit.api.inputs import FieldNames, earlier_of, fields_of, policy_of
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.data.corpus import CorpusSource
    from tacit.data.records import Record
    from tacit.mechanisms.build import Planned
    from tacit.mechanisms.mechanism import Mechanism
    from tacit.policies.policy import Policy

UNITS = ("records", "secret_records", "flagged", "other_records", "users")
"""Counts that are twice as large in a corpus that is twice as large."""


def plan(
    mechanism: str | None = None,
    *,
    epsilon: float | None = None,
    counts: Mapping[str, int] | None = None,
    corpus: "CorpusSource | None" = None,
    policy: "str | Path | Mapping[str, Any] | Policy" = "pii",
    conservative_policy: "str | Path | Mapping[str, Any] | Policy | None" = None,
    model: "str | Path | None" = None,
    settings: Mapping[str, Any] | None = None,
    file: str | Path | None = None,
    **field_names: Unpack[FieldNames],
) -> "Planned":
    """Price a training plan before anything is trained, with advice on what to change first.

    Args:
        mechanism: its name; `tacit plan --list` lists them.
        epsilon: the privacy target; the noise is derived from it.
        counts: what there is to protect, such as {"records": 9800}, {"users": 120} or
            {"records": 9800, "flagged": 300}.
        corpus: instead of counts, the corpus to count in; what training keeps for measuring by default is left out.
        policy, conservative_policy: what is secret in it, where the mechanism depends on that.
        model: the model that training will begin with. If it is a run, what that run spent is part of the price, and
            `epsilon` is the target of both together.
        settings: other settings of a plan, such as {"epochs": 4, "clip_norm": 0.5}.
        file: a YAML file with settings under `plan:`, which those above override, and a `model:`.
        **field_names: what the corpus calls the parts of a record (text_field, user_field, ...).

    Examples:
        >>> import tacit
        >>> priced = tacit.plan("dpsgd", epsilon=2, counts={"records": 9800})
        >>> round(priced.guarantee.figures[0].epsilon, 2)
        2.0
        >>> tacit.plan("dpsgd", epsilon=2, corpus="corpus.jsonl").mechanism.private.population
        78
    """
    from tacit.mechanisms.advice import advise
    from tacit.mechanisms.build import plan as price
    from tacit.mechanisms.build import read_plan_file, read_plan_model
    from tacit.privacy.account import without_library

    target = {name: value for name, value in (("mechanism", mechanism), ("epsilon", epsilon)) if value is not None}
    asked = {**(read_plan_file(Path(file)) if file else {}), **target, **(counts or {}), **(settings or {})}
    with without_library():
        earlier = earlier_of(read_plan_model(Path(file)) if file and model is None else model)
        measured: dict[str, Callable[[], float]] = {}
        if corpus is not None:
            chosen = [policy_of(one) for one in (policy, conservative_policy) if one is not None]
            measured = _counted_in(corpus, chosen, field_names)
            twice = sorted(measured.keys() & {name for name, value in asked.items() if value is not None})
            if twice:
                found = f"both for {', '.join(twice)}"
                raise ConfigError("a corpus to count in, or the number", found, "leave one out")

        def repriced(words: Mapping[str, Any], scale: int) -> "Mechanism":
            known = {
                name: scale * value if name in UNITS else value for name, value in words.items() if value is not None
            }
            counted = {name: partial(_scaled, count, scale) for name, count in measured.items()}
            return price(known, measured=counted, earlier=earlier).mechanism

        planned = price(asked, measured=measured, earlier=earlier)
        return replace(planned, advice=advise(asked, planned.mechanism, repriced))


def _counted_in(
    corpus: "CorpusSource", policies: "Sequence[Policy]", names: FieldNames
) -> dict[str, Callable[[], float]]:
    """Each public number of a corpus, counted when a mechanism asks for it."""
    from tacit.config.schema import DEFAULT_HELD_OUT
    from tacit.data.corpus import open_corpus
    from tacit.data.marked import HELD_OUT_SALT, Shares, Split, split_of

    shares = Shares(1 - DEFAULT_HELD_OUT, DEFAULT_HELD_OUT, 0.0)
    source = list(corpus) if isinstance(corpus, Iterator) else corpus  # read once for each count

    def trained() -> "Iterator[Record]":
        for record in open_corpus(source, fields_of(names)):
            if split_of(record.user or record.id, HELD_OUT_SALT, shares) == Split.TRAIN:
                yield record

    def found_by(some: "Sequence[Policy]") -> float:
        return sum(any(policy.marks(record) for policy in some) for record in trained())

    return {
        "records": cache(lambda: sum(1 for _ in trained())),
        "users": cache(lambda: len({record.user or record.id for record in trained()})),
        "secret_records": cache(lambda: found_by(policies[:1])),
        "flagged": cache(lambda: found_by(policies)),
    }


def _scaled(count: Callable[[], float], scale: int) -> float:
    return scale * count()


def mechanisms() -> dict[str, str]:
    """What each mechanism does, by name."""
    from tacit.mechanisms.registry import entries

    return {entry.name: entry.summary for entry in entries()}
