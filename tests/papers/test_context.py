"""The alpha-context against trying every suffix by itself; the command and the policy that use it."""

import hashlib
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from torch import Tensor
from typer.testing import CliRunner, Result

from marking import check_detector_data
from readers import finish_plainly
from saved import save_pretrained
from tacit.cli.generate import _Shown
from tacit.cli.main import app
from tacit.config.model_schema import CausalLMConfig, LSTMConfig
from tacit.data.batches import TextBatch
from tacit.data.records import Record, Span, spans_fault
from tacit.data.tokenizer import NOTHING, byte_tokenizer, train_bpe
from tacit.errors import ConfigError, ModelError, PolicyError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import DecoderState, Learner
from tacit.models.lstm import LSTM
from tacit.papers.alpha_context import (
    ContextModel,
    Contexts,
    LeftContext,
    Suffix,
    WithAlphaContext,
    check_alpha,
    context_model,
)
from tacit.policies.detectors.detector import detector_data
from tacit.policies.patterns import Digits
from tacit.policies.registry import build_policy, parse_policy
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile
from tacit.runs.weights import write_model

BLOCK = "█████"
ALPHAS = (0.0, 0.001, 0.01, 0.05, 0.2, 0.9)


class Erratic:
    """A Speaker whose probabilities are a hash of all that was read: nothing about them is monotone or smooth."""

    def __init__(self, context: int = sys.maxsize) -> None:
        self.context = context
        self.vocabulary_size = 258

    def log_probabilities(self, batch: TextBatch) -> Tensor:
        rows = [[self._said(row[: at + 2]) for at in range(len(row) - 1)] for row in batch.tokens.tolist()]
        return torch.tensor(rows, dtype=torch.float64).log()

    def begin(self, tokens: Tensor) -> DecoderState:
        raise NotImplementedError

    @staticmethod
    def _said(tokens: list[int]) -> float:
        digest = hashlib.blake2b(bytes(token % 256 for token in tokens), digest_size=2).digest()
        return (1 + int.from_bytes(digest, "big")) / (2**16 + 1)


def erratic(context: int = sys.maxsize, joined: bool = False) -> ContextModel:
    tokenizer = byte_tokenizer()
    return ContextModel(Erratic(context), tokenizer, tokenizer.end, joined, "erratic")


def lstm() -> ContextModel:
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    learner = LSTM.new(LSTMConfig(tokenizer.vocabulary_size, hidden_size=12, embedding_size=8, dropout=0.5))
    return ContextModel.of(learner, tokenizer, tokenizer.end, joined=False)


def one_by_one(model: ContextModel, text: str, start: int, end: int) -> list[tuple[int, float]]:
    """The slow twin: for 0, 1, 2, ... words where they begin and the probability after them, each in a row of its own.

    Words are found by walking back through the characters.
    """
    border = len(text[:start].rstrip()) if model.joined else start
    wordlike = [character.isalnum() or character == "_" for character in text]
    firsts = [
        at for at in range(border) if not text[at].isspace() and not (wordlike[at] and at > 0 and wordlike[at - 1])
    ]
    found = []
    for words in range(len(firsts) + 1):
        cut = border
        if words:
            cut = firsts[-words]
            while cut > 0 and text[cut - 1].isspace():
                cut -= 1
        tokens = [model.opening, *model.tokenizer.encode(text[cut:border])]
        total = 0.0
        for token in model.tokenizer.encode(text[border:end]):
            row = torch.tensor([[*tokens, token]])
            total += float(model.speaker.log_probabilities(TextBatch.of_tokens(row))[0, -1])
            tokens.append(token)
        found.append((firsts[-words] if words else start, float(torch.tensor(total, dtype=torch.float64).exp())))
    return found


TEXTS = st.lists(
    st.sampled_from(["my", "ID", "is", "417", "no.", " ", "\n", "it's", "é😀", "a_b", "$"]), min_size=1, max_size=9
)


