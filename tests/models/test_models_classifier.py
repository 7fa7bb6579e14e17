"""Classifiers: clipped sums against a loop over rows, padding, files, labels, and that they learn."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from marking import prepare
from oracles import (
    EXACT,
    ROUNDED,
    assert_clipped_sums_are_exact,
    assert_near,
    in_float64,
    loop_over_rows,
    moving_parameters,
    research_noise,
)
from saved import released, reloaded
from tacit.common.formatting import exact_interval
from tacit.config.model_schema import ClassifierConfig, LoRAConfig, LSTMConfig, OptimizerConfig
from tacit.data.batches import PADDING, LabeledBatch
from tacit.data.labels import LabelReader
from tacit.data.records import Record, Span
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.viewed import Inventions
from tacit.errors import ConfigError, GradientError, ModelError
from tacit.models.classifier import Classifier, EncoderClassifier, LSTMClassifier, build_classifier
from tacit.policies.patterns import Gold
from tacit.privacy.plan import Targets, View
from tacit.runs.utility import ErrorRate
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Automatic, Clipping, Flat, PerParameter, clipped_sum, plain_sum
from tacit.training.optimizers import Optimizer

VOCABULARY = 23
CLASSES = ("business", "sports", "world")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", **SIZES},
    "roberta": {"model_type": "roberta", **SIZES},
    "albert": {"model_type": "albert", "embedding_size": 8, **SIZES},
    "modernbert": {"model_type": "modernbert", "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, **SIZES},
    "distilbert": {"model_type": "distilbert", "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 20},
    "mpnet": {"model_type": "mpnet", **SIZES},
    "mobilebert": {"model_type": "mobilebert", "embedding_size": 8, "intra_bottleneck_size": 16, **SIZES},
    "fnet": {"model_type": "fnet", **SIZES},
}
STYLES: tuple[Clipping, ...] = (Flat(0.7), Automatic(0.7), PerParameter(0.7))


def encoder(name: str, lora: LoRAConfig | None = None) -> Classifier:
    config = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, **CONFIGS[name]}
    return EncoderClassifier.described(config, ClassifierConfig(CLASSES), lora)


def lstm(layers: int = 1) -> Classifier:
    shape = LSTMConfig(VOCABULARY, 9, 11, layers, dropout=0.0)
    return LSTMClassifier.new(shape, ClassifierConfig(CLASSES))


MODELS: dict[str, Callable[[], Classifier]] = {
    "lstm": lstm,
    "lstm of three layers": lambda: lstm(3),
    "bert": lambda: encoder("bert"),
    "bert with lora": lambda: encoder("bert", LoRAConfig(2)),
    "roberta": lambda: encoder("roberta"),
    "albert, whose layers are used twice": lambda: encoder("albert"),
    "distilbert": lambda: encoder("distilbert"),
    "distilbert with lora": lambda: encoder("distilbert", LoRAConfig(2)),
    "modernbert": lambda: encoder("modernbert"),
    "mpnet with lora": lambda: encoder("mpnet", LoRAConfig(2)),
}
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(threads)


def awakened(name: str) -> Classifier:
    """Every weight that moves gets a value; dropout is off."""
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.module.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.module.eval()
    return model


def mixed_batch() -> LabeledBatch:
    """Rows of many lengths, one that does not count, weights that are not one."""
    chance = torch.Generator().manual_seed(5)
    rows = [torch.randint(VOCABULARY, (length,), generator=chance).tolist() for length in (9, 1, 14, 5, 6, 2)]
    return LabeledBatch.of_rows(rows, [0, 1, 2, 2, 0, 1], [1.0, 1.0, 1e-3, 0.0, 0.5, 2.0])


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
@every_model
def test_sum_equals_a_loop_over_rows(name: str, style: Clipping) -> None:
    model, batch = awakened(name), mixed_batch()
    found, norms = assert_clipped_sums_are_exact(model, batch, style)
    assert min(norms) < style.clip_norm < max(norms)
    losses = model.token_losses(batch).per_row.detach()
    torch.testing.assert_close(found.losses, losses, rtol=ROUNDED, atol=ROUNDED)


@every_model
def test_plain_sum_equals_autograd(name: str) -> None:
    model, batch = in_float64(awakened(name)), mixed_batch()
    moving = moving_parameters(model.module)
    found = torch.autograd.grad(model.token_losses(batch).total, list(moving.values()), materialize_grads=True)
    result = plain_sum(model, batch, positions=15)
    assert_near(result.sums, dict(zip(moving, found, strict=True)), EXACT)
    assert result.weight == pytest.approx(4.501)


@pytest.mark.parametrize("length", [1, 2, 33])
@every_model
def test_one_row_alone(name: str, length: int) -> None:
    model = awakened(name)
    batch = LabeledBatch.of_rows([torch.randint(VOCABULARY, (length,)).tolist()], [1])
    assert_clipped_sums_are_exact(model, batch, Flat(0.5))


@pytest.mark.parametrize("batch", [LabeledBatch.of_rows([], []), LabeledBatch.of_rows([[1, 2]], [0], [0.0])])
@every_model
def test_an_empty_batch_gives_a_zero_sum_of_every_parameter(name: str, batch: LabeledBatch) -> None:
    model = awakened(name)
    found = clipped_sum(model, batch, Flat(1.0))
    assert list(found.sums) == [name for name, value in model.module.named_parameters() if value.requires_grad]
    assert all(not value.any() and value.dtype == torch.float32 for value in found.sums.values())
    assert len(found.norms) == len(batch)


@pytest.mark.parametrize("positions", [1, 7, 20, 1000])
@pytest.mark.parametrize("name", ["lstm", "lstm of three layers", "bert", "roberta", "bert with lora"])
def test_micro_batches_change_nothing(name: str, positions: int) -> None:
    model, batch = in_float64(awakened(name)), mixed_batch()
    whole, parts = clipped_sum(model, batch, Flat(0.6)), clipped_sum(model, batch, Flat(0.6), positions=positions)
    assert_near(parts.sums, whole.sums, EXACT)
    torch.testing.assert_close(parts.norms, whole.norms, rtol=EXACT, atol=EXACT)


@every_model
def test_padding_and_other_rows_change_nothing(name: str) -> None:
    """G1. Two rows, short and long, as one batch, alone, and with more padding than anybody needs."""
    model = in_float64(awakened(name))
    rows = [[3, 5, 7], torch.randint(VOCABULARY, (20,)).tolist()]
    together = model.logits(LabeledBatch.of_rows(rows, [0, 1]).inputs)
    assert together.shape == (2, 1, len(CLASSES))
    for row, found in zip(rows, together, strict=True):
        alone = model.logits(torch.tensor([row]))[0]
        padded = model.logits(torch.tensor([row + [PADDING] * 9]))[0]
        torch.testing.assert_close(found, alone, rtol=EXACT, atol=EXACT)
        torch.testing.assert_close(padded, alone, rtol=EXACT, atol=EXACT)
    assert not torch.allclose(together[0], together[1], rtol=1e-4, atol=1e-5)


@every_model
def test_gradients_check_passes(name: str) -> None:
    model = awakened(name)
    model.module.train()
    check_gradients(model)
    assert model.module.training


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mobilebert", "depend on the other rows"),  # reads the embedding of the next token, padding or not
        ("fnet", "depend on the other rows"),  # mixes padding into every state
    ],
)
def test_encoders_whose_gradients_are_not_known_are_refused(name: str, reason: str) -> None:
    with pytest.raises(GradientError, match=reason):
        check_gradients(encoder(name))


def test_a_frozen_layer_needs_no_rule() -> None:
    """Biases of attention that no row owns: with them, one row is taken after another."""
    model = encoder("mpnet")
    assert check_gradients(model) == "rows"
    for name, value in model.module.named_parameters():
        if "relative_attention_bias" in name:
            value.requires_grad_(False)
    assert check_gradients(model) == "fused"


# learning


def separable(rows: int, seed: int) -> LabeledBatch:
    """The class is the token that is there more often, of 3, among others that say nothing."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(CLASSES), (rows,), generator=chance).tolist()
    lengths = torch.randint(3, 10, (rows,), generator=chance).tolist()
    noise = [torch.randint(4, VOCABULARY, (length,), generator=chance).tolist() for length in lengths]
    return LabeledBatch.of_rows(
        [[0, *[label + 1] * 3, *rest] for label, rest in zip(labels, noise, strict=True)], labels
    )


