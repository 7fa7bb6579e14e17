"""Exposure: every fast path against whole candidates scored one by one; ranks, samples, tails, tests of excess."""

import importlib
import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor

from tacit.audits.attacks.epsilon import own_scores, twin_margins
from tacit.audits.attacks.exposure import measure_exposure
from tacit.audits.candidates import Spelling, TokenTree, listed, total_log_probabilities
from tacit.audits.ranks import exact_exposures, extrapolated_exposures, sampled_exposures
from tacit.audits.statistics import Floats, SkewNormal, excess_over_chance
from tacit.common.formatting import exact_interval
from tacit.config.audit_schema import CanaryPlan, ExposureConfig, Slot
from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig
from tacit.config.setting import Method
from tacit.data.batches import TextBatch
from tacit.data.marked import CanaryRecord, draw_canaries
from tacit.data.tokenizer import UNKNOWN, Tokenizer, byte_tokenizer, train_bpe
from tacit.errors import AttackError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import DecoderState, Speaker
from tacit.models.lstm import LSTM

WORDS = ("oak", "oaks", "sake", "é")
SIZE = 342
MODELS: dict[str, Callable[[], Speaker]] = {
    "lstm": lambda: LSTM.new(LSTMConfig(SIZE, 8, 10)),
    "deep lstm": lambda: LSTM.new(LSTMConfig(SIZE, 8, 10, 3, tied=True)),
    "gpt": lambda: CausalLM.new(CausalLMConfig(SIZE, 16, 2, 2, 40)),
    "gpt with lora": lambda: CausalLM.new(CausalLMConfig(SIZE, 16, 2, 2, 40), LoRAConfig(2)),
}
SETTINGS = ExposureConfig(draws=400)


@pytest.fixture(autouse=True, scope="module")
def _on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return byte_tokenizer()
    return train_bpe([f"My ID is {number % 100} or {number}." for number in range(0, 1000, 7)] * 3, 340, UNKNOWN)


@cache
def model(name: str) -> Speaker:
    torch.manual_seed(5)
    made = MODELS[name]()
    assert isinstance(made, LSTM | CausalLM)
    for parameter in made.module.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    return made