@given(TEXTS, st.booleans(), st.sampled_from(ALPHAS), st.data())
@settings(max_examples=60, deadline=None)
def test_g1_it_is_what_trying_all_suffixes_gives(
    words: list[str], joined: bool, alpha: float, data: st.DataObject
) -> None:
    model, text = erratic(joined=joined), " ".join(words)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, min(len(text), start + 3)))
    assume(joined or text[start:end].strip())
    slow = one_by_one(model, text, start, end)
    whole = slow[-1][1]
    expected = next(number for number, (_, p) in enumerate(slow) if abs(p - whole) <= alpha)
    left = LeftContext(model, text, start, end)
    shortest = left.alpha_context(alpha)
    assert shortest is not None
    assert (shortest.words, shortest.start) == (expected, slow[expected][0])
    every = list(left.suffixes())
    assert [one.start for one in every] == [place for place, _ in slow]
    assert [one.probabilities[0] for one in every] == pytest.approx([p for _, p in slow])
    lasting = Contexts(0, left.probability, alpha, tuple(every)).settled
    assert lasting is not None
    assert lasting.words == min(
        number for number in range(len(slow)) if all(abs(p - whole) <= alpha for _, p in slow[number:])
    )


def test_g1_batches_and_padding_change_nothing_in_a_real_model() -> None:
    model, text = lstm(), "SYS: Who is it?\nUSR: My name is Ann Lee, order 4177. " * 2 + "My code is 9 3"
    start = text.rindex("9 3")
    slow = one_by_one(model, text, start, len(text))
    fast = list(LeftContext(model, text, start, len(text)).suffixes())
    assert len(fast) == len(slow) > 30
    assert [one.probabilities[0] for one in fast] == pytest.approx([p for _, p in slow], rel=1e-4)


@given(TEXTS, st.data())
@settings(max_examples=60, deadline=None)
def test_g2_there_always_is_one_and_g3_a_larger_alpha_gives_a_shorter_one(
    words: list[str], data: st.DataObject
) -> None:
    text = " ".join(words)
    start = data.draw(st.integers(0, len(text) - 1))
    left = LeftContext(erratic(), text, start, start + 1)
    found = [left.alpha_context(alpha) for alpha in ALPHAS]
    lengths = [one.words for one in found if one is not None]
    assert len(lengths) == len(ALPHAS)
    assert lengths == sorted(lengths, reverse=True)


def test_g2_holds_for_alpha_zero_in_float32() -> None:
    model = lstm()
    for text in ("My code is 42", "a b c d e f g h i j k l m n o p 42"):
        found = LeftContext(model, text, len(text) - 2, len(text)).alpha_context(0.0)
        assert found is not None
        assert text[found.start :].endswith("42")


def test_g4_dropout_is_off_and_the_result_fixed() -> None:
    model = lstm()
    left = [list(LeftContext(model, "My code is 42", 11, 13).suffixes()) for _ in range(2)]
    assert left[0] == left[1]


def test_shortest_means_shortest_though_longer_ones_leave_again() -> None:
    """Suffixes need not be monotone: there are texts whose second suffix is within alpha and whose third is not."""
    for number in range(100):
        text = f"one two three four five {number}"
        left = LeftContext(erratic(), text, text.rindex(" ") + 1, len(text))
        every, shortest = list(left.suffixes()), left.alpha_context(0.05)
        lasting = Contexts(0, left.probability, 0.05, tuple(every)).settled
        if shortest is not None and lasting is not None and shortest.words < lasting.words:
            assert any(one.gap(left.probability) > 0.05 for one in every[shortest.words + 1 :])
            return
    pytest.fail("no such text among a hundred")


def test_with_phi_the_suffix_and_all_its_paraphrases_must_agree() -> None:
    model, text = erratic(), "hello there my code is 7"
    left = LeftContext(model, text, len(text) - 1, len(text))
    seen: list[str] = []

    def phi(suffixes: Sequence[str]) -> list[list[str]]:
        seen.extend(suffixes)
        return [[suffix.replace("code", "number"), suffix.upper()] for suffix in suffixes]

    every = list(left.suffixes(phi))
    assert [len(one.probabilities) for one in every] == [1, 3, 3, 3, 3, 3]
    assert seen == [
        "is",
        "code is",
        "my code is",
        "there my code is",
        "hello there my code is",
    ]  # no white space around
    said = model.probabilities([" code is ", " number is ", " CODE IS "], "7")
    assert every[2].probabilities == pytest.approx(tuple(said))
    assert every[2].gap(left.probability) == max(abs(one - left.probability) for one in said)
    assert left.alpha_context(0.0, phi) is None or left.alpha_context(0.0, phi) == every[0]
    assert left.alpha_context(0.0, lambda texts: [[] for _ in texts]) == left.alpha_context(0.0)


