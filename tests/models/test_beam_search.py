"""Beam search against all continuations of a tiny model, and against an obvious beam search of one row at a time."""

from itertools import product

import pytest
import torch
from scipy import stats

from tacit.config.model_schema import CausalLMConfig, LSTMConfig
from tacit.data.batches import TextBatch
from tacit.errors import ModelError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner, beam_search, continued, generate
from tacit.models.lstm import LSTM

VOCABULARY, LENGTH = 5, 3


@pytest.fixture(params=["lstm", "gpt"])
def model(request: pytest.FixtureRequest) -> Learner:
    torch.manual_seed(3)
    lstm = LSTM.new(LSTMConfig(VOCABULARY, 8, 10))
    made: Learner = lstm if request.param == "lstm" else CausalLM.new(CausalLMConfig(VOCABULARY, 16, 2, 2, 40))
    for parameter in made.module.parameters():
        parameter.data.add_(torch.randn_like(parameter))
    made.module.eval()
    return made


def totals_of(model: Learner, prompt: list[int], length: int) -> dict[tuple[int, ...], float]:
    """The log-probability of every continuation of this length."""
    every = list(product(range(VOCABULARY), repeat=length))
    batch = TextBatch.of_tokens(torch.tensor([[*prompt, *one] for one in every]))
    said = model.log_probabilities(batch)[:, len(prompt) - 1 :].double().sum(dim=1)
    return dict(zip(every, said.tolist(), strict=True))


def obvious(model: Learner, prompt: list[int], length: int, width: int) -> list[tuple[int, ...]]:
    beams: list[tuple[int, ...]] = [()]
    for size in range(1, length + 1):
        totals = totals_of(model, prompt, size)
        grown = [(*one, token) for one in beams for token in range(VOCABULARY)]
        beams = sorted(grown, key=lambda one: -totals[one])[:width]
    return beams


PROMPTS = [[1, 2, 3], [4, 0, 0], [2, 2, 1]]


def test_a_beam_as_wide_as_all_continuations_finds_them_all_in_order(model: Learner) -> None:
    found = beam_search(model, torch.tensor(PROMPTS), LENGTH, VOCABULARY**LENGTH)
    for prompt, tokens, totals in zip(PROMPTS, found.tokens.tolist(), found.totals.tolist(), strict=True):
        every = totals_of(model, prompt, LENGTH)
        assert [tuple(one) for one in tokens] == sorted(every, key=lambda one: -every[one])
        assert totals == pytest.approx(sorted(every.values(), reverse=True), abs=1e-4)


@pytest.mark.parametrize("width", [1, 2, 7])
def test_a_narrow_beam_is_the_obvious_one(model: Learner, width: int) -> None:
    found = beam_search(model, torch.tensor(PROMPTS), LENGTH, width)
    for prompt, tokens in zip(PROMPTS, found.tokens.tolist(), strict=True):
        assert [tuple(one) for one in tokens] == obvious(model, prompt, LENGTH, width)


def test_one_beam_is_greedy_and_nothing_to_search_is_refused(model: Learner) -> None:
    prompts = torch.tensor(PROMPTS)
    greedy = generate(model, prompts, LENGTH, torch.Generator(), 0.0)
    assert torch.equal(beam_search(model, prompts, LENGTH, 1).tokens[:, 0], greedy)
    for length, width in ((0, 1), (1, 0)):
        with pytest.raises(ModelError, match="length and a width"):
            beam_search(model, prompts, length, width)


def test_quick_draws_are_drawn_from_the_model(model: Learner) -> None:
    """A chi-squared test of 4,000 draws, false alarm 1e-6; equal chances for all tokens would be caught."""
    prompt = torch.tensor(PROMPTS[:1])
    drawn = continued(model.begin(prompt.expand(4000, -1)), 1, torch.Generator().manual_seed(1))[:, 0]
    chances = model.begin(prompt).next_log_probabilities[0].exp().double().numpy()
    counts = torch.bincount(drawn, minlength=VOCABULARY).numpy()
    assert stats.chisquare(counts, 4000 * chances / chances.sum()).pvalue > 1e-6
    assert stats.chisquare(counts).pvalue < 1e-6