def whole(speaker: Speaker, space: Slot, spelling: Spelling) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Each candidate by itself, from its text to its sum."""
    encode, totals = spelling.tokenizer.encode, []
    for value in space.values():
        parts = (space.before, value, space.after)
        tokens = [token for part in (parts if spelling.apart else ["".join(parts)]) for token in encode(part)]
        if not tokens:
            totals.append(0.0)
            continue
        scores = speaker.log_probabilities(TextBatch.of_rows([[*spelling.opening, *tokens]]))[0].double()
        totals.append(float(scores[len(spelling.opening) - 1 :].sum()))
    return np.array(totals)


spaces = st.one_of(
    st.builds(
        Slot.of,
        st.sampled_from(
            ["{2 digits}", "My ID is {2 digits}", "a {digit}.", "{2 words}", "it is {word} 12", "{letter}"]
        ),
        st.just(WORDS),
    ),
    st.builds(
        listed,
        st.text("is 1", max_size=5),
        st.lists(st.text("1 2soak", max_size=4), min_size=2, max_size=9, unique=True).map(tuple),
        st.text(" s1.", max_size=4),
    ),
)


@pytest.mark.parametrize("name", MODELS)
@given(
    space=spaces,
    words=st.sampled_from(["bytes", "bpe"]),
    apart=st.booleans(),
    opening=st.sampled_from([(256,), (3, 256, 70)]),
    memory=st.sampled_from([1, 200_000, 1 << 30]),
)
@settings(deadline=None, max_examples=10)
def test_totals_are_those_of_whole_candidates(
    name: str, space: Slot, words: str, apart: bool, opening: tuple[int, ...], memory: int
) -> None:
    spelling = Spelling(tokenizer(words), opening, apart)
    heard: list[tuple[int, int]] = []
    tree = TokenTree.of(spelling.of_space(space), spelling.opening)
    totals = total_log_probabilities(model(name), tree, memory, lambda done, of: heard.append((done, of)))
    wanted = whole(model(name), space, spelling)
    np.testing.assert_allclose(totals, wanted, rtol=1e-5, atol=1e-4)
    assert all(of == space.size for _, of in heard)
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})
    assert totals.dtype == np.float64


@pytest.mark.parametrize("name", ["lstm", "gpt"])
@pytest.mark.parametrize("words", ["bytes", "bpe"])
def test_g1_ranks_are_those_of_whole_candidates(name: str, words: str) -> None:
    slot, speaker = Slot.of("My ID is {2 digits}!"), model(name)
    spelling = Spelling.as_trained(tokenizer(words), marked=False)
    canaries = draw_canaries(CanaryPlan("My ID is {2 digits}!", 50), np.random.default_rng(1))
    result = measure_exposure(speaker, slot, canaries, spelling, SETTINGS, np.random.default_rng(2))
    wanted = whole(speaker, slot, spelling)
    order = np.sort(wanted)
    assert np.diff(order).min() > 1e-5, "the oracle cannot tell neighbors apart: change the seed"
    places = {value: 1 + int((wanted > total).sum()) for value, total in zip(slot.values(), wanted, strict=True)}
    for canary, found in zip(canaries, result.canaries, strict=True):
        assert (found.id, found.inside) == (canary.id, canary.inside)
        for value, exposure in ((canary.value, found.own), (canary.twin_value, found.twin)):
            assert exposure.rank == places[value]
            assert exposure.bits == pytest.approx(math.log2(100 / places[value]))
            assert (exposure.ties, exposure.standard_error) == (0, 0.0)
    assert (result.method, result.space) == (Method.EXACT, 100)


def hugging_face_models() -> dict[str, Callable[[], torch.nn.Module]]:
    t: Any = importlib.import_module("transformers")

    small: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 258}
    wide = {**small, "intermediate_size": 24, "num_key_value_heads": 1, "max_position_embeddings": 40}
    window: dict[str, Any] = {
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"],
        "use_sliding_window": True,
    }
    return {
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**wide)),
        "sliding window": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**wide, **window)),
        "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(**small)),
        "neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**small, intermediate_size=24)),
        "mamba": lambda: t.MambaForCausalLM(t.MambaConfig(hidden_size=16, num_hidden_layers=2, vocab_size=258)),
    }


@pytest.mark.parametrize("name", ["llama", "sliding window", "bloom", "neox", "mamba"])
def test_any_hugging_face_folder_can_be_attacked(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = hugging_face_models()[name]()
    assert callable(module.save_pretrained)
    module.save_pretrained(tmp_path)
    speaker, slot = CausalLM.from_folder(tmp_path), Slot.of("My ID is {2 digits}.")
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    tree = TokenTree.of(spelling.of_space(slot), spelling.opening)
    wanted = whole(speaker, slot, spelling)
    for memory in (1 << 30, 100_000):  # all at once, and many branches of one reading
        np.testing.assert_allclose(total_log_probabilities(speaker, tree, memory), wanted, rtol=1e-5, atol=1e-4)


# speakers made up for the tests


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A speaker of bytes whose next token depends on the last one alone; it counts the rows it holds."""

    scores: Tensor
    context: int = 100
    widest: list[int] = field(default_factory=lambda: [0])

    @property
    def vocabulary_size(self) -> int:
        return len(self.scores)

    def log_probabilities(self, batch: TextBatch) -> Tensor:
        return self.scores[batch.inputs, batch.targets]

    def begin(self, tokens: Tensor) -> DecoderState:
        return TableReading(self, tokens[:, -1])


