"""`tacit.PrivateStep`: what a private step does to a module and an optimizer of one's own, and what may be said."""

import copy
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import binom, chi2
from torch import Tensor, nn

import tacit
from oracles import ROUNDED, assert_near, in_float64, length_of, loop_over_rows, tolerance_of
from tacit.data.batches import LabeledBatch, TextBatch
from tacit.errors import ClaimRefused, ConfigError, CorpusError, GradientError, LedgerError, ModelError
from tacit.privacy.guarantee import Status
from tacit.privacy.ledger import read_entries
from tacit.training.gradients.clipped import Flat
from tacit.training.own_loop import model_of
from tacit.training.randomness import NoiseStream

VOCABULARY, CONTEXT = 29, 24
FALSE_ALARM = 1e-6  # of every statistical test below


class Window(nn.Module):
    """A network of one's own: each place sees itself and the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.hidden = nn.Linear(16, 12)
        self.head = nn.Linear(12, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        before = nn.functional.pad(embedded, (0, 0, 1, 0))[:, : tokens.shape[1]]
        logits: Tensor = self.head(torch.tanh(self.hidden(torch.cat((embedded, before), dim=2))))
        return logits


class Recurrent(nn.Module):
    """A network with a layer that no rule reads: its gradients are taken one row at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 6)
        self.gru = nn.GRU(6, 8, batch_first=True)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.gru(self.embedding(tokens))[0])
        return logits


def llama() -> nn.Module:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        attention_dropout=0.3,
    )
    module: nn.Module = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return module.train()


def adapted() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=2, lora_dropout=0.5, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
    )
    module: nn.Module = get_peft_model(llama(), lora)
    return module


MODULES: dict[str, Callable[[], nn.Module]] = {"own": Window, "gru": Recurrent, "llama": llama, "peft": adapted}


def rows(number: int = 12) -> list[list[int]]:
    chance = torch.Generator().manual_seed(number)
    return [torch.randint(VOCABULARY, (3 + index % 9,), generator=chance).tolist() for index in range(number)]


