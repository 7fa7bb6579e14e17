"""Noise that is half of what was priced is caught in whole runs, by text canaries alone; honest noise is not.

Smaller audits cannot do it: an ideal attacker needs between 1,000 and 2,000 canaries (test below), so this test plants
3,000. Each is a token of its own, four times. Their score is how far training moved along a canary's gradient, in the
rows of its token: their loss, the score of `tacit audit`, shows next to nothing here.
"""

import random
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from scipy import special
from tokenizers import models

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from canary_bounds import along_gradients
from runs import quiet
from tacit.audits.epsilon_bounds import one_run_bound
from tacit.audits.ideal import epsilon_of, mu_of
from tacit.audits.statistics import Scores, judged
from tacit.audits.target import Target
from tacit.config.load import load_config
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record
from tacit.data.tokenizer import bare_bpe
from tacit.privacy.profile import GaussianLaw
from tacit.runs.folder import RunFolder
from tacit.runs.weights import kept_models
from tacit.training.randomness import NoiseStream
from tacit.training.stages import train

CANARIES, EPSILON = 3000, 4.0
TIMES = 4
SETTINGS = {
    "mode": "research",
    "policy": "digits",
    "max_tokens": 16,
    "max_full_tokens": 16,
    "save_steps": 1,
    "model_config": {"hidden_size": 64, "embedding_size": 64, "dropout": 0.0},
    "private": {"optimizer": "sgd", "learning_rate": 0.05, "lr_scheduler": "none"},
    "plan": {"mechanism": "dpsgd", "epsilon": EPSILON, "steps": 16, "expected_batch_size": 1377},
}


def rare_tokens(path: Path) -> list[str]:
    """A byte-level tokenizer with thousands of tokens of four letters; and words that are one of them, repeated."""
    bare = bare_bpe(models.BPE())
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = ["".join(pair) for pair in product(letters, repeat=2)]
    fours = random.Random(0).sample(list(product(pairs, repeat=2)), 14_000)
    merges = [*((pair[0], pair[1]) for pair in pairs), *((one, other) for one, other in fours)]
    known = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    numbers = {token: number for number, token in enumerate(known)}
    bare.model = models.BPE(vocab=numbers, merges=merges)
    bare.save(str(path))
    words = ("".join(four) for four in fours)
    return [word * TIMES for word in words if bare.encode(word * TIMES).ids == [numbers[word]] * TIMES]


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("broken", [True, False])
def test_halved_noise_contradicts_the_claim(broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarm of the honest run: 5 %."""
    if broken:
        add = NoiseStream.add_
        monkeypatch.setattr(NoiseStream, "add_", lambda stream, sums, deviation: add(stream, sums, 0.5 * deviation))
    words = rare_tokens(tmp_path / "tokenizer.json")[: 2 * CANARIES]
    write_jsonl(
        (Record(f"r{number}", "aa bb cc aa bb cc", f"u{number}", None, ()) for number in range(60)),
        tmp_path / "c.jsonl",
    )
    canaries = [{"template": "{word}", "count": CANARIES, "known": False, "words": words}]
    given = {"corpus": str(tmp_path / "c.jsonl"), "tokenizer": str(tmp_path / "tokenizer.json"), "canaries": canaries}
    train(load_config({**SETTINGS, **given}), tmp_path / "run", quiet)
    run = RunFolder.view(tmp_path / "run")
    target = Target.of(run)
    last = {name: value.clone() for name, value in target.learner.module.state_dict().items()}
    target.learner.module.load_state_dict(kept_models(run)[0].tensors(), strict=False)
    inside = {canary.id: canary.inside for canary in target.planted[0].canaries}
    (figure,) = target.guarantee.figures
    bound = one_run_bound(judged(Scores(along_gradients(target, last)), inside), figure.delta)
    assert bound.refutes(((figure.epsilon, figure.delta), *figure.profile)) is broken
    assert bound.epsilon > 1  # it sees something in either case


@pytest.mark.parametrize(("canaries", "shown"), [(1000, False), (2000, True)])
def test_what_an_ideal_attacker_needs(canaries: int, shown: bool) -> None:
    """At epsilon 4 with half the noise; and never a contradiction with all of it."""
    delta, half = 1e-5, canaries // 2
    mu = mu_of(EPSILON, delta)
    epsilons = np.linspace(0, epsilon_of(mu, delta), 12)
    profile = list(zip(epsilons.tolist(), GaussianLaw(mu).deltas(epsilons).tolist(), strict=True))
    quantiles = special.ndtri((np.arange(half) + 0.5) / half)
    inside = {f"{side}-{number}": side == "in" for side in ("in", "out") for number in range(half)}
    for shift, refuted in ((mu, False), (2 * mu, shown)):
        scores = Scores.of(list(inside), [*(quantiles + shift), *quantiles])
        assert one_run_bound(judged(scores, inside), delta).refutes(profile) is refuted