@dataclass(frozen=True, slots=True, eq=False)
class TableReading:
    speaker: Table
    last: Tensor

    @property
    def next_log_probabilities(self) -> Tensor:
        return self.speaker.scores[self.last]

    @property
    def bytes_a_row(self) -> int:
        return 1000

    def select(self, rows: Tensor) -> "TableReading":
        return TableReading(self.speaker, self.last[rows])

    def read(self, tokens: Tensor) -> "TableReading":
        return TableReading(self.speaker, tokens)

    def branch(self, rows: Tensor, tokens: Tensor) -> "TableReading":
        assert len(rows) == len(tokens)
        self.speaker.widest[0] = max(self.speaker.widest[0], len(rows))
        return TableReading(self.speaker, tokens)


def random_table(seed: int) -> Table:
    logits = torch.randn(258, 258, generator=torch.Generator().manual_seed(seed))
    return Table(torch.log_softmax(logits, dim=-1))


def measure(
    speaker: Speaker, plan: CanaryPlan, canaries: tuple[CanaryRecord, ...], settings: ExposureConfig = SETTINGS
) -> dict[str, dict[str, float]]:
    spelling = Spelling.as_trained(byte_tokenizer(), plan.known)
    result = measure_exposure(speaker, plan.slot, canaries, spelling, settings, np.random.default_rng(0))
    content = json.loads(json.dumps(asdict(result), allow_nan=False))
    return {
        canary["id"]: {"own": canary["own"]["bits"], "twin": canary["twin"]["bits"]} for canary in content["canaries"]
    }


def test_rows_in_work_are_bounded_by_memory() -> None:
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    tree = TokenTree.of(spelling.of_space(Slot.of("{3 digits}.")), spelling.opening)
    widths = {}
    for memory in (8_000, 80_000, 10**9):
        speaker = random_table(1)
        total_log_probabilities(speaker, tree, memory)
        widths[memory] = speaker.widest[0]
    assert widths == {8_000: 1, 80_000: 10, 10**9: 1000}


def test_a_memorised_canary_has_all_bits_and_the_text_after_the_slot_counts() -> None:
    plan = CanaryPlan("{4 digits}!", 1, inside_probability=1.0)
    canary = replace(
        draw_canaries(plan, np.random.default_rng(0))[0],
        value="4711",
        text="4711!",
        twin_value="0000",
        twin_text="0000!",
    )
    scores = torch.zeros(258, 258)
    for before, after in itertools.pairwise([256, *b"4711!"]):
        scores[before, after] = 5.0
    assert measure(Table(torch.log_softmax(scores, dim=-1)), plan, (canary,))["canary-0"]["own"] == pytest.approx(
        math.log2(10_000)
    )
    scores = torch.zeros(258, 258)
    scores[ord("1"), ord("!")] = 5.0  # nothing but what follows the value gives it away
    exposed = measure(Table(torch.log_softmax(scores, dim=-1)), plan, (canary,))["canary-0"]
    assert exposed["own"] > exposed["twin"]


def test_g1_a_model_that_tells_nothing_apart_puts_everything_in_the_middle() -> None:
    plan = CanaryPlan("{3 digits}", 6)
    canaries = draw_canaries(plan, np.random.default_rng(3))
    flat = Table(torch.full((258, 258), -math.log(258)))
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    result = measure_exposure(flat, plan.slot, canaries, spelling, SETTINGS, np.random.default_rng(0))
    assert {(one.own.rank, one.own.ties) for one in result.canaries} == {(500.5, 999)}
    assert all(one.own.bits == pytest.approx(math.log2(1000 / 500.5)) for one in result.canaries)
    assert result.excess is not None
    assert [result.excess.p_best, result.excess.p_median, result.excess.p_all] == pytest.approx([1.0, 1.0, 1.0])
    assert result.excess.area == 0.5
    assert result.best_chance == 1.0


@given(st.lists(st.integers(-5, 0), min_size=2, max_size=40), st.data())
def test_exact_ranks_against_counting(totals: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(totals) - 1))
    values = np.array(totals, dtype=float)
    values[values == -5] = -np.inf
    (found,) = exact_exposures(values, values[[place]])
    ranks = stats.rankdata(-values, method="average")
    assert found.rank == ranks[place]
    assert found.ties == int((values == values[place]).sum()) - 1
    assert found.chance == float((values >= values[place]).mean())
    assert 0 <= found.bits <= math.log2(len(totals))