def test_a_context_too_long_for_the_model_is_read_as_far_as_it_fits() -> None:
    text = "one two three four five six 77"
    start = len(text) - 2
    for room in (2, 3, 8, 9, 15, 29, 30):
        left = LeftContext(erratic(room), text, start, len(text))
        every = list(left.suffixes())
        expected = [
            p
            for s, p in one_by_one(erratic(), text, start, len(text))
            if len(text) - max(0, s - 1) <= room or s == start
        ]
        assert [one.probabilities[0] for one in every] == pytest.approx(expected)
        assert left.probability == pytest.approx(expected[-1])
    with pytest.raises(ConfigError, match="at most 1 tokens"):
        LeftContext(erratic(1), text, start, len(text))


def test_nothing_before_the_target_and_targets_that_are_none() -> None:
    model = erratic()
    for text, start in (("42", 0), ("  \n 42", 4)):
        every = list(LeftContext(model, text, start, start + 2).suffixes())
        assert every == [Suffix(0, start, (every[0].probabilities[0],))]
        assert every[0].probabilities[0] == pytest.approx(model.probabilities([""], "42")[0])
    for start, end in ((0, 0), (3, 2), (-1, 2), (0, 9)):
        with pytest.raises(ConfigError, match="a target inside"):
            LeftContext(model, "abc 42", start, end)
    for alpha in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="alpha"):
            check_alpha(alpha)


def test_a_model_that_diverged_is_refused() -> None:
    class Lost(Erratic):
        def log_probabilities(self, batch: TextBatch) -> Tensor:
            return torch.full(batch.weights.shape, float("nan"))

    model = replace(erratic(), speaker=Lost())
    with pytest.raises(ModelError, match="NaN"):
        LeftContext(model, "my code 42", 8, 10).alpha_context(0.1)


LEARNED = "No 4 is qwe"


def learn(model: Learner, rows: list[list[int]], steps: int) -> None:
    """By heart."""
    optimizer = torch.optim.Adam(model.module.parameters(), 3e-2)
    batch = TextBatch.of_rows(rows)
    for _ in range(steps):
        optimizer.zero_grad()
        model.token_losses(batch).total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a model that learned a text by heart."""
    folder = tmp_path_factory.mktemp("context") / "run"
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    model = LSTM.new(LSTMConfig(tokenizer.vocabulary_size, hidden_size=48, embedding_size=16, dropout=0.0))
    learn(model, [[tokenizer.end, *tokenizer.encode(LEARNED)]], 150)
    with RunFolder.create(folder) as opened:
        opened.write_json(ReleaseFile.ARCHITECTURE, model.description())
        opened.write(ReleaseFile.TOKENIZER, tokenizer.save)
        write_model(opened, model.module.state_dict())
        finish_plainly(opened)
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder: a small GPT-2 that learned one text."""
    place = tmp_path_factory.mktemp("foreign")
    tokenizer = train_bpe(["Hello. My ID is 417 and 34"] * 3, 300, NOTHING)
    (place / "tokenizer.json").write_text(json.dumps(tokenizer.codec.definition()["content"]))
    torch.manual_seed(0)
    model = CausalLM.new(CausalLMConfig(tokenizer.codec.size, width=32, layers=1, heads=2, context=16, dropout=0.0))
    config: Any = model.module.config
    config.bos_token_id = 7
    learn(model, [[7, *tokenizer.encode("My ID is 417.")]], 40)
    save_pretrained(model, place)
    return place


def test_what_a_model_learned_by_heart_has_a_context(run_folder: Path) -> None:
    left = LeftContext(context_model(run_folder), LEARNED, 8, 11)
    found = left.alpha_context(0.1)
    assert left.probability > 0.9
    assert next(left.suffixes()).probabilities[0] < 0.5  # after nothing it expects "No"
    assert found is not None
    assert found.words >= 1


def test_a_foreign_target_is_scored_with_the_blank_before_it(foreign: Path) -> None:
    model = context_model(foreign)
    text = "My ID is 417."
    left = LeftContext(model, text, 9, 12)
    encoded = torch.tensor([[7, *model.tokenizer.encode("My ID is 417")]])
    ending = len(model.tokenizer.encode(" 417"))
    assert model.tokenizer.encode("My ID is") + model.tokenizer.encode(" 417") == encoded[0, 1:].tolist()
    total = model.speaker.log_probabilities(TextBatch.of_tokens(encoded))[0, -ending:].sum()
    assert left.probability == pytest.approx(float(total.exp()), rel=1e-4)
    assert left.probability > 0.5
    suffix = model.tokenizer.encode(" ID is")
    assert model.tokenizer.encode("My ID is")[-len(suffix) :] == suffix  # a suffix has the tokens it has in the text
    long = "Hello and hello. " * 9 + text
    assert len(list(LeftContext(model, long, len(long) - 4, len(long) - 1).suffixes())) < 16