def errors(model: Classifier, batch: LabeledBatch) -> ErrorRate:
    model.module.eval()
    with torch.no_grad():
        guesses = model.logits(batch.inputs)[:, 0].argmax(dim=1)
    return ErrorRate(int((guesses != batch.targets[:, 0]).sum()), len(batch))


@pytest.mark.parametrize("noise_multiplier", [None, 0.5])
@pytest.mark.parametrize(
    ("name", "steps", "rate"), [("lstm", 60, 3e-2), ("distilbert", 60, 1e-2), ("distilbert with lora", 80, 1e-2)]
)
def test_the_error_rate_falls(name: str, steps: int, rate: float, noise_multiplier: float | None) -> None:
    """Seeded: plain steps and noisy steps both learn; before, two of three guesses are wrong."""
    model, held_out = MODELS[name](), separable(200, 1)
    size = 64
    before = errors(model, held_out)
    optimizer = Optimizer(OptimizerConfig(learning_rate=rate), steps)
    parameters = {name: value for name, value in model.module.named_parameters() if value.requires_grad}
    noise = research_noise(3)
    model.module.train()
    for step in range(steps):
        batch = separable(size, 100 + step)
        if noise_multiplier is None:
            sums, deviation = plain_sum(model, batch).sums, 0.0
        else:
            sums, deviation = clipped_sum(model, batch, Flat(1.0)).sums, noise_multiplier
            noise.add_(sums.values(), deviation)
        optimizer.apply(parameters, {name: value / size for name, value in sums.items()}, deviation / size)
    after = errors(model, held_out)
    assert before.share > 0.4
    assert after.interval().high < 0.3


