"""Every model keeps the Speaker and Learner contract: batches, readings, text, files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import EXACT, in_float64
from saved import released, reloaded
from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig
from tacit.data.batches import TextBatch
from tacit.errors import ModelError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner, generate
from tacit.models.loading import build_model
from tacit.models.lstm import LSTM

VOCABULARY = 19
MODELS: dict[str, Callable[[], Learner]] = {
    "lstm": lambda: LSTM.new(LSTMConfig(VOCABULARY, 8, 10)),
    "lstm with all dropouts": lambda: LSTM.new(
        LSTMConfig(VOCABULARY, 8, 10, 3, 0.3, locked=True, embedding_dropout=0.2, weight_drop=0.5, tied=True)
    ),
    "gpt": lambda: CausalLM.new(CausalLMConfig(VOCABULARY, 16, 2, 2, 40)),
    "gpt with lora": lambda: CausalLM.new(CausalLMConfig(VOCABULARY, 16, 2, 2, 40), LoRAConfig(2, dropout=0.1)),
}


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Learner:
    made = MODELS[request.param]()
    for parameter in made.module.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return made


def some_rows(rows: int = 3, length: int = 9) -> torch.Tensor:
    return torch.randint(VOCABULARY, (rows, length))


def test_log_probabilities_are_normalised_and_without_dropout(model: Learner) -> None:
    model.module.train()
    prefix = some_rows(1, 4)
    every = torch.cat([prefix.expand(VOCABULARY, -1), torch.arange(VOCABULARY)[:, None]], dim=1)
    last = model.log_probabilities(TextBatch.of_tokens(every))[:, -1]
    assert float(last.exp().sum()) == pytest.approx(1.0, rel=1e-5)
    assert torch.equal(last, model.log_probabilities(TextBatch.of_tokens(every))[:, -1])
    assert model.module.training
    assert not last.requires_grad


def test_padding_changes_nothing(model: Learner) -> None:
    long, short = some_rows(1, 9)[0].tolist(), some_rows(1, 4)[0].tolist()
    model = in_float64(model)
    padded = model.log_probabilities(TextBatch.of_rows([long, short]))
    alone = model.log_probabilities(TextBatch.of_rows([short]))
    torch.testing.assert_close(padded[1, :3], alone[0], rtol=EXACT, atol=EXACT)


def test_a_reading_expects_what_the_whole_text_says(model: Learner) -> None:
    model, tokens = in_float64(model), some_rows()
    wanted = model.log_probabilities(TextBatch.of_tokens(tokens))
    reading = model.begin(tokens[:, :3])
    for position in range(3, tokens.shape[1]):
        column = tokens[:, position]
        found = reading.next_log_probabilities.gather(1, column[:, None])[:, 0]
        torch.testing.assert_close(found, wanted[:, position - 1], rtol=EXACT, atol=EXACT)
        reading = reading.read(column)


def test_a_reading_branches_and_stays_as_it_was(model: Learner) -> None:
    model, tokens = in_float64(model), some_rows(2, 5)
    stem = model.begin(tokens[:, :4])
    branches = stem.select(torch.tensor([1, 0, 1]))
    torch.testing.assert_close(branches.next_log_probabilities, stem.next_log_probabilities[[1, 0, 1]])
    ends = branches.read(torch.tensor([3, 4, 5]))
    for row, (source, token) in enumerate([(1, 3), (0, 4), (1, 5)]):
        whole = torch.cat([tokens[source, :4], torch.tensor([token])])[None]
        wanted = model.begin(whole).next_log_probabilities[0]
        torch.testing.assert_close(ends.next_log_probabilities[row], wanted, rtol=EXACT, atol=EXACT)
    again = stem.read(tokens[:, 4]).next_log_probabilities
    torch.testing.assert_close(again, model.begin(tokens).next_log_probabilities, rtol=EXACT, atol=EXACT)


def test_generation_repeats_with_its_generator_and_greedy_takes_the_most_probable(model: Learner) -> None:
    prompt = some_rows(2, 3)
    first, second = (generate(model, prompt, 6, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.shape == (2, 6)
    greedy = generate(model, prompt, 1, torch.Generator(), temperature=0.0)
    assert torch.equal(greedy[:, 0], model.begin(prompt).next_log_probabilities.argmax(dim=1))
    assert generate(model, prompt, 0, torch.Generator()).shape == (2, 0)
    with pytest.raises(ModelError, match="temperature"):
        generate(model, prompt, 1, torch.Generator(), temperature=-1.0)


def test_a_saved_model_comes_back_and_nothing_is_pickled(model: Learner, tmp_path: Path) -> None:
    released(model, tmp_path)
    assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".safetensors"}
    again, batch = reloaded(build_model, tmp_path), TextBatch.of_tokens(some_rows())
    assert torch.equal(again.log_probabilities(batch), model.log_probabilities(batch))
    flags = {name: value.requires_grad for name, value in model.module.named_parameters()}
    assert {name: value.requires_grad for name, value in again.module.named_parameters()} == flags


def test_a_pickled_hugging_face_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="safetensors"):
        CausalLM.from_folder(tmp_path)


def test_rows_beyond_the_context_are_refused() -> None:
    with pytest.raises(ModelError, match="at most 40"):
        MODELS["gpt"]().logits(some_rows(1, 41))


@pytest.mark.parametrize("setting", [{"layers": 0}, {"dropout": 1.0}, {"weight_drop": -0.1}])
def test_settings_that_mean_nothing_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ModelError, match=next(iter(setting))):
        LSTMConfig(VOCABULARY, **setting)  # type: ignore[arg-type]


# batches


@given(st.lists(st.lists(st.integers(0, 18), max_size=9), max_size=8), st.integers(1, 40))
@settings(deadline=None)
def test_micro_batches_hold_every_row_with_a_target_once_and_fit(rows: list[list[int]], positions: int) -> None:
    batch = TextBatch.of_rows(rows)
    seen: list[int] = []
    for index, part in batch.micro_batches(positions):
        seen += index.tolist()
        assert len(part) == 1 or part.weights.numel() <= positions
        for place, row in enumerate(index.tolist()):
            assert part.tokens[place, : len(rows[row])].tolist() == rows[row]
            assert part.weights[place].sum() == len(rows[row]) - 1
    assert sorted(seen) == [row for row, tokens in enumerate(rows) if len(tokens) > 1]


def test_a_batch_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ModelError, match="time \\+ 1"):
        TextBatch(some_rows(2, 5), torch.ones(2, 5))
    with pytest.raises(ModelError, match="int64"):
        TextBatch(some_rows(2, 5).int(), torch.ones(2, 4))


def test_losses_weigh_targets_and_ignore_infinite_ones_that_do_not_count() -> None:
    model, batch = MODELS["lstm"](), TextBatch.of_rows([[1, 2, 3], [4, 5]], [[2.0, 0.0], [1.0]])
    model.module.eval()
    losses = model.token_losses(batch)
    assert float(losses.per_row[0].detach()) == pytest.approx(2 * float(losses.losses[0, 0].detach()))
    assert float(losses.mean.detach()) == pytest.approx(float(losses.total.detach()) / 3)
    losses.losses.data[0, 1] = float("inf")
    assert torch.isfinite(losses.total)
