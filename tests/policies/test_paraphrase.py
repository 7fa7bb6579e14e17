"""The map phi: each way by itself, and what holds for all of them together."""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError, TacitError
from tacit.policies.detectors.linear import masked
from tacit.policies.detectors.paraphrase import ParaphraseFunction, RoundTrip, SameMeaning, phi_of
from tacit.policies.detectors.rewording import FRAMES, SYNONYMS, Rewording

CANARY = "My bank security code is"
OTHER = "I received my social security card; my number is"


@dataclass(frozen=True, slots=True)
class Asked:
    """A way from a function."""

    function: Callable[[str], Sequence[str]]

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        """What the function says."""
        return [list(self.function(text)) for text in texts]

    def described(self) -> dict[str, Any]:
        """Its name."""
        return {"way": "function", "name": f"{self.function.__module__}.{self.function.__qualname__}"}


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


UPPER = python("import sys; sys.stdout.write(sys.stdin.read().upper())")
BACKWARDS = python("import sys\nfor line in sys.stdin: print(' '.join(reversed(line.split())))")


def test_g1_the_same_seed_gives_the_same_paraphrases_and_another_seed_others() -> None:
    phi = ParaphraseFunction((Rewording(),), most=50)
    assert phi.paraphrases([CANARY, OTHER], 3) == phi.paraphrases([CANARY, OTHER], 3)
    assert phi.paraphrases([CANARY], 3) != phi.paraphrases([CANARY], 4)


@given(prompts=st.lists(st.sampled_from([CANARY, OTHER, "my dog", "x", "Our PIN is", "ÉTÉ 42 is"]), max_size=4))
@settings(max_examples=10)
def test_g2_g3_no_two_read_the_same_and_prompts_do_not_disturb_each_other(prompts: list[str]) -> None:
    phi = (
        ParaphraseFunction((Rewording(60), RoundTrip((BACKWARDS,))), most=30)
        if len(prompts) == 1
        else ParaphraseFunction((Rewording(60),), most=30)
    )
    together = phi.paraphrases(prompts, 1)
    assert [said[0] for said in together] == prompts
    for prompt, said in zip(prompts, together, strict=True):
        assert len(said) <= 30
        assert len(set(masked(said))) == len(said)
        assert phi.paraphrases([prompt], 1) == [said]


def test_a_later_way_rewords_what_earlier_ones_said() -> None:
    shout = Asked(lambda text: [f"{text} loudly"])
    twice = Asked(lambda text: [f"again {text}"])
    assert ParaphraseFunction((shout, twice)).paraphrases(["a b"], 0) == [
        ["a b", "a b loudly", "again a b", "again a b loudly"]
    ]


def test_what_means_something_else_is_dropped() -> None:
    class Shared(SameMeaning):
        def likeness(self, text: str, others: Sequence[str]) -> list[float]:
            words = set(text.split())
            return [len(words & set(other.split())) / len(words) for other in others]

    say = Asked(lambda text: ["my bank code", "my dog barks", "bank code mine"])
    phi = ParaphraseFunction((say,), meaning=Shared(Path("words")), alike=0.6)
    assert phi.paraphrases(["my bank code is"], 0) == [["my bank code is", "my bank code"]]
    assert phi.described()["meaning"] == {"encoder": "words", "at_least": 0.6}


def test_rewording_has_many_frames_for_a_prompt_and_keeps_what_it_is_about() -> None:
    said = Rewording().say([CANARY, OTHER, "The weather"], 0)
    assert len(said[0]) > 500
    assert len(said[1]) > 300
    assert set(said[2]) <= {text for text in said[2] if "weather" in text.lower()}
    heads = {"code", "codeword", "digits", *(word.lower() for word in " ".join(SYNONYMS["code"]).split())}
    assert all(heads & set(masked([text])[0].split()) for text in said[0] if "0" not in masked([text])[0])


@pytest.mark.parametrize(
    "prompt", ["My ssn is", "my social security number is", "My social security no. is", "X", "", "is"]
)
def test_rewording_takes_any_prompt(prompt: str) -> None:
    assert isinstance(Rewording(300).say([prompt], 5)[0], list)


def test_every_frame_says_the_thing() -> None:
    assert all("{thing}" in frame or "{head}" in frame for frame in FRAMES)


def test_round_trip_goes_through_programs_in_a_row() -> None:
    trip = RoundTrip((UPPER, BACKWARDS))
    assert trip.say(["a b c", "d  e\nf"], 0) == [["C B A"], ["F E D"]]
    assert trip.say([], 0) == []


def test_commands_are_parsed_without_a_shell(tmp_path: Path) -> None:
    words = "apertium -u eng-spa|apertium -u 'spa-eng' | tr '; x' '#'"
    expected = (("apertium", "-u", "eng-spa"), ("apertium", "-u", "spa-eng"), ("tr", "; x", "#"))
    assert RoundTrip.parse(words).programs == expected
    made = tmp_path / "made"
    echo = f"{sys.executable} -c 'import sys; sys.stdout.write(sys.stdin.read())' ; touch {made} $(touch {made})"
    RoundTrip.parse(echo).say(["a"], 0)
    assert not made.exists()


@pytest.mark.parametrize("words", ["", "|", "cat |", "| cat", "cat 'a"])
def test_incomplete_commands_are_refused(words: str) -> None:
    with pytest.raises(ConfigError):
        RoundTrip.parse(words)


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        (("no-such-program-at-all",), "none of that name"),
        (python("raise SystemExit(3)"), "ended with 3"),
        (python("print('one line')"), "found 1"),
    ],
)
def test_programs_that_fail_are_said_so_without_the_text(program: tuple[str, ...], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        RoundTrip((program,)).say(["secret words", "more"], 0)
    assert "secret" not in str(caught.value)


def test_a_phi_needs_a_way_and_sound_numbers() -> None:
    with pytest.raises(ConfigError, match="at least one way"):
        phi_of(reword=False)
    with pytest.raises(ConfigError):
        ParaphraseFunction((Rewording(),), most=0)
    with pytest.raises(ConfigError):
        ParaphraseFunction((Rewording(),), alike=1.5)
    described = phi_of(round_trips=["cat | cat"]).described()
    assert [way["way"] for way in described["ways"]] == ["rewording", "round trip"]


@pytest.mark.slow
def test_a_sequence_to_sequence_model_paraphrases(tmp_path: Path) -> None:
    """A tiny T5 with random weights says something, the same each time; it means nothing."""
    pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    from tacit.policies.detectors.paraphrase import Sequence2Sequence

    words = ["<pad>", "</s>", "<unk>", "my", "bank", "security", "code", "is", "the"]
    plain = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=plain, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(tmp_path)
    torch.manual_seed(0)
    shape: dict[str, Any] = {"d_model": 8, "d_ff": 8, "d_kv": 4, "num_layers": 1, "num_heads": 2}
    shape |= {"vocab_size": len(words), "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    T5ForConditionalGeneration(T5Config(**shape)).save_pretrained(tmp_path)
    way = Sequence2Sequence((tmp_path, tmp_path), beams=2)
    said = way.say(["my bank code is", "the code"], 0)
    assert all(len(one) in (1, 2) for one in said)
    assert way.say(["my bank code is", "the code"], random.randrange(9)) == said
    with pytest.raises(TacitError):
        Sequence2Sequence((tmp_path / "nowhere",)).say(["a"], 0)