# samples and tails


@given(st.lists(st.integers(-9, 0), min_size=2, max_size=60), st.data())
def test_g2_a_sample_of_all_others_gives_the_exact_exposure(totals: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(totals) - 1))
    values = np.array(totals, dtype=float)
    (exact,) = exact_exposures(values, values[[place]])
    (sampled,) = sampled_exposures(np.delete(values, place), values[[place]])
    assert sampled.bits == pytest.approx(exact.bits)
    assert sampled.ties == exact.ties
    assert sampled.chance == pytest.approx(exact.chance)


@pytest.mark.statistical
def test_sampled_exposures_lie_within_their_standard_errors() -> None:
    """False-alarm rate below 1e-5: 60 estimates, of which 95 % should be within two errors; halved errors must fail."""
    totals, generator = np.random.default_rng(2).normal(size=50_000), np.random.default_rng(8)
    places = generator.integers(0, 50_000, size=60)
    exact = exact_exposures(totals, totals[places])
    off = []
    for place, wanted in zip(places, exact, strict=True):
        (found,) = sampled_exposures(totals[generator.integers(0, 50_000, size=2000)], totals[[place]])
        off.append((found.bits - wanted.bits) / found.standard_error)
    within = [int((np.abs(off) <= limit).sum()) for limit in (2.0, 0.5)]
    assert exact_interval(within[0], 60, 1 - 1e-6).high >= 0.95
    assert exact_interval(within[1], 60, 1 - 1e-6).high < 0.95


@pytest.mark.parametrize("shape", [-6.0, -1.0, 0.0, 0.7, 4.0])
@pytest.mark.parametrize("z", [-9.0, -3.0, 0.0, 3.0])
def test_tails_against_plain_integration(shape: float, z: float) -> None:
    tail, _ = integrate.quad(
        lambda x: stats.skewnorm.pdf(x, shape), -60, z, epsabs=0, points=[z - 2, z - 0.5], limit=500
    )
    (bits,) = SkewNormal(shape, 7.0, 2.0).surprises(np.array([7.0 + 2.0 * z]))
    assert bits == pytest.approx(-math.log2(tail), rel=1e-6, abs=1e-9)


def test_g3_tails_go_on_where_doubles_end() -> None:
    bits = SkewNormal(0.0, 0.0, 1.0).surprises(np.array([-10.0, -50.0, -300.0, np.inf]))
    assert bits == pytest.approx([*(-stats.norm.logcdf([-10.0, -50.0, -300.0]) / math.log(2)), 0.0])


def distance(fit: SkewNormal, values: Floats) -> float:
    """The largest gap between the fit's distribution function and that of `values` (Kolmogorov and Smirnov)."""
    return float(stats.kstest(values, stats.skewnorm(fit.shape, fit.place, fit.scale).cdf).statistic)


@pytest.mark.statistical
def test_g3_extrapolation_finds_ranks_far_beyond_its_sample() -> None:
    """A true skew-normal; within 4 standard errors: false-alarm rate below 1e-3 a value at a fixed seed. Without the
    skew, the control, the estimate is off by more than that."""
    true = stats.skewnorm(3.0, 60.0, 5.0)
    others = -true.rvs(size=5000, random_state=np.random.default_rng(4))
    own = -np.array([58.0, 55.0, 52.0])
    fit = SkewNormal.fitted(-others)
    found = extrapolated_exposures(fit, others, own)
    wanted = -true.logcdf(-own) / math.log(2)
    assert wanted[-1] > 20
    for one, bits in zip(found, wanted, strict=True):
        assert abs(one.bits - bits) < 4 * one.standard_error
        assert 0 < one.standard_error < bits
    plain = SkewNormal(0.0, float(-others.mean()), float(others.std())).surprises(-own)
    assert abs(plain[-1] - wanted[-1]) > 4 * found[-1].standard_error
    assert distance(fit, -others) < 0.02


