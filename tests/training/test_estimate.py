"""How long training takes is said before a first step that is slow, and changes nothing in the run."""

from pathlib import Path
from typing import Any

import pytest
import torch

from families import CAUSAL
from runs import experiment, quiet, write_corpus
from saved import save_pretrained
from tacit.common.progress import Progress
from tacit.data.batches import PADDING, Examples, LabeledBatch, TextBatch
from tacit.errors import ModelError
from tacit.models.causal_lm import CausalLM
from tacit.privacy.plan import Step
from tacit.training import estimate
from tacit.training.stages import train
from tacit.training.updates import Updates

SECONDS_PER_ROW = 20.0


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


class Clock:
    """Time that passes with the rows that are timed, and with nothing else."""

    def __init__(self) -> None:
        self.now, self.rows = 0.0, list[int]()

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made, carry_out = Clock(), estimate._carry_out

    def slow(updates: Updates, step: Step, batch: Examples) -> None:
        carry_out(updates, step, batch)
        made.rows.append(len(batch))
        made.now += SECONDS_PER_ROW * len(batch)

    monkeypatch.setattr(estimate, "time", made)
    monkeypatch.setattr(estimate, "_carry_out", slow)
    return made


def events(corpus: Path, run: Path, mechanism: str, **more: Any) -> list[Progress]:  # noqa: ANN401
    seen: list[Progress] = []
    train(experiment(corpus, mechanism, **more), run, seen.append)
    return seen


def test_steps_times_rows_times_seconds_are_said_before_the_first_step(
    corpus: Path, tmp_path: Path, clock: Clock
) -> None:
    seen = events(corpus, tmp_path / "run", "plain")
    steps = [one for one in seen if one.stage == "training"]
    (said,) = [one for one in seen if one.stage == "estimating"]
    assert seen.index(said) == seen.index(steps[0]) - 1
    assert clock.rows == [1], "one row that takes a while is enough"
    assert said.seconds is not None
    per_step = said.seconds / SECONDS_PER_ROW / len(steps)
    assert per_step == int(per_step) > 1
    assert said.done == 1


@pytest.mark.parametrize("mechanism", ["dpsgd", "user", "cadp-published", "uedp-published"])
def test_every_kind_of_draw_has_an_estimate(corpus: Path, tmp_path: Path, clock: Clock, mechanism: str) -> None:
    said = [one.seconds for one in events(corpus, tmp_path / "run", mechanism) if one.stage == "estimating"]
    assert len(said) == 1
    assert said[0] is not None
    assert said[0] >= 2 * SECONDS_PER_ROW


def test_a_quick_step_speaks_for_itself(corpus: Path, tmp_path: Path) -> None:
    assert "estimating" not in {one.stage for one in events(corpus, tmp_path / "run", "dpsgd")}


def test_the_run_is_the_same_with_an_estimate_and_without(
    corpus: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(corpus, tmp_path / "one", "selective")
    monkeypatch.setattr("tacit.training.trainer.estimated", lambda *_: None)
    events(corpus, tmp_path / "two", "selective")
    assert clock.rows
    one, two = (tmp_path / name / "release" / "model.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_rows_are_as_long_and_nobodys() -> None:
    text = TextBatch.of_rows([[7] * 300, [7] * 20])
    made = estimate.made_up(text, 1000)
    assert isinstance(made, TextBatch)
    assert torch.equal(made.weights, text.weights)
    assert (made.tokens == 7).float().mean() < 0.1
    labeled = LabeledBatch.of_rows([[7] * 300, [7] * 20], [1, 2])
    made_up = estimate.made_up(labeled, 1000)
    assert torch.equal(made_up.inputs == PADDING, labeled.inputs == PADDING)
    assert (made_up.inputs == 7).float().mean() < 0.1
    assert not made_up.targets.any()


def test_activations_that_no_gradient_would_read_are_refused(corpus: Path, tmp_path: Path) -> None:
    """A model that caps its scores takes gradients by another method: nothing kept would be used."""
    (capped,) = [family for family in CAUSAL if family.name == "Gemma 2"]
    sizes = {**capped.config, "vocab_size": 300, "num_hidden_layers": 2, "max_position_embeddings": 80}
    save_pretrained(CausalLM.described(sizes, None), tmp_path / "capped")
    lora = {"rank": 2, "layers_to_transform": [1]}
    words: dict[str, Any] = {"model": str(tmp_path / "capped"), "tokenizer": "bytes", "lora": lora}
    with pytest.raises(ModelError, match=r"one whose gradients need the method layers.*cache_activations_gb out"):
        train(experiment(corpus, "dpsgd", **words, cache_activations_gb=0.01), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()
    train(experiment(corpus, "dpsgd", **words), tmp_path / "run", quiet)
