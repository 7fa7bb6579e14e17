"""A worst-case audit of what users and entities are promised (theory, sections 5 and 8), through the trainer itself.

`worst_case.py` says how. Here a direction belongs to a user, to a listed entity, or to both, and all of their records
push its weight by +C: the unit is there, or it is not. Users and entities have more records than their caps allow.

Each bound is false with a chance of at most `ALARM`. Controls: mechanisms that do not keep the claim must be caught.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tacit.config.model_schema import LocalConfig
from tacit.data.ownership import RecordMarks
from tacit.data.store import PreparedCorpus
from tacit.mechanisms.mechanism import Mechanism, planned
from tacit.mechanisms.uedp import UeDP
from tacit.mechanisms.user import UserLevel
from tacit.papers.mechanisms import UeDPPublished
from tacit.privacy.account import account
from tacit.privacy.events import Relation, SampledGaussian
from tacit.privacy.guarantee import Evidence, Published
from tacit.training.marking import Caps, annotate
from tacit.training.pools import Annotation, Pools, RowEntities
from tacit.training.pools import DrawnUnits as Drawn
from tacit.training.randomness import NoiseStream
from tacit.training.sampling import PoissonUserSampler
from worst_case import (
    MINUS,
    PLUS,
    Canary,
    Law,
    Seen,
    Setting,
    bounds_between,
    claims_of,
    refutes,
    sharpness,
    trained,
    write_store,
)

ABSENT = 40_000  # directions of nobody: they cost nothing, and make false alarms of the attack rare


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of charges: that they are on the disk is tested elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def halved_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that every mechanism's audit must notice."""
    add = NoiseStream.add_
    monkeypatch.setattr(NoiseStream, "add_", lambda stream, sums, deviation: add(stream, sums, deviation / 2))


# Users drawn whole: DP-FedAvg.

USERS = 600
USER_ROWS = 2
FEDERATED = Setting(rate=0.5, noise=0.7, steps=2)
LOCAL = LocalConfig(batch_size=1, learning_rate=0.1)  # a local step for each record, all in one direction


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """Each user pushes a direction with several records."""
    canaries = (Canary(user, user=f"user {user}") for user in range(USERS) for _ in range(USER_ROWS))
    return write_store(tmp_path_factory.mktemp("stores") / "users", canaries, USERS + ABSENT)


def _federated_bounds(
    store: PreparedCorpus, weight_cap: int, law: Law, noise: float, folder: Path
) -> tuple[dict[float, float], dict[float, float]]:
    """What an attacker who knows law and noise finds in DP-FedAvg, and what is claimed."""
    mechanism = UserLevel(FEDERATED.private(USERS), weight_cap=weight_cap)
    seen = trained(store, Pools(Annotation.of(store)), mechanism, folder, local=LOCAL)
    bounds = bounds_between(seen.part(0, USERS), seen.part(USERS, ABSENT), noise, law)
    return bounds, claims_of(mechanism)["a user, zero-out"]


@pytest.mark.statistical
def test_federated_users_have_what_they_are_promised(users: PreparedCorpus, tmp_path: Path) -> None:
    """A user's local training is one clipped vector; false alarm: 4e-6. The best test finds 40 % of the claim."""
    bounds, claims = _federated_bounds(users, USER_ROWS, FEDERATED.drawn(), FEDERATED.noise, tmp_path / "run")
    assert not refutes(bounds, claims)
    assert sharpness(bounds, claims) > 0.4


@pytest.mark.statistical
@pytest.mark.usefixtures("halved_noise")
def test_half_the_noise_is_caught_for_federated_users(users: PreparedCorpus, tmp_path: Path) -> None:
    """Control."""
    half = FEDERATED.noise / 2
    assert refutes(*_federated_bounds(users, USER_ROWS, FEDERATED.drawn(), half, tmp_path / "run"))


