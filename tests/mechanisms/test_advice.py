"""Advice in `tacit plan`: what is computed is what the plans have, and what was not measured is not quoted."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

import tacit
from tacit.common.charts import Table
from tacit.mechanisms import advice
from tacit.mechanisms.advice import Advice, MeasuredLoss, expected_loss, measured_losses

CURVE = tuple(
    MeasuredLoss(corpus, 100, ratio, lost)
    for corpus, losses in (("a", (0.1, 0.3)), ("b", (0.2, 0.6)))
    for ratio, lost in zip((0.01, 0.04), losses, strict=True)
)
COUNTS = {"records": 10_000, "flagged": 3_000, "users": 900}


@pytest.fixture
def known() -> Iterator[None]:
    with patch.object(advice, "measured_losses", lambda: CURVE):
        yield


def advised(mechanism: str, counts: dict[str, int], **settings: Any) -> Advice:  # noqa: ANN401
    found = tacit.plan(mechanism, epsilon=8, counts=counts, settings=settings).advice
    assert found is not None
    return found


def test_options_are_plans_of_their_own() -> None:
    """Each line is what `tacit plan` would price with those settings."""
    found = {option.name: option for option in advised("dpsgd", {"records": 10_000}).options}
    for name, epsilon, records, settings in (
        ("as asked", 8, 10_000, {}),
        ("half the epsilon", 4, 10_000, {}),
        ("twice the data", 8, 20_000, {}),
        ("twice the batch", 8, 10_000, {"expected_batch_size": 500, "steps": 800}),
    ):
        private = tacit.plan("dpsgd", epsilon=epsilon, counts={"records": records}, settings=settings).mechanism.private
        assert private is not None
        option = found[name]
        assert (option.epsilon, option.batch, option.steps) == (epsilon, private.expected_batch, private.steps)
        assert option.noise_to_batch == private.noise_multiplier / private.expected_batch
    assert found["half the epsilon"].noise_to_batch > found["as asked"].noise_to_batch
    assert found["twice the data"].noise_to_batch < found["as asked"].noise_to_batch


@pytest.mark.parametrize(
    ("mechanism", "needed"),
    [("dpsgd", ("records",)), ("selective", ("records",)), ("crt", ("records", "flagged")), ("user", ("users",))],
)
def test_every_mechanism_that_draws_has_advice(mechanism: str, needed: tuple[str, ...]) -> None:
    found = advised(mechanism, {name: COUNTS[name] for name in needed})
    assert [option.name for option in found.options] == [
        "as asked",
        "half the epsilon",
        "twice the data",
        "twice the batch",
    ]
    assert found.first.startswith("Change first: expected_batch_size")


def test_without_a_target_or_noise_there_is_none() -> None:
    by_hand = {"noise_multiplier": 1.0}
    assert tacit.plan("dpsgd", counts={"records": 1000}, settings=by_hand).advice is None
    assert tacit.plan("redaction", counts={"records": 1000}).advice is None


def test_a_batch_of_all_records_cannot_grow() -> None:
    found = advised("dpsgd", {"records": 1000}, sampling_rate=0.8)
    assert "twice the batch" not in {option.name for option in found.options}
    assert found.first.startswith("Change first: the data")


@pytest.mark.usefixtures("known")
def test_a_loss_is_read_off_between_measurements_and_nowhere_else() -> None:
    low, high = expected_loss(0.02, 100) or (0.0, 0.0)
    assert (low, high) == pytest.approx((0.2, 0.4))  # halfway, by logarithms
    assert expected_loss(0.01, 100) == (0.1, 0.2)
    assert expected_loss(0.009, 100) is None
    assert expected_loss(0.041, 100) is None
    assert expected_loss(0.02, 201) is None
    assert expected_loss(0.02, 49) is None


@pytest.mark.usefixtures("known")
def test_losses_are_quoted_for_the_mechanism_they_were_measured_with() -> None:
    for mechanism, quoted in (("dpsgd", True), ("selective", False)):
        found = advised(mechanism, {"records": 10_000}, expected_batch_size=40, steps=100)
        assert (found.options[0].lost is not None) is quoted
        heads = [part.head for part in found.tables() if isinstance(part, Table)]
        assert (heads[0][-1] == "nats per character lost") is quoted


def test_what_is_shipped_was_measured() -> None:
    """At least two corpora, several ratios each; more noise never helped."""
    curves: dict[str, list[MeasuredLoss]] = {}
    for one in sorted(measured_losses(), key=lambda one: one.noise_to_batch):
        curves.setdefault(one.corpus, []).append(one)
    assert len(curves) >= 2
    for curve in curves.values():
        assert len(curve) >= 3
        assert [one.lost for one in curve] == sorted(one.lost for one in curve)
