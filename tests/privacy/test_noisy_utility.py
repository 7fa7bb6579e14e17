"""Utility that leaves: sums over held-out records with noise for each of them (theory, section 9)."""

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from marking import prepare
from runs import experiment, quiet, write_corpus
from tacit.config.model_schema import LSTMConfig
from tacit.data.batches import RowReader
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.viewed import Inventions
from tacit.models.evaluation import evaluate
from tacit.models.lstm import LSTM
from tacit.policies.patterns import Digits
from tacit.privacy.account import account
from tacit.privacy.ledger import read_entries
from tacit.privacy.noisy_utility import (
    HELD_OUT,
    LONGEST,
    STEP,
    Contributions,
    ReleasedUtility,
    calibrated,
    noisy,
    price,
)
from tacit.privacy.plan import Targets, View
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.utility import Utility
from tacit.runs.verify import verify
from tacit.training.stages import resume, train

SMALL: dict[str, Any] = {"model_config": {"embedding_size": 8, "hidden_size": 8}}


@pytest.mark.parametrize(("records", "noise"), [(200, 2.77), (1000, 3.19), (10_000, 3.74)])
def test_noise_is_that_of_the_theory_and_spends_epsilon_1(records: int, noise: float) -> None:
    found = calibrated(records)
    assert found == pytest.approx(noise, rel=0.01)
    assert account(((price(found), 1),)).epsilon(1 / (10 * records)) <= 1


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[PreparedCorpus, RowReader, LSTM, Contributions]:
    """Short records, records in several pieces, and one of which the first piece alone is longer than the cut."""
    tokenizer = byte_tokenizer()
    texts = ["a", "call 555", *(f"{'word ' * n}is {n}" for n in range(1, 40))]
    records = (Record(f"r{at}", text) for at, text in enumerate(texts))
    place = tmp_path_factory.mktemp("store") / "store"
    store = prepare(records, Digits(), tokenizer, place, PrepareConfig(max_tokens=40))
    torch.manual_seed(0)
    learner = LSTM.new(LSTMConfig(tokenizer.vocabulary_size, 8, 8))
    with torch.no_grad():
        for value in learner.module.parameters():
            value.mul_(30)  # some tokens cost more than the cap
    reader = RowReader(store, tokenizer.end, 200, Inventions(tokenizer, {}))
    return store, reader, learner, evaluate(learner, store, reader, 1, lambda _: None)[1]


def test_vectors_are_those_of_a_loop_over_tokens(
    measured: tuple[PreparedCorpus, RowReader, LSTM, Contributions],
) -> None:
    """Catches a record that counts once per piece, tokens behind the cut, and nats above the cap."""
    store, reader, learner, found = measured
    expected = np.zeros((len(set(store.records.tolist())), 3))
    cap, capped, cut = math.log(store.header.facts.vocabulary_size), 0, 0
    learner.module.eval()
    for row in range(len(store)):
        batch = reader.batch([row], View.FULL, Targets.ALL)
        logits = learner.logits(batch.inputs)[0].detach().double()
        sums = expected[int(store.records[row])]
        for place in np.flatnonzero(batch.weights[0].numpy()):
            target = int(batch.targets[0, place])
            if round(sums[1] * LONGEST) == LONGEST:
                cut += 1
                continue
            nats = float(-logits[place].log_softmax(0)[target])
            capped += nats > cap
            sums += (min(nats, cap) / cap / LONGEST, 1 / LONGEST, (int(logits[place].argmax()) == target) / LONGEST)
    assert capped > 10 < cut
    assert len(store) > len(expected)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-4)
    assert found.vectors.max() <= 1
    assert np.linalg.norm(found.vectors, axis=1).max() <= math.sqrt(3)


@pytest.mark.parametrize("width", [1, 3])
def test_the_noise_has_the_deviation_that_was_priced(width: int) -> None:
    """False alarms: 1e-6 for each width. Control: noise without the bound sqrt(3) on a vector is caught."""
    draws, vectors = 4000, np.full((5, width), 0.5)
    rng = random.Random(1)
    off = np.array([noisy(Contributions(vectors, 64, 5.0), 2.0, rng).sums for _ in range(draws)]) - 2.5

    def is_caught(deviation: float) -> bool:
        low, high = chi2.ppf([5e-7, 1 - 5e-7], off.size)
        return not low <= float((off**2).sum()) / deviation**2 <= high

    assert not is_caught(2.0 * math.sqrt(width))
    assert is_caught(2.0 * math.sqrt(3 if width == 1 else 1))


