"""The trainer on a tiny corpus: what is executed, charged, resumed and invariant."""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from marking import prepare
from runs import PLANS, experiment, make_parts, quiet, recorded, write_corpus
from saved import release_files
from tacit.common.serialize import merged
from tacit.config.load import check_public_steps, load_config
from tacit.config.model_schema import LSTMConfig, OptimizerConfig
from tacit.config.plan_schema import PlanConfig
from tacit.data.batches import RowReader
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record, Span
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ClaimRefused, ConfigError, LedgerError, ModelError, RunError
from tacit.models.lstm import LSTM
from tacit.policies.patterns import Gold
from tacit.privacy.ledger import read_entries
from tacit.privacy.plan import Targets, View, cost
from tacit.runs.folder import RunFolder
from tacit.runs.verify import planted_canaries
from tacit.simulation.simulate import simulate
from tacit.training.optimizers import Optimizer
from tacit.training.pools import Annotation, Pools
from tacit.training.randomness import Streams
from tacit.training.stages import resume, train
from tacit.training.trainer import Trainer, TrainSettings


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def _records(secret: str) -> Iterator[Record]:
    for number in range(12):
        text = f"my code is {secret}{number}, thanks for asking {number}"
        yield Record(f"r{number}", text, spans=(Span(11, 11 + len(f"{secret}{number}"), "CODE"),))


def test_redacted_batches_never_touch_the_private_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T5: secrets are read through one accessor, and only for a full view."""
    store = prepare(_records("x"), Gold(), byte_tokenizer(), tmp_path / "store")
    monkeypatch.setattr(PreparedCorpus, "full", lambda self, row: pytest.fail("read a secret"))
    batch = RowReader(store, byte_tokenizer().end, 100).batch([0, 1], View.REDACTED, Targets.ALL)
    assert len(batch) == 2


def test_private_targets_are_exactly_the_secret_tokens(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    store = prepare(_records("xyz"), Gold(), tokenizer, tmp_path / "store")
    batch = RowReader(store, tokenizer.end, 100).batch([0], View.FULL, Targets.PRIVATE)
    counted = [int(token) for token, weight in zip(batch.targets[0], batch.weights[0], strict=True) if weight]
    assert tokenizer.decode(counted) == "xyz0"


def test_a_draw_may_be_empty_and_still_adds_noise_and_is_charged(tmp_path: Path) -> None:
    from tacit.mechanisms.build import plan

    store = prepare(_records("x"), Gold(), byte_tokenizer(), tmp_path / "store")
    words = {"mechanism": "dpsgd", "records": 12, "noise_multiplier": 1.0, "expected_batch_size": 1e-6, "steps": 2}
    planned = plan(words)
    learner = LSTM.new(LSTMConfig(byte_tokenizer().vocabulary_size, 8, 8))
    before = {name: value.detach().clone() for name, value in learner.module.named_parameters()}
    with RunFolder.create(tmp_path / "run") as run:
        for step in planned.plan.executions():
            run.ledger.declare(step.name, {str(n): cost(step, n) for n in planned.mechanism.notions()})
        reader = RowReader(store, byte_tokenizer().end, 100)
        Trainer(run, learner, planned.plan, reader, Pools(Annotation.of(store)), TrainSettings()).train(
            Streams.research(0), quiet
        )
        assert run.ledger.charges() == {"private": 2}
        assert [entry["drawn"] for entry in recorded(run)] == [0, 0]
    assert all(not torch.equal(before[name], value) for name, value in learner.module.named_parameters())


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
from tacit.config.load import load_config
from tacit.training.stages import resume, train
folder, corpus, again = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "resume"
def seen(done):
    if done.stage == "training":
        print(done.done, flush=True)
if again:
    resume(folder, seen)
else:
    plan = {"mechanism": "selective", "noise_multiplier": 1.0, "steps": 20}
    plan |= {"expected_batch_size": 8, "public_epochs": 10}
    few = {"held_out": 0.2, "max_tokens": 64, "max_full_tokens": 64}
    settings = load_config({"corpus": corpus, "mode": "research", "policy": "gold", "plan": plan, **few})
    train(settings, folder, seen)
"""


