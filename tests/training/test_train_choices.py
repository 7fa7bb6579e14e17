"""What a person may choose beside the mechanism: model, what moves, clipping, when to stop, logs, and interrupting."""

import math
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from runs import recorded
from saved import save_pretrained, save_tokenizer
from tacit.common.progress import Progress
from tacit.config.load import load_config
from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig
from tacit.config.plan_schema import PlanConfig
from tacit.config.schema import Config
from tacit.data.corpus import write_jsonl
from tacit.errors import ClaimRefused, ConfigError, RunError, TacitError
from tacit.models.causal_lm import CausalLM
from tacit.models.english_lstm import english_lstm
from tacit.models.loading import load
from tacit.models.lstm import LSTM
from tacit.privacy.guarantee import Status
from tacit.privacy.plan import TrainablePart
from tacit.runs.folder import RunFolder
from tacit.simulation.simulate import simulate
from tacit.training.checkpoints import Checkpoints
from tacit.training.stages import resume, train
from tacit.training.trainer import Choice
from tacit.training.updates import moving_names

TINY: dict[str, Any] = {"mode": "research", "policy": "gold", "held_out": 0.2, "max_tokens": 64, "max_full_tokens": 60}
SELECTIVE: dict[str, Any] = {
    "mechanism": "selective",
    "noise_multiplier": 1.0,
    "steps": 3,
    "expected_batch_size": 8,
    "public_epochs": 1,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    write_jsonl(simulate("customersim", 60), path)
    return path


def experiment(corpus: Path, plan: dict[str, Any] | None = None, **more: Any) -> Config:  # noqa: ANN401
    return load_config({"corpus": str(corpus), "plan": {**SELECTIVE, **(plan or {})}, **TINY, **more})


def quiet(_: object) -> None:
    """Watches nothing."""


@pytest.fixture(scope="module")
def gpt_folder(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """A small pretrained model as others publish it: weights, configuration, tokenizer.json."""
    folder = tmp_path_factory.mktemp("gpt")
    save_tokenizer((record.text for record in simulate("customersim", 50, seed=9)), 300, folder)
    save_pretrained(CausalLM.new(CausalLMConfig(300, 32, 1, 2, 64)), folder)
    return folder


MODELS: dict[str, dict[str, Any]] = {
    "lstm of two tied layers": {"model_config": {"layers": 2, "hidden_size": 20, "embedding_size": 16, "tied": True}},
    "gpt": {"model": "gpt", "model_config": {"width": 32, "layers": 1, "heads": 2}},
    "gpt with adapters": {"model": "gpt", "model_config": {"width": 32, "layers": 1, "heads": 2}, "lora": {"rank": 2}},
    "gpt in bfloat16": {
        "model": "gpt",
        "model_config": {"width": 32, "layers": 1, "heads": 2},
        "precision": "bfloat16",
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_models_train_resume_and_load(name: str, corpus: Path, tmp_path: Path) -> None:
    first = train(experiment(corpus, **MODELS[name]), tmp_path / "run", quiet)
    assert math.isfinite(first.utility.overall.perplexity)
    assert resume(tmp_path / "run", quiet).utility == first.utility
    learner, tokenizer = load(tmp_path / "run")
    trained = torch.tensor([[tokenizer.end, *tokenizer.encode("hello")]])
    assert torch.isfinite(learner.begin(trained).next_log_probabilities).all()


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_a_folder_is_fine_tuned_with_its_own_tokenizer(
    lora: dict[str, int] | None, gpt_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    settings = experiment(corpus, model=str(gpt_folder), **({"lora": lora} if lora else {}))
    conditions = train(settings, tmp_path / "run", quiet).guarantee.holds_if
    assert [one.status for one in conditions if "base model was not trained on this" in one.text] == [Status.ASSUMED]
    before = CausalLM.from_folder(gpt_folder).module.state_dict()
    learner, tokenizer = load(tmp_path / "run")
    assert tokenizer.codec.size == 300
    after = learner.module.state_dict()
    name = "transformer.h.0.mlp.c_fc.weight"
    if lora is None:
        assert not torch.equal(after[name], before[name])
    else:
        assert torch.equal(after[name.replace("c_fc.", "c_fc.base_layer.")], before[name])
        assert after["transformer.h.0.mlp.c_fc.lora_B.default.weight"].abs().sum() > 0
        resumed = Checkpoints(RunFolder.view(tmp_path / "run")).latest()
        assert resumed is not None
        assert all(".lora_" in name for name in resumed.checkpoint.model)
        kept = [*(tmp_path / "run" / "release").glob("*.safetensors")]
        kept += (tmp_path / "run" / "private" / "checkpoints").rglob("*.safetensors")
        assert sum(file.stat().st_size for file in kept) < (gpt_folder / "model.safetensors").stat().st_size


@pytest.mark.parametrize("proof", ["tacit/ledger.jsonl", "tacit/guarantee.json", "release/tacit/ledger.jsonl"])
def test_what_is_left_of_a_run_is_no_model_from_elsewhere(
    proof: str, gpt_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    """Catches a second training of one corpus whose claim forgets what the first one spent."""
    shutil.copytree(gpt_folder, tmp_path / "base")
    (tmp_path / "base" / proof).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "base" / proof).touch()
    with pytest.raises(RunError, match=r"a finished run to begin with|a run folder at|model\.json"):
        train(experiment(corpus, model=str(tmp_path / "base")), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_reads_too_little_is_refused(gpt_folder: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_full_tokens: 62"):
        train(experiment(corpus, model=str(gpt_folder), max_full_tokens=100), tmp_path / "run", quiet)


@pytest.mark.parametrize("shape", [{"width": 20}, {"layers": 0}, {"layers": "two"}])
def test_a_shape_that_makes_no_model_is_refused(shape: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(TacitError, match=r"shape|layers"):
        train(experiment(corpus, model_config=shape), tmp_path / "run", quiet)


@pytest.mark.parametrize(
    ("moves", "expected"),
    [("all", {"embedding", "layers", "head"}), ("head", {"head"}), ("biases", {"layers", "head"})],
)
def test_private_steps_move_what_they_are_told(moves: TrainablePart, expected: set[str]) -> None:
    learner = LSTM.new(LSTMConfig(20))
    assert {name.split(".")[0] for name in moving_names(learner, moves)} == expected


def test_adapters_are_refused_where_there_are_none() -> None:
    with pytest.raises(ConfigError, match="adapters to train"):
        moving_names(LSTM.new(LSTMConfig(20)), "adapters")
    assert len(moving_names(CausalLM.new(CausalLMConfig(20, 16, 1, 2, 16), LoRAConfig(2)), "adapters")) == 8


def test_only_what_moves_is_moved(corpus: Path, tmp_path: Path) -> None:
    words = {"trainable": "head", "public_epochs": 0, "clip_style": "automatic"}
    train(experiment(corpus, words), tmp_path / "moved", quiet)
    moved, _ = load(tmp_path / "moved")
    fresh = english_lstm(LSTM.new(LSTMConfig(moved.vocabulary_size))).module.state_dict()
    changed = {name for name, value in moved.module.state_dict().items() if not torch.equal(value, fresh[name])}
    assert changed == {"head.weight", "head.bias"}


@pytest.mark.parametrize("style", ["flat", "automatic", "per parameter"])
def test_every_style_of_clipping_has_the_same_price(style: str, corpus: Path, tmp_path: Path) -> None:
    result = train(experiment(corpus, {"clip_style": style}), tmp_path / "run", quiet)
    flat = experiment(corpus).plan
    assert result.guarantee.figures[0].epsilon == pytest.approx(_epsilon(flat, result), rel=1e-9)


def _epsilon(asked: PlanConfig, result: Any) -> float:  # noqa: ANN401
    from tacit.mechanisms.build import plan

    private = result.planned.mechanism.private
    counts = {"records": private.population, "secret_records": private.population}
    return plan({"plan": asked, **counts}).guarantee.figures[0].epsilon


def test_the_best_model_on_public_text_is_kept_and_the_whole_plan_is_paid(corpus: Path, tmp_path: Path) -> None:
    words = {"public_epochs": 40, "steps": 40}
    settings = experiment(
        corpus,
        words,
        eval_steps=2,
        early_stopping_patience=2,
        public={"optimizer": "sgd", "learning_rate": 0.1, "lr_scheduler": "none"},
        private={"optimizer": "sgd", "learning_rate": 1e9, "lr_scheduler": "none"},  # ruins the model
    )
    result = train(settings, tmp_path / "run", quiet)
    done = RunFolder.view(tmp_path / "run")
    charged = sum(line["noise"] >= 0 for line in recorded(done))
    assert 0 < charged < 40, "it did not stop early"
    assert result.guarantee.figures == result.planned.guarantee.figures, "stopping early is no discount"
    assert all(torch.isfinite(value).all() for value in load(tmp_path / "run")[0].module.state_dict().values())


@pytest.mark.parametrize(("mechanism", "on"), [("dpsgd", "redacted"), ("dpsgd", "full"), ("selective", "full")])
def test_a_choice_on_protected_text_is_refused(mechanism: str, on: str, corpus: Path, tmp_path: Path) -> None:
    plan = {key: value for key, value in SELECTIVE.items() if mechanism == "selective" or key != "public_epochs"}
    settings = load_config(
        {"corpus": str(corpus), "plan": {**plan, "mechanism": mechanism}, "eval_steps": 1, "eval_on": on, **TINY}
    )
    with pytest.raises(ClaimRefused, match="chosen on public text"):
        train(settings, tmp_path / "run", quiet)


def test_a_choice_on_a_public_corpus_is_allowed_under_every_claim(corpus: Path, tmp_path: Path) -> None:
    public = tmp_path / "public.jsonl"
    write_jsonl(simulate("customersim", 10, seed=5), public)
    plan = {"mechanism": "dpsgd", "noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8}
    settings = load_config({"corpus": str(corpus), "plan": plan, "eval_steps": 1, "eval_on": str(public), **TINY})
    assert train(settings, tmp_path / "run", quiet).guarantee.figures


@pytest.mark.parametrize("mechanism", ["selective", "dpsgd", "plain"])
def test_exact_losses_go_to_private_files_alone(mechanism: str, corpus: Path, tmp_path: Path) -> None:
    """Event files have the losses of public steps; nothing that leaves has one, whatever the mechanism."""
    seen: list[Progress] = []
    plans = {
        "selective": SELECTIVE,
        "dpsgd": {**SELECTIVE, "mechanism": "dpsgd", "public_epochs": None},
        "plain": {"mechanism": "plain", "public_epochs": 1},
    }
    settings = {"corpus": str(corpus), "plan": plans[mechanism], "report_to": "tensorboard", **TINY}
    train(load_config(settings), tmp_path / "run", seen.append)
    run = RunFolder.view(tmp_path / "run")
    (events,) = (tmp_path / "run").rglob("*tfevents*")
    assert events.is_relative_to(tmp_path / "run" / "private")
    public = [done.public_loss for done in seen if done.public_loss is not None]
    private = [line["loss"] for line in recorded(run)] if mechanism != "plain" else []
    assert (bool(public), bool(private)) == (mechanism != "dpsgd", mechanism != "plain")
    shown = events.read_bytes()
    assert (b"public_loss" in shown) == bool(public)
    assert all(struct.pack("<f", loss) in shown for loss in public)
    assert not any(struct.pack("<f", loss) in shown for loss in private)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    leaving = b"".join(path.read_bytes() for path in files if not path.is_relative_to(tmp_path / "run" / "private"))
    for loss in (*public, *private):
        assert f"{loss:.8g}".encode() not in leaving
        assert struct.pack("<d", loss) not in leaving


def test_progress_tells_what_was_spent(corpus: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    result = train(experiment(corpus), tmp_path / "run", seen.append)
    assert {done.stage for done in seen} == {"training", "measuring"}
    last = [done for done in seen if done.stage == "training"][-1]
    assert last.epsilon == pytest.approx(result.guarantee.figures[0].epsilon, rel=0.02)


def test_an_interrupt_leaves_a_checkpoint_of_the_last_step(corpus: Path, tmp_path: Path) -> None:
    def stop(done: Progress) -> None:
        if done.stage == "training" and done.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(experiment(corpus), tmp_path / "run", stop)
    with RunFolder.open(tmp_path / "run") as run:
        resumed = Checkpoints(run).latest()
    assert resumed is not None
    assert resumed.checkpoint.step == 2
    seen: list[Progress] = []
    resume(tmp_path / "run", seen.append)
    assert min(done.done for done in seen if done.stage == "training") == 3


def test_ctrl_c_checkpoints_and_says_how_to_go_on(corpus: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from tacit.cli.main import main; main()",
        "train",
        str(corpus),
        "--policy",
        "gold",
    ]
    command += ["--mechanism", "plain", "--set", "plan.public_epochs=1000", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("training"):
                process.send_signal(signal.SIGINT)
                break
        said += list(process.stderr)
    assert process.returncode == 130
    assert f"tacit train --resume {tmp_path / 'run'}" in "".join(said).replace("\n", "")
    with RunFolder.open(tmp_path / "run") as run:
        assert Checkpoints(run).latest() is not None


def test_a_run_that_never_began_says_so(corpus: Path, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run").close()
    with pytest.raises(RunError, match="train again with the same --out"):
        resume(tmp_path / "run", quiet)


def test_a_resumed_choice_does_not_look_twice(tmp_path: Path) -> None:
    looks: list[int] = []
    with RunFolder.create(tmp_path / "run") as run:
        for after in (0, 4):  # the second time the run goes on from an older checkpoint
            choice = Choice(run, 2, 9, lambda: 1.0)
            for step in range(after // 2 + 1, 7):
                before = choice.looked
                choice.look(step, {"weight": torch.full((1,), float(step))})
                looks += [step] if choice.looked != before else []
    assert looks == [2, 4, 6]