def test_sums_are_on_a_grid_and_vectors_within_their_bound() -> None:
    released = noisy(Contributions(np.full((3, 3), 0.1), 64, 5.0), 2.0, random.Random(0))
    assert all(float(one * 2**30).is_integer() for one in released.sums)
    with pytest.raises(ValueError, match="coordinates"):
        noisy(Contributions(np.full((3, 3), 1.1), 64, 5.0), 2.0, random.Random(0))


def test_intervals_have_the_exact_number_in_95_of_100_draws() -> None:
    """2,000 draws; fewer than 1,850 inside have probability below 1e-6 if the interval keeps its word."""
    vectors = np.tile([0.2, 0.6, 0.3], (500, 1))
    exact = math.exp(5.0 * 0.2 / 0.6)
    rng = random.Random(2)
    found = [noisy(Contributions(vectors, 64, 5.0), 3.0, rng) for _ in range(2000)]
    assert sum(one.perplexity.low <= exact <= one.perplexity.high for one in found) >= 1850
    assert sum(one.accuracy.low <= 0.5 <= one.accuracy.high for one in found) >= 1850
    assert all(one.perplexity.low <= one.perplexity.value <= one.perplexity.high for one in found)
    errors = [noisy(Contributions(np.eye(100)[:, :1]), 3.0, rng) for _ in range(2000)]
    assert sum(one.error_rate.low <= 0.01 <= one.error_rate.high for one in errors) >= 1850
    drowned = ReleasedUtility(5, 3.0, 64, 5.0, (-9.0, -4.0, 9.0))
    assert drowned.perplexity.value == 1.0 == drowned.perplexity.low
    assert drowned.perplexity.high <= math.exp(5.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    settings = experiment(write_corpus(folder, 30), "plain", mode="release", **SMALL)
    train(settings, folder / "run", quiet)
    return folder / "run"


def test_a_run_releases_its_utility_once(finished: Path) -> None:
    """Catches fresh noise on every resumption, which would wear the noise away; also a run without a claim pays."""
    run = RunFolder.view(finished)
    before = run.path(ReleaseFile.UTILITY).read_bytes()
    guarantee = resume(finished, quiet).guarantee
    assert run.path(ReleaseFile.UTILITY).read_bytes() == before
    assert read_entries(run.path(ReleaseFile.LEDGER)).charges()[STEP] == 1
    assert "Utility was measured with (1, " in guarantee.sentence()
    assert "-differential privacy for each held-out record." in guarantee.sentence()


def test_a_release_that_a_crash_took_is_counted_all_the_same(finished: Path) -> None:
    run = RunFolder.view(finished)
    before = run.path(ReleaseFile.UTILITY).read_bytes()
    for lost in (ReleaseFile.UTILITY, ReleaseFile.GUARANTEE, ReleaseFile.MANIFEST):  # charged, and not yet written
        run.path(lost).unlink()
    twice = resume(finished, quiet).guarantee.utility
    assert run.path(ReleaseFile.UTILITY).read_bytes() != before
    spent = read_entries(run.path(ReleaseFile.LEDGER)).compositions()[HELD_OUT]
    assert twice is not None
    assert twice.epsilon == pytest.approx(account(spent).epsilon(twice.delta))
    assert twice.epsilon > 1.3
    assert verify(finished).holds


def test_exact_utility_is_kept_inside(finished: Path) -> None:
    """Catches exact functions of held-out text in release/utility.json."""
    run = RunFolder.view(finished)
    exact = run.read_json(Utility, PrivateFile.UTILITY)
    released = run.read_json(ReleasedUtility, ReleaseFile.UTILITY)
    assert exact.overall.tokens > 0
    assert len(released.sums) == 3
    assert all(not float(one * LONGEST).is_integer() for one in released.sums[1:]), "counts without noise"


def test_held_out_records_that_chose_the_model_are_said_to_be_open(tmp_path: Path) -> None:
    settings = experiment(write_corpus(tmp_path, 30), "selective", eval_steps=2, **SMALL)
    guarantee = train(settings, tmp_path / "run", quiet).guarantee
    assert guarantee.utility is None
    assert "Utility was measured" not in guarantee.sentence()
    assert "held-out records, which chose the model" in guarantee.not_protected