@pytest.mark.parametrize("method", [Method.SAMPLED, Method.EXTRAPOLATED])
def test_methods_for_large_spaces_agree_with_the_exact_one(method: Method) -> None:
    plan = CanaryPlan("ID {4 digits}.", 10)
    canaries = draw_canaries(plan, np.random.default_rng(9))
    speaker = random_table(4)
    exact = measure(speaker, plan, canaries)
    rough = measure(speaker, plan, canaries, ExposureConfig(method, draws=2000))
    for name, wanted in exact.items():
        assert rough[name]["own"] == pytest.approx(wanted["own"], abs=0.25 + 0.15 * wanted["own"])


def test_a_space_too_large_to_enumerate_is_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = CanaryPlan("{30 digits}", 2)
    canaries = draw_canaries(plan, np.random.default_rng(9))
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    fits: list[tuple[SkewNormal, Floats]] = []

    def fitted(values: Floats) -> SkewNormal:
        fits.append((fit(values), values))
        return fits[-1][0]

    fit = SkewNormal.fitted
    monkeypatch.setattr(SkewNormal, "fitted", fitted)
    result = measure_exposure(random_table(4), plan.slot, canaries, spelling, SETTINGS, np.random.default_rng(0))
    assert (result.method, result.space) == (Method.EXTRAPOLATED, 10**30)
    assert all(one.own.standard_error > 0 and one.own.rank is None for one in result.canaries)
    assert len(fits[0][1]) == 400
    assert distance(*fits[0]) < 0.1


# excess over chance


def by_dealing(inside: list[float], held_out: list[float]) -> tuple[float, float, float]:
    """p-values by going through every way to deal the values out."""
    pooled = [*inside, *held_out]
    place = (len(inside) + 1) // 2

    def statistics(own: list[float]) -> tuple[float, float, float]:
        falling = sorted(own, reverse=True)
        return falling[0], falling[place - 1], sum(own)

    ranks = stats.rankdata(pooled).tolist()
    seen = statistics(ranks[: len(inside)])
    deals = [statistics(list(deal)) for deal in itertools.combinations(ranks, len(inside))]
    best, median, total = (sum(deal[i] >= seen[i] for deal in deals) / len(deals) for i in range(3))
    return best, median, total


values = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=6)


@given(values, values)
@settings(deadline=None)
def test_excess_against_every_way_to_deal(inside: list[float], held_out: list[float]) -> None:
    found = excess_over_chance(inside, held_out)
    p_values = (found.p_best, found.p_median, found.p_all)
    wanted = by_dealing(inside, held_out)
    if len({*inside, *held_out}) == len(inside) + len(held_out):
        assert p_values == pytest.approx(wanted)
    assert all(0 < p <= 1 + 1e-12 for p in p_values)
    pairs = [(a > b) + (a == b) / 2 for a in inside for b in held_out]
    assert found.area == pytest.approx(sum(pairs) / len(pairs))
    assert (found.best_inside, found.best_held_out) == (max(inside), max(held_out))
    worst = [2.0 * value for value in inside], [2.0 * value + 1 for value in held_out]  # equal ones: held out is higher
    assert p_values == pytest.approx(
        tuple(asdict(excess_over_chance(*worst))[f"p_{name}"] for name in ("best", "median", "all"))
    )


@pytest.mark.statistical
def test_p_values_are_valid_and_find_what_is_there() -> None:
    """False-alarm rate below 1e-5: three exact 99.9999 % intervals; the control has bits on the planted side."""
    generator = np.random.default_rng(6)

    def rejections(bits: float) -> list[int]:
        counts = [0, 0, 0]
        for _ in range(500):
            inside, held_out = generator.exponential(1.44, 3) + bits, generator.exponential(1.44, 60)
            found = excess_over_chance(inside.tolist(), held_out.tolist())
            for place, p in enumerate((found.p_best, found.p_median, found.p_all)):
                counts[place] += p <= 0.05
        return counts

    assert all(exact_interval(count, 500, 1 - 1e-6).low <= 0.05 for count in rejections(0.0))
    assert all(exact_interval(count, 500, 1 - 1e-6).low > 0.05 for count in rejections(6.0))