def _kill_after(arguments: list[str], lines: int) -> int:
    """Run the script, kill it with SIGKILL after it has printed this many lines; how many it printed by then."""
    with subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = 0
        for _ in process.stdout:
            printed += 1
            if printed == lines:
                time.sleep(0.01 * (lines % 3))
                process.send_signal(signal.SIGKILL)
                break
        return printed + sum(1 for _ in process.stdout)


@pytest.mark.slow
def test_a_run_killed_twice_goes_on_and_counts_everything(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    applied = _kill_after([str(folder), str(corpus), "train"], 12)
    applied += _kill_after([str(folder), str(corpus), "resume"], 17)
    last: list[int] = []
    result = resume(folder, lambda done: last.append(done.done) if done.stage == "training" else None)
    applied += len(last)
    total = sum(result.planned.plan.executions().values())
    charges = read_entries(folder / "release" / "tacit" / "ledger.jsonl").charges()
    charged = sum(times for name, times in charges.items() if name != "utility")
    assert last[-1] == total
    assert applied <= charged <= applied + 2
    assert result.guarantee.figures[0].epsilon >= result.planned.guarantee.figures[0].epsilon


def test_a_finished_run_resumes_to_the_same_end(corpus: Path, tmp_path: Path) -> None:
    first = train(experiment(corpus, "selective"), tmp_path / "run", quiet)
    again = resume(tmp_path / "run", lambda done: pytest.fail("nothing was left") if done.stage == "training" else None)
    assert again.utility == first.utility
    assert again.guarantee == first.guarantee


def test_resume_without_the_ledger_is_refused(corpus: Path, tmp_path: Path) -> None:
    train(experiment(corpus, "dpsgd"), tmp_path / "run", quiet)
    (tmp_path / "run" / "release" / "tacit" / "ledger.jsonl").unlink()
    with pytest.raises(RunError, match=r"ledger\.jsonl is missing"):
        resume(tmp_path / "run", quiet)
    (tmp_path / "run" / "release" / "tacit" / "manifest.json").unlink()  # as of a run that was stopped
    with pytest.raises(LedgerError):
        resume(tmp_path / "run", quiet)


def test_a_vocabulary_that_would_break_the_claim_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ClaimRefused, match="tokenizer"):
        train(experiment(corpus, "dpsgd", tokenizer="bpe", vocabulary_size=300), tmp_path / "a", quiet)
    train(experiment(corpus, "redaction", tokenizer="bpe", vocabulary_size=300), tmp_path / "b", quiet)