def masked(rows: list[list[int]]) -> list[dict[str, Any]]:
    """Rows in which the first half does not count."""
    return [{"input_ids": row, "labels": [-100] * (len(row) // 2) + row[len(row) // 2 :]} for row in rows]


def sgd(module: nn.Module, rate: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=rate)


def everyone(records: list[Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Settings with which every draw has all records."""
    return {"expected_batch_size": len(records), "noise_multiplier": 1.0, "steps": 3, **more}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoiseStream, "add_", lambda *_: None)


def values_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters() if value.requires_grad}


def moved(module: nn.Module, before: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: before[name] - value for name, value in values_of(module).items()}


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("mask", [False, True], ids=["all tokens", "masked"])
@pytest.mark.parametrize("kind", MODULES)
def test_a_step_is_the_clipped_sum_of_single_examples(kind: str, mask: bool, tmp_path: Path) -> None:
    module, records = MODULES[kind](), rows()
    given = masked(records) if mask else records
    counts = [[float(index >= len(row) // 2 or not mask) for index in range(1, len(row))] for row in records]
    twin = in_float64(model_of(copy.deepcopy(module)))
    wanted, norms = loop_over_rows(twin, TextBatch.of_rows(records, counts), Flat(0.5))
    assert max(norms) > 0.5, "something is clipped"
    before, modes = values_of(module), [part.training for part in module.modules()]
    with tacit.PrivateStep(
        module, sgd(module), given, ledger=tmp_path / "l", **everyone(records, clip_norm=0.5)
    ) as one:
        one.step()
    expected = {name: value / len(records) for name, value in wanted.items()}
    assert_near(moved(module, before), expected, max(ROUNDED, tolerance_of(module)))
    assert [part.training for part in module.modules()] == modes


@pytest.mark.usefixtures("without_noise")
def test_padding_with_a_mask_changes_nothing(tmp_path: Path) -> None:
    records: list[Any] = rows()
    padded: list[Any] = [
        {"input_ids": [0] * 2 + row + [0], "attention_mask": torch.tensor([0] * 2 + [1] * len(row) + [0])}
        for row in records
    ]
    ends = []
    for number, given in enumerate((records, padded)):
        torch.manual_seed(5)
        module = Window()
        with tacit.PrivateStep(module, sgd(module), given, ledger=tmp_path / str(number), **everyone(given)) as one:
            one.step()
        ends.append(values_of(module))
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("kind", MODULES)
def test_one_record_moves_a_sum_by_no_more_than_the_clip_norm(kind: str, tmp_path: Path) -> None:
    """The long record is by far the longest: leaving it empty also changes how the others are padded."""
    records: list[Any] = [*rows(5), [3] * (CONTEXT - 1)]
    worlds = [records, [*records[:5], {"input_ids": records[5], "labels": [-100] * len(records[5])}]]
    ends = []
    for number, world in enumerate(worlds):
        torch.manual_seed(5)
        module = MODULES[kind]()
        before = values_of(module)
        with tacit.PrivateStep(module, sgd(module), world, ledger=tmp_path / f"{number}", **everyone(world)) as one:
            one.step()
        ends.append({name: value.double() * len(world) for name, value in moved(module, before).items()})
    difference = length_of({name: value - ends[1][name] for name, value in ends[0].items()})
    assert 0.9 < difference <= 1 + 1e-5  # the record has a gradient longer than the clip norm, 1


def noise_of_a_step(folder: Path, batch: float, sigma: float, clip_norm: float) -> Tensor:
    """What one step adds to a large head where no record has a gradient, times the divisor."""
    module = nn.Sequential()
    module.add_module("embedding", nn.Embedding(100, 300))
    module.add_module("head", nn.Linear(300, 100))
    silent = [{"input_ids": [1, 2, 3], "labels": [-100] * 3}] * 50
    before = module.get_submodule("head").get_parameter("weight").detach().clone()
    settings: dict[str, Any] = {
        "expected_batch_size": batch,
        "noise_multiplier": sigma,
        "steps": 1,
        "clip_norm": clip_norm,
    }
    with tacit.PrivateStep(module, sgd(module), silent, ledger=folder / "noise", **settings) as one:
        one.step()
    return (module.get_submodule("head").get_parameter("weight").detach() - before).double() * batch


def has_variance(numbers: Tensor, deviation: float) -> bool:
    low, high = chi2.ppf((FALSE_ALARM / 2, 1 - FALSE_ALARM / 2), numbers.numel())
    return bool(low <= float((numbers / deviation).square().sum()) <= high)


def test_noise_has_the_deviation_that_was_priced(tmp_path: Path) -> None:
    noise = noise_of_a_step(tmp_path, batch=20.0, sigma=1.7, clip_norm=0.4)
    assert has_variance(noise, 1.7 * 0.4)
    for wrong in (1.7**2 * 0.4, 1.7 * 0.4**2, 1.7, 2 * 1.7 * 0.4, 1.7 * 0.4 * 20 / 19):
        assert not has_variance(noise, wrong)


def test_an_empty_draw_adds_noise_and_is_charged(tmp_path: Path) -> None:
    noise = noise_of_a_step(tmp_path, batch=1e-9, sigma=1.0, clip_norm=1.0)
    assert has_variance(noise, 1.0)
    assert read_entries(tmp_path / "noise").counts == {"private": 1}


def test_records_are_drawn_at_the_rate_that_was_priced(tmp_path: Path) -> None:
    module, records, steps, batch = Window(), rows(200), 60, 30.0
    settings: dict[str, Any] = {"expected_batch_size": batch, "noise_multiplier": 1.0, "steps": steps}
    with tacit.PrivateStep(module, sgd(module, 0.0), records, ledger=tmp_path / "l", **settings) as one:
        drawn = [one.step(return_private=True) for _ in range(steps)]
    sizes = [int(found["drawn"]) for found in drawn if found is not None]

    def fits(rate: float) -> bool:
        low, high = binom.ppf((FALSE_ALARM / 2, 1 - FALSE_ALARM / 2), steps * len(records), rate)
        return bool(low <= sum(sizes) <= high)

    assert fits(batch / len(records))
    assert not fits(0.8 * batch / len(records))
    assert not fits(1.2 * batch / len(records))
    assert len(set(sizes)) > 3, "draws are not of one size"


class Refusing(torch.optim.SGD):
    """Raises where others step, and remembers what the ledger said then."""

    def __init__(self, module: nn.Module, ledger: Path) -> None:
        super().__init__(module.parameters(), lr=1.0)
        self._ledger, self.seen = ledger, -1

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        self.seen = read_entries(self._ledger).counts["private"]
        raise RuntimeError("no step")


def test_a_step_is_on_the_disk_before_the_optimizer_moves(tmp_path: Path) -> None:
    module, records, ledger = Window(), rows(), tmp_path / "l"
    refusing, before = Refusing(module, ledger), values_of(module)
    with tacit.PrivateStep(module, refusing, records, ledger=ledger, **everyone(records)) as one:
        with pytest.raises(RuntimeError, match="no step"):
            one.step()
        assert (one.done, refusing.seen) == (1, 1)
    assert all(not value.any() for value in moved(module, before).values())
    with tacit.PrivateStep(module, sgd(module), records, ledger=ledger, **everyone(records)) as one:
        assert one.done == 1


def test_the_guarantee_is_that_of_the_plan(tmp_path: Path) -> None:
    module, records = Window(), rows(80)
    settings: dict[str, Any] = {"epochs": 3, "expected_batch_size": 16}
    planned = tacit.plan("dpsgd", epsilon=4, counts={"records": 80}, settings=settings)
    with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", epsilon=4, **settings) as one:
        promised = one.guarantee()
        assert (one.steps, one.done) == (15, 0)
        for _ in range(5):
            one.step()
        early = one.spent()
        for _ in range(10):
            one.step()
    assert promised.sentence() == planned.guarantee.sentence()
    assert promised.figures[0].epsilon == pytest.approx(planned.guarantee.figures[0].epsilon, rel=1e-3)
    assert one.guarantee() == promised == one.spent()
    private = planned.mechanism.private
    assert private is not None
    by_hand = {"noise_multiplier": private.noise_multiplier, "steps": 5, "expected_batch_size": 16}
    five = tacit.plan("dpsgd", counts={"records": 80}, settings=by_hand)
    assert early.figures[0].epsilon == pytest.approx(five.guarantee.figures[0].epsilon, rel=1e-3)
    assert early.figures[0].epsilon < promised.figures[0].epsilon
    texts = {one.text for one in early.holds_if if one.status == Status.ASSUMED}
    assert sum("outside private steps the loop reads no record" in text for text in texts) == 1
    assert sum("chosen before the first" in text for text in texts) == 1
    assert all(one.status != Status.UNMET for one in promised.holds_if)


def test_steps_end_with_the_plan_also_after_a_restart(tmp_path: Path) -> None:
    module, records = Window(), rows()
    for _ in range(3):
        with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records)) as one:
            one.step()
    with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records)) as one:
        before = values_of(module)
        with pytest.raises(ClaimRefused, match="3 steps that were planned"):
            one.step()
    assert one.done == 3
    assert all(not value.any() for value in moved(module, before).values())


@pytest.mark.parametrize("other", [{"noise_multiplier": 0.9}, {"expected_batch_size": 6}])
def test_a_ledger_refuses_other_prices(other: dict[str, float], tmp_path: Path) -> None:
    module, records = Window(), rows()
    settings = everyone(records)
    with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **settings) as one:
        one.step()
    with pytest.raises(LedgerError, match="price"):
        tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **{**settings, **other})
    with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **settings) as one:
        assert one.done == 1, "a refusal lets go of the ledger"


def test_a_ledger_has_one_writer(tmp_path: Path) -> None:
    module, records = Window(), rows()
    with (
        tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records)),
        pytest.raises(LedgerError, match="only writer"),
    ):
        tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records))


def test_a_copy_of_the_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches two processes that add the same noise to different sums, after a fork."""
    module = Window()
    records = rows()
    with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records)) as private:
        private.step()
        own = os.getpid()
        monkeypatch.setattr("os.getpid", lambda: own + 1)
        with pytest.raises(ClaimRefused, match="the same noise"):
            private.step()
        assert private.done == 1


def test_a_seed_repeats_and_is_told(tmp_path: Path) -> None:
    records, ends = rows(), []
    settings = everyone(records, expected_batch_size=6)
    for number, seed in enumerate((3, 3, 4, None, None)):
        torch.manual_seed(5)
        module = Window()
        with tacit.PrivateStep(
            module, sgd(module), records, ledger=tmp_path / str(number), seed=seed, **settings
        ) as one:
            one.step()
            unmet = [held for held in one.guarantee().holds_if if held.status == Status.UNMET]
            assert len(unmet) == (seed is not None)
        ends.append(torch.cat([value.flatten() for value in values_of(module).values()]))
    assert torch.equal(ends[0], ends[1])
    assert not any(torch.equal(ends[first], ends[last]) for first, last in ((0, 2), (0, 3), (3, 4)))


def test_a_ledger_remembers_that_it_was_seeded(tmp_path: Path) -> None:
    module, records = Window(), rows()
    with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", seed=1, **everyone(records)) as one:
        one.step()
    with pytest.raises(ConfigError, match="new ledger with a seed"):
        tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", seed=1, **everyone(records))
    with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records)) as one:
        assert "knows or guesses the seed" in one.guarantee().sentence()


@pytest.mark.usefixtures("without_noise")
def test_gradients_from_elsewhere_do_not_enter(tmp_path: Path) -> None:
    """A public step in between leaves gradients behind; neither of trainable nor of frozen parameters are they used."""
    records, ends = rows(), []
    for number in range(2):
        torch.manual_seed(5)
        module = Window()
        module.embedding.requires_grad_(False)
        with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / str(number), **everyone(records)) as one:
            if number:
                module(torch.tensor([[1, 2, 3]])).sum().backward()
                module.embedding.weight.grad = torch.ones_like(module.embedding.weight)
            one.step()
        ends.append({name: value.detach() for name, value in module.named_parameters()})
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