@pytest.mark.statistical
def test_best_chance_is_a_valid_p_value_for_models_that_know_nothing() -> None:
    """False-alarm rate below 1e-6: one exact 99.9999 % interval; the control is a model that memorised a canary."""
    plan, spelling = CanaryPlan("{3 digits}", 8, inside_probability=1.0), Spelling.as_trained(byte_tokenizer(), True)

    def best_chance(seed: int, memorised: bool) -> float:
        speaker, canaries = random_table(seed), draw_canaries(plan, np.random.default_rng(seed))
        if memorised:
            for before, after in itertools.pairwise([256, *canaries[0].value.encode()]):
                speaker.scores[before, after] = -0.01
        result = measure_exposure(speaker, plan.slot, canaries, spelling, SETTINGS, np.random.default_rng(0))
        assert result.best_chance is not None
        return result.best_chance

    known, unknown = (sum(best_chance(seed, memorised) <= 0.1 for seed in range(100)) for memorised in (True, False))
    assert exact_interval(unknown, 100, 1 - 1e-6).low <= 0.1
    assert exact_interval(known, 100, 1 - 1e-6).low > 0.1


def test_many_values_are_compared_without_overflow() -> None:
    generator = np.random.default_rng(0)
    found = excess_over_chance((generator.random(400) + 0.2).tolist(), generator.random(1200).tolist())
    assert found.p_all < 1e-6


# hostile cases


def canaries_of(plan: CanaryPlan) -> tuple[CanaryRecord, ...]:
    return draw_canaries(plan, np.random.default_rng(0))


PLAN = CanaryPlan("ID {2 digits}", 2, inside_probability=1.0)


def test_no_canary_is_refused() -> None:
    with pytest.raises(AttackError, match="at least one canary"):
        measure(random_table(0), PLAN, ())


def test_a_canary_of_another_space_is_refused_by_its_id() -> None:
    foreign = canaries_of(CanaryPlan("ID {3 digits}", 1))
    reworded = tuple(replace(canary, text=f"{canary.text}!") for canary in canaries_of(PLAN))
    for canaries in (foreign, reworded):
        with pytest.raises(AttackError, match="canary-0") as caught:
            measure(random_table(0), PLAN, canaries)
        assert canaries[0].value not in str(caught.value)


def test_a_canary_longer_than_the_context_is_refused() -> None:
    canaries = canaries_of(PLAN)
    measure(replace(random_table(0), context=5), PLAN, canaries)
    with pytest.raises(AttackError, match="at most 4 tokens"):
        measure(replace(random_table(0), context=4), PLAN, canaries)
    long = CanaryPlan("a" * 40 + "{2 digits}", 2)
    with pytest.raises(AttackError, match="at most 40 tokens"):
        measure(model("gpt"), long, canaries_of(long))


def test_a_model_that_does_not_know_the_tokens_is_refused() -> None:
    with pytest.raises(AttackError, match="token 256"):
        measure(Table(torch.zeros(200, 200)), PLAN, canaries_of(PLAN))


@pytest.mark.parametrize("where", [ord("I"), ord(" "), ord("7")])
def test_a_model_that_gives_nan_is_refused(where: int) -> None:
    broken = random_table(0)
    broken.scores[:, where] = float("nan")
    with pytest.raises(AttackError, match="NaN"):
        measure(broken, PLAN, canaries_of(PLAN))


def test_a_space_of_one_is_refused() -> None:
    canary = CanaryRecord("canary-0", "an oak", "oak", True, 1, "an oak", "oak")
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    with pytest.raises(AttackError, match="two candidates"):
        measure_exposure(
            random_table(0), listed("an ", ("oak",)), [canary], spelling, SETTINGS, np.random.default_rng(0)
        )