def run(*words: str | Path, given: str | None = None) -> Result:
    result = CliRunner().invoke(app, ["context", *map(str, words)], input=given, env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_command_marks_the_context_and_hides_the_target(run_folder: Path) -> None:
    text, secret = LEARNED, "qwe"
    words = (text, "--target", secret, "--model", run_folder, "--alpha", "0.1", "--table")
    hidden, shown = run(*words).output, run(*words, "--show-secrets").output
    assert secret not in hidden
    assert f"[target {BLOCK}]" in hidden
    assert f"[target {secret}]" in shown
    assert "[context " in hidden
    assert (
        len([line for line in hidden.splitlines() if line.rstrip().endswith((" No", " is", " 4"))]) == 3
    )  # of the table
    assert "After the 3 words and marks before it that the model can read" in hidden
    assert all(cell_len(line) <= 200 for line in hidden.splitlines())
    assert run("-", *words[1:], given=text).output == hidden


def test_a_target_that_stands_more_than_once(foreign: Path) -> None:
    text = "ID 417, my id is 417"
    first, last = (
        run(text, "--target", "417", "--model", foreign, *which).output for which in (("--occurrence", "1"), ())
    )
    assert first.startswith((f"[context ID] [target {BLOCK}]", f"ID [target {BLOCK}]"))
    assert f"[target {BLOCK}]" in last.splitlines()[0][-20:]
    assert "417" not in first + last


def test_no_cut_shows_a_part_of_a_target_that_stands_elsewhere(foreign: Path) -> None:
    text = "John Smith is here, johnsmith is not. Call John Smith"
    words = (text, "--target", "John Smith", "--model", foreign, "--table")
    for alpha in ("0", "0.0001", "0.01", "0.9"):
        for which in ("1", "2"):
            printed = run(*words, "--alpha", alpha, "--occurrence", which).output
            assert "John" not in printed
            assert "Smith" not in printed
            assert "johnsmith" in printed
    assert "Smith" in run(*words, "--show-secrets").output


@pytest.mark.parametrize(
    ("text", "target"), [("aaa b", "aa"), ("John Smith. John Smith", "John Smith"), ("xab b", "b")]
)
def test_every_word_that_overlaps_a_target_is_hidden_wherever_it_is_cut(text: str, target: str) -> None:
    inside = {at + n for at in range(len(text)) if text.startswith(target, at) for n in range(len(target))}
    words = [set(range(*found.span())) for found in re.finditer(r"\w+", text)]
    inside |= {at for word in words if word & inside for at in word}
    for start in range(len(text) + 1):
        for end in range(start, len(text) + 1):
            seen = "".join(text[at] for at in range(start, end) if at not in inside)
            assert _Shown(text, target).part(start, end).replace(BLOCK, "") == seen
            assert _Shown(text, None).part(start, end) == text[start:end]
    for word in words:
        first = _Shown(text, target).first_word(min(word))
        assert first == (BLOCK if word & inside else text[min(word) : max(word) + 1])


def test_paraphrases_are_asked_for_by_name(foreign: Path) -> None:
    words = ("My code is 417", "--target", "417", "--model", foreign, "--table")
    plain, reworded = run(*words).output, run(*words, "--reword", "--most", "3").output
    assert "paraphrases" not in plain
    assert "with 3 paraphrases at most" in reworded
    echoed = run(*words, "--round-trip", "cat").output  # says what it was told: no paraphrase is added
    assert echoed.splitlines()[0] == plain.splitlines()[0]
    none = run(*words, "--reword", "--alpha", "0").output
    assert "No suffix" in none
    assert "417" not in none


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("text", "--target", "417"), "without it"),
        (("text", "--target", ""), "empty"),
        (("417", "--target", "417", "--occurrence", "2"), "occurrence 2"),
        (("a 417", "--target", "417", "--alpha", "1.5"), "1.5"),
    ],
)
def test_what_the_command_refuses(foreign: Path, words: tuple[str, ...], found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(*words, "--model", foreign)
    assert found in refused.value.found
    assert "417" not in str(refused.value)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a finished run, or a local folder"):
        run("a 417", "--target", "417", "--model", tmp_path / "none")


def alpha_policy(folder: Path, alpha: float = 0.1) -> WithAlphaContext:
    return WithAlphaContext.of(Digits(), folder, alpha, "disjoint")


def test_the_policy_marks_the_secret_and_its_context(foreign: Path) -> None:
    text = "My ID is 417 or 99"
    found = alpha_policy(foreign).find(Record("1", text))
    contexts = [
        LeftContext(context_model(foreign), text, start, end).alpha_context(0.1) for start, end in ((9, 12), (16, 18))
    ]
    marked = {at for span in found for at in range(span.start, span.end)}
    expected = {
        at
        for context, end in zip(contexts, (12, 18), strict=True)
        if context is not None
        for at in range(context.start, end)
    }
    assert marked == expected >= {9, 10, 11, 16, 17}
    assert found[0].start < 9
    assert {span.kind for span in found} == {"DIGITS"}
    assert alpha_policy(foreign).find(Record("1", "no number")) == ()


@given(st.text(st.sampled_from("aB1 .\né"), max_size=40))
@settings(max_examples=25, deadline=None)
def test_the_policy_is_pure_and_tidy_and_covers_what_it_widens(foreign: Path, text: str) -> None:
    policy, record = alpha_policy(foreign, 0.001), Record("1", text)
    found = policy.find(record)
    assert spans_fault(found, len(text)) is None
    assert found == pickle.loads(pickle.dumps(policy)).find(record)
    characters = {at for span in found for at in range(span.start, span.end)}
    assert characters >= {at for span in Digits().find(record) for at in range(span.start, span.end)}


def test_a_secret_too_long_for_the_model_stands_alone(foreign: Path) -> None:
    text = "My ID is " + "417" * 40
    assert alpha_policy(foreign).find(Record("1", text)) == (Span(9, len(text), "DIGITS"),)


def test_yaml_gives_the_policy_and_says_what_is_missing(foreign: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"policy": "digits", "to": "alpha-context", "model": str(foreign), "alpha": 0.1}
    with pytest.raises(PolicyError, match="learned from"):
        build_policy({"widened": fields})
    with pytest.raises(ConfigError, match="same"):
        build_policy({"widened": {**fields, "trained_on": "same"}})
    with pytest.raises(PolicyError, match="`model`"):
        build_policy({"widened": {"policy": "digits", "to": "alpha-context", "trained_on": "public"}})
    with pytest.raises(PolicyError, match="alone"):
        build_policy({"widened": {**fields, "to": "sentence"}})
    with pytest.raises(ConfigError, match="alpha-context"):
        build_policy({"widened": {**fields, "to": "alpha_context"}})
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"policy": {"widened": {**fields, "trained_on": "disjoint"}}}))
    policy = parse_policy(str(file))
    assert policy == alpha_policy(foreign)
    assert policy.hash == alpha_policy(foreign).hash != alpha_policy(foreign, 0.2).hash
    assert "trained on disjoint data" in policy.id
    assert str(foreign) not in json.dumps(policy.content())


def test_a_run_may_use_it_and_says_what_the_model_learned_from(foreign: Path) -> None:
    policy = alpha_policy(foreign) | Digits()
    check_detector_data(policy, lambda: [Record("1", "My ID is 417.")])  # no source is known to compare with
    assert detector_data(policy) == "disjoint"


def test_another_model_has_another_hash_and_is_refused(foreign: Path) -> None:
    policy = alpha_policy(foreign)
    changed = replace(policy, model_hash="0" * 64)
    with pytest.raises(PolicyError, match="that the policy was made with"):
        changed.find(Record("1", "ID 417"))
    assert changed.hash != policy.hash
    torch.manual_seed(1)
    tokenizer = byte_tokenizer()
    shape = LSTMConfig(tokenizer.vocabulary_size, hidden_size=12, embedding_size=8, dropout=0.5)
    other = ContextModel.of(LSTM.new(shape), tokenizer, tokenizer.end, joined=False)
    assert lstm().hash == lstm().hash != other.hash


def test_policies_load_without_torch() -> None:
    code = "import sys, tacit.policies.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