@pytest.mark.usefixtures("without_noise")
def test_schedulers_and_other_optimizers_work(tmp_path: Path) -> None:
    module, records = Window(), rows()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step < 1))
    with tacit.PrivateStep(module, optimizer, records, ledger=tmp_path / "l", **everyone(records)) as one:
        before = values_of(module)
        one.step()
        schedule.step()
        after = values_of(module)
        one.step()
    assert any(value.any() for value in moved(module, before).values())
    assert all(torch.equal(value, after[name]) for name, value in values_of(module).items())


def test_nothing_exact_is_returned_kept_or_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    module, records = Window(), rows()
    with (
        caplog.at_level(logging.DEBUG),
        tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records)) as one,
    ):
        assert one.step() is None
        exact = one.step(return_private=True)
    assert exact is not None
    assert exact["drawn"] == len(records)
    assert 0 < exact["median_norm"] < math.inf
    assert 0 < exact["loss"] < math.inf
    assert [path.name for path in tmp_path.iterdir()] == ["l"]
    assert read_entries(tmp_path / "l").counts == {"private": 2}
    written = (tmp_path / "l").read_text() + caplog.text
    assert not any(f"{exact[name]:.4g}" in written for name in ("median_norm", "loss"))
    kept = [value for value in vars(one).values() if isinstance(value, float | Tensor)]
    assert kept == []


SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": CONTEXT + 2,
    "num_labels": 3,
    "pad_token_id": 1,
}


def classifier(kind: str) -> nn.Module:
    """A sequence classifier of transformers; with " + peft", adapters and the head learn."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.for_model(kind.split()[0], **SIZES)
    module: nn.Module = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    if not kind.endswith("peft"):
        return module
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS", init_lora_weights=False)
    adapted: nn.Module = get_peft_model(module, lora)
    return adapted


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("kind", ["bert", "roberta", "llama", "bert + peft"])
def test_a_step_of_a_sequence_classifier_is_the_clipped_sum_of_single_examples(kind: str, tmp_path: Path) -> None:
    module, records = classifier(kind), [[3 + token % 20 for token in row] for row in rows()]
    classes = [index % 3 for index in range(len(records))]
    given = [{"input_ids": row, "label": label} for row, label in zip(records, classes, strict=True)]
    twin = in_float64(model_of(copy.deepcopy(module)))
    wanted, norms = loop_over_rows(twin, LabeledBatch.of_rows(records, classes), Flat(0.5))
    assert max(norms) > 0.5, "something is clipped"
    before = values_of(module)
    with tacit.PrivateStep(module, sgd(module), given, ledger=tmp_path / "l", **everyone(given, clip_norm=0.5)) as one:
        one.step()
    assert_near(moved(module, before), {name: value / len(records) for name, value in wanted.items()}, ROUNDED)
    assert "a record's label is part of the record" in str(one.guarantee().holds_if)


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ({"input_ids": [4, 5]}, "a class from 0 to 2"),
        ({"input_ids": [4, 5], "label": 3}, "a class from 0 to 2"),
        ({"input_ids": [4, 5], "labels": [4, 5]}, "a class from 0 to 2"),
        ({"input_ids": [], "label": 1}, "at least one token"),
        ({"input_ids": [4] * 40, "label": 1}, "tokens, which is what the model reads"),
    ],
)
def test_labeled_rows_that_cannot_be_used_are_told(record: Any, wanted: str, tmp_path: Path) -> None:  # noqa: ANN401
    module, records = classifier("bert"), [{"input_ids": [4, 5], "label": 0}, record]
    with pytest.raises(CorpusError, match=f"in record 1, .*{wanted}"):
        tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records))


def of_text(text: str) -> list[int]:
    return [ord(letter) % VOCABULARY for letter in text]


def test_texts_with_a_tokenizer_and_tables_of_rows(tmp_path: Path) -> None:
    module = Window()
    texts = ["one", "two", "three"]
    settings = everyone(texts)
    with tacit.PrivateStep(module, sgd(module), texts, tokenizer=of_text, ledger=tmp_path / "l", **settings) as one:
        one.step()
    with pytest.raises(CorpusError, match=r"record 0, a row of token ids; found str.*tokenizer"):
        tacit.PrivateStep(module, sgd(module), texts, ledger=tmp_path / "no", **settings)
    assert not (tmp_path / "no").exists(), "a refusal leaves nothing behind"


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ([1, VOCABULARY], f"token ids from 0 to {VOCABULARY - 1}"),
        ([1, -1], "token ids"),
        ([0.5, 1.5], "a row of token ids"),
        ([[1, 2], [3]], "a row of token ids"),
        ({"text": "hello"}, "a row of token ids"),
        ({"input_ids": [1, 2], "labels": [1]}, "labels for each token"),
        ({"input_ids": [1, 2, 3], "labels": [-100, 1, 3]}, "labels that repeat input_ids, or are -100"),
        (list(range(CONTEXT + 1)), f"at most {CONTEXT} tokens, which is what the model reads"),
    ],
)
def test_rows_that_cannot_be_used_are_told(record: Any, wanted: str, tmp_path: Path) -> None:  # noqa: ANN401
    module, records = llama(), [[1, 2], record]
    with pytest.raises(CorpusError, match=f"in record 1, {wanted}"):
        tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records))
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize("records", ["corpus.jsonl", Path("corpus.jsonl"), {"train": [[1, 2]]}, []], ids=repr)
def test_what_is_no_list_of_records_is_refused(records: Any, tmp_path: Path) -> None:  # noqa: ANN401
    module = Window()
    with pytest.raises(CorpusError, match="record"):
        tacit.PrivateStep(
            module, sgd(module), records, tokenizer=of_text, ledger=tmp_path / "l", noise_multiplier=1.0, steps=1
        )
    assert not (tmp_path / "l").exists()


class Mixing(Window):
    """Rows know each other."""

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        mixed = embedded + embedded.mean(dim=0, keepdim=True)
        logits: Tensor = self.head(torch.tanh(self.hidden(torch.cat((mixed, mixed), dim=2))))
        return logits


class Counting(Window):
    """Its outputs are right, but a buffer counts the tokens of all records that were drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(VOCABULARY))

    def forward(self, tokens: Tensor) -> Tensor:
        self.get_buffer("seen").add_(torch.bincount(tokens.flatten(), minlength=VOCABULARY))
        return super().forward(tokens)