def test_error_rates_add_up_and_have_an_exact_interval() -> None:
    found = ErrorRate() + ErrorRate(0, 30) + ErrorRate(30, 30)
    assert found == ErrorRate(30, 60)
    assert found.share == 0.5
    assert found.interval() == exact_interval(30, 60)
    assert math.isnan(ErrorRate().share)
    assert ErrorRate().interval() == (0.0, 1.0)


# files


@every_model
def test_a_saved_classifier_comes_back(name: str, tmp_path: Path) -> None:
    model, batch = awakened(name), mixed_batch()
    released(model, tmp_path)
    assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".safetensors"}
    again = reloaded(build_classifier, tmp_path)
    again.module.eval()
    assert type(again) is type(model)
    assert again.settings == model.settings
    assert torch.equal(again.logits(batch.inputs), model.logits(batch.inputs))
    flags = {name: value.requires_grad for name, value in model.module.named_parameters()}
    assert {name: value.requires_grad for name, value in again.module.named_parameters()} == flags


@every_model
def test_a_description_is_json_and_makes_the_same_model(name: str) -> None:
    model = MODELS[name]()
    again = build_classifier(json.loads(json.dumps(model.description())))
    assert again.description() == model.description()
    again.module.load_state_dict(model.module.state_dict())


def test_an_encoder_from_a_local_folder(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    words = {key: value for key, value in CONFIGS["bert"].items() if key != "model_type"}
    whole = BertModel(BertConfig(vocab_size=VOCABULARY, **words)).eval()  # type: ignore[no-untyped-call]
    whole.save_pretrained(tmp_path)
    model = EncoderClassifier.from_folder(tmp_path, ClassifierConfig(CLASSES), None, VOCABULARY + 2)
    model.module.eval()
    assert model.vocabulary_size == VOCABULARY + 2
    tokens = torch.tensor([[1, 2, 3, 4]])
    pooled = whole(input_ids=tokens).pooler_output
    torch.testing.assert_close(model.logits(tokens)[:, 0], model.head(pooled), rtol=1e-4, atol=1e-5)


def test_a_pooler_that_a_folder_lacks_is_new_and_trained_beside_adapters(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    words = {key: value for key, value in CONFIGS["bert"].items() if key != "model_type"}
    BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **words)).save_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    model = EncoderClassifier.from_folder(tmp_path, ClassifierConfig(CLASSES), LoRAConfig(2))
    moving = {name for name in moving_parameters(model.module) if ".lora_" not in name}
    assert moving == {f"{part}.{kind}" for part in ("bert.pooler.dense", "classifier") for kind in ("weight", "bias")}
    assert not any("pooler" in name or name.startswith("classifier.") for name in adapted(model))