@pytest.mark.parametrize(
    "ignored",
    [
        {"vocabulary_size": 300},
        {"vocabulary_corpus": "p.jsonl"},
        {"mode": "release", "seed": 1},
        {"lora": {"rank": 2}},
        {"early_stopping_patience": 2},
        {"conservative_policy": "digits"},
        {"entity_kinds": ["NAME"]},
        {"user_source": "documents"},
        {"precision": "bfloat16"},
        {"tokenizer": "model"},
        {"model": "some/folder", "model_config": {"layers": 2}},
        {"model_config": {"heads": 2}},
    ],
)
def test_settings_that_would_be_ignored_are_refused(ignored: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        train(experiment(corpus, "dpsgd", **ignored), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        {"model_config": {"dropout": 0.2}},
        {"model_config": {"embedding_dropout": 0.1}},
        {"model_config": {"weight_drop": 0.5}},
        {"model": "gpt", "lora": {"rank": 2, "dropout": 0.1}},
        {"model": "gpt", "precision": "bfloat16"},
    ],
    ids=["dropout", "embedding", "weights", "adapters", "precision"],
)
def test_dropouts_and_bfloat16_need_public_steps(words: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    """Catches masks that rows of a private draw share, and settings that would be ignored."""
    for mechanism in ("dpsgd", "user"):
        with pytest.raises(ConfigError, match="no dropout and compute in float32"):
            train(experiment(corpus, mechanism, **words), tmp_path / mechanism, quiet)
    parts = make_parts(tmp_path, simulate("customersim", 9), {"mechanism": "selective", **PLANS["selective"]})
    check_public_steps(experiment(corpus, "selective", **words), parts.mechanism.plan())


def test_a_shape_that_cannot_be_is_refused_before_anything_is_prepared(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="heads divide"):
        train(experiment(corpus, "dpsgd", model="gpt", model_config={"width": 16, "heads": 3}), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


def test_a_model_the_fast_path_gets_wrong_takes_the_slow_one(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: LSTM, tokens: torch.Tensor) -> torch.Tensor:
        return logits(self, tokens) + self.module.get_parameter("head.weight")[:, 0]  # a use that no layer shows

    logits = LSTM.logits
    monkeypatch.setattr(LSTM, "logits", broken)
    train(experiment(corpus, "dpsgd"), tmp_path / "run", quiet)
    assert "by method rows" in caplog.text


def test_algorithm_1_needs_the_lstm(corpus: Path, tmp_path: Path) -> None:
    settings = experiment(
        corpus, "selective-published", model="gpt", model_config={"width": 16, "layers": 1, "heads": 1}
    )
    with pytest.raises(ClaimRefused, match="states of an lstm"):
        train(settings, tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


def test_a_hash_of_secrets_is_released_only_where_entities_are_public(corpus: Path, tmp_path: Path) -> None:
    """A hash of few possible values tells the value, and no noise covers it."""
    for mechanism in ("selective", "crt"):
        result = train(experiment(corpus, mechanism), tmp_path / mechanism, quiet)
        assert result.guarantee.evidence.entity_list_hash is None
    assert train(experiment(corpus, "uedp"), tmp_path / "uedp", quiet).guarantee.evidence.entity_list_hash


def test_no_secret_is_in_release(corpus: Path, tmp_path: Path) -> None:
    train(experiment(corpus, "selective"), tmp_path / "run", quiet)
    released = b"".join(file.read_bytes() for file in (tmp_path / "run" / "release").rglob("*") if file.is_file())
    for record in simulate("customersim", 60):
        for span in record.spans or ():
            secret = record.text[span.start : span.end].encode()
            assert len(secret) < 5 or secret not in released


def test_settings_from_a_file_with_words_over_them(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("corpus: c.jsonl\nplan: {mechanism: dpsgd, epsilon: 2}\nmodel: gpt\n")
    settings = load_config(file, {"plan": {"epsilon": 3}, "seed": 5})
    assert settings.plan == PlanConfig("dpsgd", epsilon=3)
    assert (settings.model, settings.seed) == ("gpt", 5)
    assert merged({"corpus": "a"}, {"corpus": "b"}) == {"corpus": "b"}
    file.write_text("corpus: c.jsonl\nplan: {}\nmodle: gpt\n")
    with pytest.raises(ConfigError, match="model"):
        load_config(file)


def _adam_by_torch(gradients: list[torch.Tensor], settings: OptimizerConfig) -> torch.Tensor:
    value = torch.zeros(5, requires_grad=True)
    optimizer = torch.optim.Adam([value], lr=settings.rate(0, 1))
    for gradient in gradients:
        value.grad = gradient.clone()
        optimizer.step()
    return value.detach()


def test_adam_without_noise_is_adam() -> None:
    settings = OptimizerConfig("adam", 0.1, lr_scheduler="none")
    gradients = [torch.randn(5, generator=torch.Generator().manual_seed(k)) for k in range(6)]
    ours, optimizer = {"w": torch.zeros(5)}, Optimizer(settings, 6)
    for gradient in gradients:
        optimizer.apply(ours, {"w": gradient})
    assert torch.allclose(ours["w"], _adam_by_torch(gradients, settings), atol=1e-6)


def test_adam_takes_the_variance_of_the_noise_off() -> None:
    """A signal of .01 under noise of deviation 1: corrected steps are about 1 / sqrt(.1) times the uncorrected ones."""
    corrected, plain = {"w": torch.zeros(20_000)}, {"w": torch.zeros(20_000)}
    generator = torch.Generator().manual_seed(0)
    settings = OptimizerConfig("adam", 0.1, lr_scheduler="none")
    for deviation, values in ((1.0, corrected), (0.0, plain)):
        optimizer = Optimizer(settings, 300)
        generator.manual_seed(0)
        for _ in range(300):
            optimizer.apply(values, {"w": 0.01 + torch.randn(20_000, generator=generator)}, deviation)
    assert float(corrected["w"].abs().mean() / plain["w"].abs().mean()) > 1.5


def test_an_optimizer_goes_on_where_it_stood() -> None:
    gradients = [torch.randn(4, generator=torch.Generator().manual_seed(k)) for k in range(8)]
    whole, halves = {"w": torch.zeros(4)}, {"w": torch.zeros(4)}
    settings = OptimizerConfig("adam", 0.1, warmup_steps=3, max_grad_norm=0.5)
    first, second = Optimizer(settings, 8), Optimizer(settings, 8)
    straight = Optimizer(settings, 8)
    for number, gradient in enumerate(gradients):
        straight.apply(whole, {"w": gradient})
        if number == 4:
            second.restore({name: value.clone() for name, value in first.state().items()})
        (first if number < 4 else second).apply(halves, {"w": gradient})
    assert torch.equal(whole["w"], halves["w"])


def test_a_corpus_that_leaves_nobody_to_measure_with_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_jsonl((replace(record, user="b") for record in simulate("customersim", 5)), corpus)
    with pytest.raises(ConfigError, match="at least one held-out record"):
        train(experiment(corpus, "plain"), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mechanism", ["dpsgd", "user", "uedp", "cadp"])
def test_one_record_never_decides_about_another(mechanism: str, corpus: Path, tmp_path: Path) -> None:
    """With the full text, leaving equal redacted texts out is a replacement, and it was priced as a removal."""
    with pytest.raises(ClaimRefused, match="lets one record decide about another"):
        train(experiment(corpus, mechanism, duplicates="exact"), tmp_path / "run", quiet)


def test_a_record_may_be_a_turn_and_the_guarantee_says_so(corpus: Path, tmp_path: Path) -> None:
    result = train(experiment(corpus, "dpsgd", segment_by="turn"), tmp_path / "run", quiet)
    assert "A record is one turn of a dialog." in result.guarantee.sentence()
    assert "Users:" not in result.guarantee.sentence()
    rows = PreparedCorpus(tmp_path / "run" / "private" / "prepared")
    assert all(rows.record_id(row).count("/") == 1 for row in range(len(rows)))


def test_canaries_are_planted_by_their_coins_and_their_values_stay_private(corpus: Path, tmp_path: Path) -> None:
    plans = [{"template": "My ID is {6 digits}", "count": 8, "repetitions": 3}]
    train(experiment(corpus, "redaction", canaries=plans), tmp_path / "run", quiet)
    (planted,) = planted_canaries(RunFolder.view(tmp_path / "run")).planted
    rows = PreparedCorpus(tmp_path / "run" / "private" / "prepared")
    names = Counter(rows.record_id(row).split("/")[0] for row in range(len(rows)))
    assert {one.id: names[one.id] for one in planted.canaries} == {c.id: 3 * c.inside for c in planted.canaries}
    assert 0 < sum(canary.inside for canary in planted.canaries) < 8
    released = b"".join(path.read_bytes() for path in release_files(tmp_path / "run" / "release"))
    assert not any(canary.value.encode() in released for canary in planted.canaries)


def test_a_text_that_was_cut_is_the_user_of_its_pieces_and_the_guarantee_says_so(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_jsonl((replace(record, user=None) for record in simulate("customersim", 20)), corpus)
    result = train(experiment(corpus, "user", segment_by="turn", user_source="given"), tmp_path / "run", quiet)
    assert "Users: as the corpus names them; where it names none, the text that the" in result.guarantee.sentence()
    rows = PreparedCorpus(tmp_path / "run" / "private" / "prepared")
    texts = {rows.record_id(row).split("/")[0]: int(rows.users[row]) for row in range(len(rows))}
    assert len(set(texts.values())) == len(texts) < len(rows)
    with pytest.raises(ConfigError, match="documents that are not cut"):
        train(experiment(corpus, "user", segment_by="turn", user_source="documents"), tmp_path / "other", quiet)


@pytest.mark.parametrize("mechanism", ["crt", "dpsgd", "user", "uedp", "cadp", "redaction"])
def test_doubtful_duplicates_need_a_policy_that_doubts(mechanism: str, corpus: Path, tmp_path: Path) -> None:
    """Which `crt` alone may have, so that nothing else can ask for them."""
    with pytest.raises(ConfigError, match="a conservative policy"):
        train(experiment(corpus, mechanism, duplicates="doubtful", conservative_policy=None), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()