def frozen() -> nn.Module:
    return Window().requires_grad_(False)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (frozen, ModelError, "frozen"),
        (lambda: Window().double(), ModelError, "float32"),
        (lambda: nn.Linear(3, 3), ModelError, "linear layer `head`"),
        (Mixing, GradientError, "neither other rows"),
        (Counting, GradientError, "remembers nothing.*buffers that change in a forward pass: seen"),
    ],
    ids=["frozen", "float64", "no head", "mixes rows", "counts tokens"],
)
def test_modules_without_private_gradients_are_refused(
    make: Callable[[], nn.Module], error: type[Exception], words: str, tmp_path: Path
) -> None:
    module, records = make(), rows()
    with pytest.raises(error, match=words):
        tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records))
    assert not (tmp_path / "l").exists()


def test_an_optimizer_has_all_that_is_trainable_and_nothing_else(tmp_path: Path) -> None:
    module, records = Window(), rows()
    other = [*module.parameters(), nn.Parameter(torch.zeros(2))]
    for parameters in (module.head.parameters(), other):
        with pytest.raises(ConfigError, match="all trainable parameters"):
            tacit.PrivateStep(
                module, torch.optim.SGD(parameters, lr=1.0), records, ledger=tmp_path / "l", **everyone(records)
            )
    module.embedding.requires_grad_(False)
    with tacit.PrivateStep(module, sgd(module), records, ledger=tmp_path / "l", **everyone(records)) as one:
        one.step()
        module.embedding.requires_grad_(True)
        with pytest.raises(ConfigError, match="frozen or unfrozen"):
            one.step()
        assert one.done == 1, "nothing is charged for a step that does not begin"


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 3},
        {"noise_multiplier": 1.0, "epsilon": 2.0},
        {"epsilon": -1.0},
        {"epsilon": 1.0, "microbatch_tokens": 0},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    module = Window()
    with pytest.raises(ConfigError):
        tacit.PrivateStep(module, sgd(module), rows(), ledger=tmp_path / "l", **settings)
    assert not (tmp_path / "l").exists()