@pytest.mark.statistical
def test_records_clipped_alone_are_caught(
    users: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: each record of a drawn user becomes a vector of its own, where one vector is priced."""
    whole = PoissonUserSampler.draw

    def apart(sampler: PoissonUserSampler, generator: np.random.Generator) -> Iterator[Drawn]:
        (drawn,) = whole(sampler, generator)
        yield Drawn(drawn.rows, np.arange(len(drawn.rows) + 1))

    monkeypatch.setattr(PoissonUserSampler, "draw", apart)
    together = {0: 1 - FEDERATED.rate, USER_ROWS: FEDERATED.rate}
    assert refutes(*_federated_bounds(users, 1, together, FEDERATED.noise, tmp_path / "run"))


# Records with caps: the second form of `user`, and `uedp`.

UNITS = 1_000  # of each kind
USER_CAP, ENTITY_CAP = 3, 2
CAPPED = Setting(rate=0.3, noise=1.2, steps=3)
PAIR = "a user and an entity"
KINDS = {"a user": USER_CAP, "an entity": ENTITY_CAP, PAIR: USER_CAP + ENTITY_CAP}  # records that the caps keep


def _owned(kind: str, direction: int) -> Iterator[Canary]:
    """The records of one unit, twice as many as the caps allow; those of an entity alone are by many users."""
    if "user" in kind:
        yield from (Canary(direction, user=f"user {direction}") for _ in range(2 * USER_CAP))
    if "entity" in kind:
        for number in range(2 * ENTITY_CAP):
            yield Canary(direction, user=f"writer {direction} {number}", entities=(direction,))


def _marks(canaries: Sequence[Canary]) -> RecordMarks:
    offsets = np.cumsum([0, *(len(canary.entities) for canary in canaries)])
    ids = np.array([entity for canary in canaries for entity in canary.entities], np.int64)
    return RecordMarks(np.zeros(len(canaries), np.bool_), offsets, ids, "")


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A store, and what its annotation was made from."""

    store: PreparedCorpus
    marks: RecordMarks

    def capped(self, caps: Caps) -> Annotation:
        """As the engine annotates it."""
        return annotate(self.store, self.marks, caps)[0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Units of each kind, one kind after the other, and nobody."""
    owners = enumerate(kind for kind in KINDS for _ in range(UNITS))
    canaries = [canary for direction, kind in owners for canary in _owned(kind, direction)]
    folder = tmp_path_factory.mktemp("stores") / "capped"
    return Corpus(write_store(folder, canaries, len(KINDS) * UNITS + ABSENT), _marks(canaries))


def _uedp(records: int) -> UeDP:
    return UeDP(CAPPED.private(records), USER_CAP, ENTITY_CAP)


def _by_user(records: int) -> UserLevel:
    return UserLevel(CAPPED.private(records), records_per_user=USER_CAP)


def _capped_bounds(
    corpus: Corpus,
    annotation: Annotation,
    build: Callable[[int], Mechanism],
    folder: Path,
    noise: float = CAPPED.noise,
    kept: Mapping[str, int] = KINDS,
) -> tuple[dict[str, dict[float, float]], dict[str, dict[float, float]]]:
    """What an attacker who knows noise and kept records finds of each kind of unit, and what is claimed for it."""
    assert annotation.kept is not None
    mechanism = build(int(annotation.kept.sum()))
    seen = trained(corpus.store, Pools(annotation), mechanism, folder)
    absent = seen.part(len(KINDS) * UNITS, ABSENT)
    found = {
        kind: bounds_between(seen.part(number * UNITS, UNITS), absent, noise, CAPPED.drawn(records))
        for number, (kind, records) in enumerate(kept.items())
    }
    return found, {notion.split(" (")[0]: claims for notion, claims in claims_of(mechanism).items()}


@pytest.mark.statistical
def test_uedp_keeps_its_three_claims(corpus: Corpus, tmp_path: Path) -> None:
    """A user, an entity, and the pair; false alarm: 1.2e-5. The best tests find 40 % of each claim."""
    annotation = corpus.capped(Caps(USER_CAP, ENTITY_CAP))
    found, claims = _capped_bounds(corpus, annotation, _uedp, tmp_path / "run")
    assert found.keys() == claims.keys()
    for kind, bounds in found.items():
        assert not refutes(bounds, claims[kind])
        assert sharpness(bounds, claims[kind]) > 0.4
    for smaller in ("a user", "an entity"):
        assert refutes(found[PAIR], claims[smaller]), "a pair costs more than each of the two"


@pytest.mark.statistical
def test_capped_users_have_what_they_are_promised(corpus: Corpus, tmp_path: Path) -> None:
    """Users with several records, each clipped alone; false alarm: 4e-6. The best test finds 40 % of the claim."""
    found, claims = _capped_bounds(corpus, corpus.capped(Caps(user=USER_CAP)), _by_user, tmp_path / "run")
    assert not refutes(found["a user"], claims["a user"])
    assert sharpness(found["a user"], claims["a user"]) > 0.4
    as_one = claims_of(replace(_by_user(len(corpus.store)), records_per_user=1))["a user, zero-out"]
    assert refutes(found["a user"], as_one), "several records cost more than one"


@pytest.mark.statistical
@pytest.mark.usefixtures("halved_noise")
def test_half_the_noise_is_caught_for_each_unit(corpus: Corpus, tmp_path: Path) -> None:
    """Control."""
    annotation = corpus.capped(Caps(USER_CAP, ENTITY_CAP))
    found, claims = _capped_bounds(corpus, annotation, _uedp, tmp_path / "run", CAPPED.noise / 2)
    assert all(refutes(bounds, claims[kind]) for kind, bounds in found.items())


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("caps", "over", "within"),
    [(Caps(user=USER_CAP), "an entity", "a user"), (Caps(entity=ENTITY_CAP), "a user", "an entity")],
)
def test_a_cap_that_is_not_enforced_is_caught(
    caps: Caps, over: str, within: str, corpus: Corpus, tmp_path: Path
) -> None:
    """Controls: users, or entities, keep twice the records that they are priced with. False alarm: 4e-6."""
    kept = {**KINDS, over: 2 * KINDS[over]}
    found, claims = _capped_bounds(corpus, corpus.capped(caps), _uedp, tmp_path / "run", kept=kept)
    assert refutes(found[over], claims[over])
    assert not refutes(found[within], claims[within])


# UeDP as printed. Its noise is that of all drawn users, so only an entity that stands in everybody's records is seen;
# there is one weight, and a run of many rounds is cut into repetitions: no draw depends on an earlier one.

CROWD = 200
ROUNDS = Setting(rate=0.01, noise=1.0, steps=8)
SHARE = CROWD / (2 * CROWD - 1)  # of sentences with a listed entity


def _crowd(with_entity: bool, companions: int) -> Iterator[Canary]:
    """All users say -C; with the entity, in sentences where `companions` other entities stand, they say +C instead.

    The first user is the one of the pair: nothing without the entity.
    """
    for user in range(CROWD):
        if with_entity:
            yield Canary(0, (PLUS, PLUS), user=f"user {user}", entities=tuple(range(companions + 1)))
        if user:
            yield Canary(0, (MINUS,), user=f"user {user}")


def _printed(entity_rate: float, rounds: int = ROUNDS.steps) -> UeDPPublished:
    return UeDPPublished(replace(ROUNDS, steps=rounds).private(CROWD), entity_rate, SHARE)


def _repeated(canaries: Iterable[Canary], entity_rate: float, times: int, folder: Path, seed: int) -> Seen:
    """(rounds, times): increments of the one weight."""
    rows = list(canaries)
    store = write_store(folder.with_suffix(".store"), rows, 1)
    entities = RowEntities.of((row.entities for row in rows), max(1 + max(row.entities, default=0) for row in rows))
    pools = Pools(Annotation.of(store, entities=entities))
    mechanism = _printed(entity_rate, ROUNDS.steps * times)
    seen = trained(store, pools, mechanism, folder, seed=seed, move=1e-5)
    increments = seen.private[:, 0].reshape(times, ROUNDS.steps).T
    return Seen(increments, np.zeros((0, times), np.bool_))


def _drawn_users(count: int, sign: int) -> Law:
    """How many of `count` users a round uses: never more than the noise is for."""
    most = int(ROUNDS.rate * CROWD + 1)
    law = {sign * n: float(stats.binom.pmf(n, count, ROUNDS.rate)) for n in range(most)}
    return {**law, sign * most: float(stats.binom.sf(most - 1, count, ROUNDS.rate))}


def _with_entity(rate: float) -> Law:
    """The law of a round whose sentences with the entity are taken with probability `rate`."""
    mixed = {n: (1 - rate) * p for n, p in _drawn_users(CROWD - 1, -1).items()}
    for n, p in _drawn_users(CROWD, 1).items():
        mixed[n] = mixed.get(n, 0.0) + rate * p
    return mixed


def _printed_bounds(companions: int, entity_rate: float, times: int, folder: Path) -> dict[float, float]:
    """What the audit finds of the pair, there and not there."""
    present = _repeated(_crowd(True, companions), entity_rate, times, folder / "present", seed=1)
    absent = _repeated(_crowd(False, 0), entity_rate, times, folder / "absent", seed=2)
    law = _with_entity(1 - (1 - entity_rate) ** (companions + 1))
    noise = ROUNDS.noise * (ROUNDS.rate * CROWD + 1)
    return bounds_between(present, absent, noise, law, _drawn_users(CROWD - 1, -1))


def _published(mechanism: UeDPPublished) -> Published:
    published = mechanism.conclude(planned(mechanism), Evidence()).published
    assert published is not None
    return published


@pytest.mark.slow
@pytest.mark.statistical
def test_uedp_as_printed_breaks_its_formula_and_keeps_what_holds(tmp_path: Path) -> None:
    """An entity that stands alone in its sentences; false alarm: 4e-6."""
    mechanism = _printed(0.9)
    bounds, published = _printed_bounds(0, 0.9, 300, tmp_path), _published(mechanism)
    assert bounds[published.delta] > published.epsilon
    assert not refutes(bounds, claims_of(mechanism)[f"{PAIR}, zero-out"])


COMPANIONS, SELDOM = 60, 0.05  # entities beside the audited one, and how probably each of them is drawn


@pytest.fixture(scope="module")
def in_company(tmp_path_factory: pytest.TempPathFactory) -> dict[float, float]:
    """What the audit finds of an entity whose sentences are taken whenever one of its many companions is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        return _printed_bounds(COMPANIONS, SELDOM, 130, tmp_path_factory.mktemp("company"))


@pytest.mark.statistical
def test_uedp_as_printed_breaks_its_formula(in_company: dict[float, float]) -> None:
    """The bound at the printed delta is above the printed epsilon."""
    published = _published(_printed(SELDOM))
    assert in_company[published.delta] > published.epsilon


@pytest.mark.statistical
def test_company_breaks_the_rate_of_one_entity(in_company: dict[float, float]) -> None:
    """The control: priced as if a sentence were taken only when its user or the audited entity is drawn."""
    rate = 1 - (1 - ROUNDS.rate) * (1 - SELDOM)
    alone = account(((SampledGaussian(ROUNDS.noise / 2, rate, 1, Relation.ZERO_OUT), ROUNDS.steps),))
    assert refutes(in_company, {delta: alone.epsilon(delta) for delta in in_company})


@pytest.mark.statistical
def test_company_does_not_break_what_holds(in_company: dict[float, float]) -> None:
    """False alarm: 4e-6."""
    assert not refutes(in_company, claims_of(_printed(SELDOM))[f"{PAIR}, zero-out"])