def adapted(model: Classifier) -> list[str]:
    return [name for name in moving_parameters(model.module) if ".lora_" in name]


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert"])
def test_it_is_a_sequence_classifier_of_transformers(name: str, tmp_path: Path) -> None:
    """What is trained loads without tacit, with the names of the classes, and says the same."""
    from transformers import AutoModelForSequenceClassification

    module: Any = awakened(name).module
    module.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert again.config.id2label == dict(enumerate(CLASSES))
    assert again.config.label2id == {label: number for number, label in enumerate(CLASSES)}
    batch = mixed_batch()
    real = batch.inputs != PADDING
    scores = again(input_ids=batch.inputs.clamp(min=0), attention_mask=real.long()).logits
    wanted = EncoderClassifier(module, ClassifierConfig(CLASSES)).logits(batch.inputs)[:, 0]
    torch.testing.assert_close(scores, wanted, rtol=1e-5, atol=1e-6)


def test_a_decoder_needs_a_padding_token_and_dropout_is_the_models_own() -> None:
    llama = {"vocab_size": VOCABULARY, "model_type": "llama", **SIZES}
    with pytest.raises(ModelError, match=r"pad_token_id, by which LlamaForSequenceClassification .* none in config"):
        EncoderClassifier.described(llama, ClassifierConfig(CLASSES))
    model = EncoderClassifier.described({**llama, "pad_token_id": 0}, ClassifierConfig(CLASSES))
    assert check_gradients(model) == "layers"
    with pytest.raises(ModelError, match="no dropout of ours"):
        EncoderClassifier.described({**llama, "pad_token_id": 0}, ClassifierConfig(CLASSES, dropout=0.1))


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="safetensors"):
        EncoderClassifier.from_folder(tmp_path, ClassifierConfig(CLASSES))


# settings and batches


@pytest.mark.parametrize(
    "words", [{"classes": ("one",)}, {"classes": ("one", "two", "one")}, {"classes": CLASSES, "dropout": 1.0}]
)
def test_settings_that_mean_nothing_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        ClassifierConfig(**words)


def test_an_lstm_that_is_tied_is_refused() -> None:
    with pytest.raises(ModelError, match="tied"):
        LSTMClassifier.new(LSTMConfig.awd(VOCABULARY), ClassifierConfig(CLASSES))


@pytest.mark.parametrize(("name", "most"), [("bert", 64), ("roberta", 62), ("distilbert", 64)])
def test_the_longest_row_is_read_and_a_longer_one_refused(name: str, most: int) -> None:
    model = encoder(name)
    model.logits(torch.full((1, most), 5))
    with pytest.raises(ModelError, match=f"at most {most} tokens"):
        model.logits(torch.full((1, most + 1), 5))


@pytest.mark.parametrize("label", [-1, len(CLASSES)])
def test_a_class_that_the_head_does_not_have_is_an_error(label: int) -> None:
    with pytest.raises((GradientError, RuntimeError, IndexError)):
        clipped_sum(awakened("lstm"), LabeledBatch.of_rows([[1, 2]], [label]), Flat(1.0))


def test_batches_of_the_wrong_shape_are_refused() -> None:
    one = torch.ones(2, 1)
    with pytest.raises(ModelError, match="int64"):
        LabeledBatch(torch.ones(2, 3), one.long(), one)
    with pytest.raises(ModelError, match="classes"):
        LabeledBatch(torch.ones(2, 3).long(), torch.ones(2).long(), one)
    with pytest.raises(ModelError, match="at least one token"):
        LabeledBatch.of_rows([[1], []], [0, 0])
    with pytest.raises(ModelError, match="before a token"):
        LabeledBatch(torch.tensor([[1, PADDING, 2]]), torch.tensor([[0]]), torch.ones(1, 1))