def test_impossible_tokens_rank_last() -> None:
    speaker = random_table(0)
    speaker.scores[:, ord("7")] = -math.inf
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    tree = TokenTree.of(spelling.of_space(Slot.of("{2 digits}")), spelling.opening)
    totals = total_log_probabilities(speaker, tree)
    (last,) = exact_exposures(totals, totals[[77]])
    assert (last.ties, last.rank) == (18, 91.0)
    with pytest.raises(AttackError, match="finite"):
        measure(speaker, PLAN, canaries_of(PLAN), ExposureConfig(Method.EXTRAPOLATED, draws=300))


def test_no_canary_inside_leaves_no_excess_and_settings_that_mean_nothing_are_refused() -> None:
    outside = canaries_of(replace(PLAN, inside_probability=0.0))
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    result = measure_exposure(random_table(0), PLAN.slot, outside, spelling, SETTINGS, np.random.default_rng(0))
    assert result.excess is None
    assert result.best_chance is None
    for wrong in ({"draws": 10}, {"memory": 0}):
        with pytest.raises(AttackError):
            ExposureConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(AttackError, match="both sides"):
        excess_over_chance([], [1.0])
    with pytest.raises(AttackError, match="NaN"):
        excess_over_chance([math.nan], [1.0])


def test_g4_results_hold_no_value() -> None:
    plan = CanaryPlan("{2 words}", 3, words=("zebra", "quagga", "okapi"))
    canaries = canaries_of(plan)
    spelling = Spelling.as_trained(byte_tokenizer(), marked=True)
    result = measure_exposure(random_table(0), plan.slot, canaries, spelling, SETTINGS, np.random.default_rng(0))
    assert not any(word in json.dumps(asdict(result)) for word in plan.words)


def test_training_on_canaries_exposes_them_and_not_their_twins() -> None:
    """One fixed seed, so no false alarms; the same model before training is the negative control."""
    plan = CanaryPlan("My ID is {4 digits}.", 12, inside_probability=0.5)
    canaries = draw_canaries(plan, np.random.default_rng(4))
    torch.manual_seed(1)
    learner, words = LSTM.new(LSTMConfig(258, 32, 64, dropout=0.0)), byte_tokenizer()
    spelling = Spelling.as_trained(words, marked=True)
    batch = TextBatch.of_rows([[words.end, *words.encode(one.text), words.end] for one in canaries if one.inside])
    found = {}
    for steps in (0, 150):
        optimizer = torch.optim.Adam(learner.module.parameters(), lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            torch.autograd.backward((learner.token_losses(batch).losses * batch.weights).mean())
            optimizer.step()
        result = measure_exposure(learner, plan.slot, canaries, spelling, SETTINGS, np.random.default_rng(0))
        assert result.excess is not None
        assert result.best_chance is not None
        found[steps] = result.excess.p_all, result.best_chance, result.excess.median_inside
    assert found[0][0] > 0.01
    assert found[0][1] > 0.01
    assert found[150][0] < 0.001
    assert found[150][1] < 0.01
    assert found[150][2] > 10


@pytest.mark.parametrize("apart", [False, True])
def test_scores_for_the_bound_are_those_of_whole_texts(apart: bool) -> None:
    """A canary's own score, and its margin over its twin, by id and whatever the order."""
    plan = CanaryPlan("My ID is {2 digits}.", 12)
    canaries = draw_canaries(plan, np.random.default_rng(4))
    spelling = Spelling(tokenizer("bpe"), (tokenizer("bpe").end,), apart)
    totals = whole(model("lstm"), plan.slot, spelling)
    own = {canary.id: totals[int(canary.value)] for canary in canaries}
    margins = {canary.id: totals[int(canary.value)] - totals[int(canary.twin_value)] for canary in canaries}
    for order in (canaries, canaries[::-1]):
        assert own_scores(model("lstm"), plan.slot, order, spelling).by_id == pytest.approx(own, abs=1e-3)
        assert twin_margins(model("lstm"), plan.slot, order, spelling).by_id == pytest.approx(margins, abs=1e-3)