@given(st.lists(st.lists(st.integers(0, 18), min_size=1, max_size=9), max_size=8), st.integers(1, 40), st.data())
def test_micro_batches_hold_every_row_that_counts_once_and_fit(
    rows: list[list[int]], positions: int, data: st.DataObject
) -> None:
    counts = data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=len(rows), max_size=len(rows)))
    batch = LabeledBatch.of_rows(rows, list(range(len(rows))), counts)
    seen: list[int] = []
    for index, part in batch.micro_batches(positions):
        seen += index.tolist()
        assert len(part) == 1 or part.inputs.numel() <= positions
        assert part.targets[:, 0].tolist() == index.tolist()
        for place, row in enumerate(index.tolist()):
            assert part.inputs[place][part.inputs[place] != PADDING].tolist() == rows[row]
            assert float(part.weights[place, 0]) == counts[row]
    assert sorted(seen) == [row for row, count in enumerate(counts) if count]


# labelled rows of a store


def records(labels: tuple[str | None, ...]) -> Iterator[Record]:
    for number, label in enumerate(labels):
        yield Record(f"r{number}", f"code x{number} won", label=label, spans=(Span(5, 7, "CODE"),))


def store_of(folder: Path, *labels: str | None) -> PreparedCorpus:
    return prepare(records(labels), Gold(), byte_tokenizer(), folder / "store")


def test_rows_are_read_with_their_labels_in_both_views(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    store = store_of(tmp_path, "sports", "world", "sports")
    reader = LabelReader(store, tokenizer.end, 100, CLASSES)
    order = list(range(len(store)))[::-1]
    full, redacted = reader.batch(order, View.FULL), reader.batch(order, View.REDACTED, Targets.PUBLIC)
    names = [CLASSES[int(label)] for label in full.targets[:, 0]]
    assert names == [store.label(row) for row in order]
    assert torch.equal(full.targets, redacted.targets)
    assert (full.inputs[:, 0] == tokenizer.end).all()
    for row, found in zip(order, full.inputs, strict=True):
        assert tokenizer.decode(found[1:][found[1:] != PADDING].tolist()) == f"code x{row} won"
    for row, found in zip(order, redacted.inputs, strict=True):
        assert found[1:][found[1:] != PADDING].tolist() == store.redacted(row).tolist()
    assert len(reader.batch(range(len(store)), View.FULL)) == len(store)


def test_rows_end_at_the_public_constant(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    store = store_of(tmp_path, "world", "sports")
    reader = LabelReader(store, tokenizer.end, 4, CLASSES, Inventions(tokenizer, {}))
    views = (View.FULL, View.REDACTED, View.INVENTED)
    assert [reader.batch([1], view).inputs.shape[1] for view in views] == [5] * len(views)


def test_redacted_batches_never_touch_the_private_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path, "world", "sports", "world")
    monkeypatch.setattr(PreparedCorpus, "full", lambda self, row: pytest.fail("read a secret"))
    assert len(LabelReader(store, byte_tokenizer().end, 100, CLASSES).batch([1, 2], View.REDACTED)) == 2


@pytest.mark.parametrize(("label", "said"), [(None, "no label in row 1"), ("Sports", "another label in row 1")])
def test_a_label_that_is_no_class_is_refused_before_any_batch(label: str | None, said: str, tmp_path: Path) -> None:
    store = store_of(tmp_path, "world", label)
    with pytest.raises(ConfigError, match=said) as error:
        LabelReader(store, byte_tokenizer().end, 100, CLASSES)
    assert "Sports" not in str(error.value)


def test_classes_with_one_name_and_targets_without_labels_are_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path, "world", "sports")
    with pytest.raises(ModelError, match="different names"):
        LabelReader(store, 0, 100, ("world", "world"))
    with pytest.raises(ConfigError, match="secrets alone"):
        LabelReader(store, 0, 100, CLASSES).batch([0], View.FULL, Targets.PRIVATE)


def test_the_head_alone_can_move() -> None:
    model, batch = in_float64(awakened("bert")), mixed_batch()
    found = clipped_sum(model, batch, Flat(0.3), parameters=["classifier.weight", "classifier.bias"])
    for name, value in model.module.named_parameters():
        value.requires_grad_(name.startswith("classifier."))
    assert isinstance(model.head, nn.Linear)
    assert_near(found.sums, loop_over_rows(model, batch, Flat(0.3))[0], EXACT)
