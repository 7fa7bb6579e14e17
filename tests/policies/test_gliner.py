"""GLiNER: windows against slow twins, what is refused and why; the package itself where it can be installed."""

import re
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tacit.data.records import Record, Span, spans_fault
from tacit.errors import PolicyError
from tacit.policies import gliner
from tacit.policies.gliner import Gliner, Reader
from tacit.policies.registry import build_policy

LABELS = ("person", "passport number")
WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
TEXT = "Ann Lee met Bob, and 7-7 e.V. in Rome. " * 12 + "x" * 90 + " Zoe"
MAX_WORDS, MAX_TOKENS = 12, 60


class StandIn:
    """What `Reader` uses of a model of gliner. It finds capitals, with the score of the words around them.

    Like gliner it counts words, and leaves out what is too long; here that fails a test.
    """

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401
        self.config = SimpleNamespace(max_len=MAX_WORDS)
        self.data_processor = SimpleNamespace(transformer_tokenizer=tokenizer)
        self.asked: list[str] = []

    def predict_entities(self, text: str, labels: list[str], threshold: float) -> list[dict[str, Any]]:
        words = list(WORD.finditer(text))
        prompt = [part for label in labels for part in ("x", label)]
        read = self.data_processor.transformer_tokenizer([*prompt, "x", *(word[0] for word in words)])
        assert len(words) <= MAX_WORDS
        assert sum(map(len, read["input_ids"])) <= MAX_TOKENS or len(words) == 1
        self.asked.append(text)
        return [
            {"start": word.start(), "end": word.end(), "label": labels[place % len(labels)], "score": 0.9}
            for place, word in enumerate(words)
            if word[0][0].isupper()
        ]


@pytest.fixture(scope="module")
def tokenizer() -> Any:  # noqa: ANN401
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:!?-"]
    pieces = ["[UNK]", *letters, *(f"##{letter}" for letter in letters)]
    words = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=words, unk_token="[UNK]", model_max_length=MAX_TOKENS
    )


def test_every_word_of_a_long_text_is_read(tokenizer: Any) -> None:  # noqa: ANN401
    """The twin looks at the words one by one: the stand-in's findings do not depend on a word's neighbors."""
    found = list(Reader(StandIn(tokenizer)).read(TEXT, ("person",), 0.3))
    expected = [word.span() for word in WORD.finditer(TEXT) if word[0][0].isupper()]
    assert [(start, end) for start, end, _ in found] == expected
    assert list(Reader(StandIn(tokenizer)).read(" \n", ("person",), 0.3)) == []


def test_a_finding_counts_in_the_window_in_which_it_has_most_context(tokenizer: Any) -> None:  # noqa: ANN401
    class Placed(StandIn):
        """Finds every word, and labels it with the window that was asked for."""

        def predict_entities(self, text: str, labels: list[str], threshold: float) -> list[dict[str, Any]]:
            super().predict_entities(text, labels, threshold)
            number = str(len(self.asked) - 1)
            return [{"start": one.start(), "end": one.end(), "label": number} for one in WORD.finditer(text)]

    model = Placed(tokenizer)
    words = " ".join(f"w{number}" for number in range(40))
    found = list(Reader(model).read(words, ("x",), 0.3))
    spans = [(words.index(asked), words.index(asked) + len(asked)) for asked in model.asked]
    assert len(spans) > 3
    assert len(found) == 40
    for span in found:
        contexts = [
            min(
                words.count(" ", start, span.start) if start else 99,
                words.count(" ", span.end, end) if end < len(words) else 99,
            )
            if start <= span.start and span.end <= end
            else -1
            for start, end in spans
        ]
        assert contexts[int(span.kind)] == max(contexts)


def test_too_many_labels_are_refused(tokenizer: Any) -> None:  # noqa: ANN401
    with pytest.raises(PolicyError, match="half of the 60 tokens"):
        list(Reader(StandIn(tokenizer)).read("Ann", ("abcdefghij",) * 4, 0.3))


# what is installed, and what a folder needs


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions of packages, as the test says; gliner wants a transformers before 6."""
    versions = {"gliner": "0.2.29", "transformers": "5.5"}
    monkeypatch.setattr(gliner, "version", lambda name: versions.get(name) or version(name))
    monkeypatch.setattr(gliner, "requires", lambda _: ["torch>=2", "transformers<6,>=4", "langdetect; extra == 'x'"])
    return versions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in (("model.safetensors", ""), ("tokenizer.json", "{}"), ("gliner_config.json", "{}")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "gliner_config.json").write_text('{"encoder_config": {}}', encoding="utf-8")
    return tmp_path


def test_a_missing_gliner_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(gliner, "version", missing)
    with pytest.raises(PolicyError, match=r"found a Python without it\. Way out: pip install gliner"):
        build_policy({"gliner": {"folder": str(folder), "labels": ["person"]}})


def test_a_gliner_that_wants_another_transformers_is_refused(installed: dict[str, str], folder: Path) -> None:
    Gliner(str(folder), LABELS)
    installed["transformers"] = "6.0.1"
    with pytest.raises(PolicyError, match=r"gliner 0\.2\.29 can read with \(<6,>=4\); found transformers 6\.0\.1"):
        Gliner(str(folder), LABELS)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("model.safetensors", None, "no model.safetensors"),
        ("tokenizer.json", None, "no tokenizer.json"),
        ("gliner_config.json", None, "no gliner_config.json"),
        ("gliner_config.json", "{}", "without `encoder_config`"),
        ("gliner_config.json", "{", "without `encoder_config`"),
    ],
)
def test_a_folder_must_be_whole(
    installed: dict[str, str], folder: Path, name: str, content: str | None, found: str
) -> None:
    """What gliner misses it would read from a pickle, or fetch."""
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(PolicyError, match=re.escape(found)):
        Gliner(str(folder), LABELS)


def test_definitions_name_labels_and_their_kinds(installed: dict[str, str], folder: Path) -> None:
    listed = build_policy({"gliner": {"folder": folder.name, "labels": list(LABELS)}}, folder.parent)
    assert listed == Gliner(str(folder), LABELS)
    given = {"person": "customer", "passport number": "ID"}
    mapped = build_policy({"gliner": {"folder": folder.name, "labels": given, "threshold": 0.5}}, folder.parent)
    assert mapped == Gliner(str(folder), LABELS, 0.5, given)
    assert listed.id == f"gliner:{folder.name}:0.3:person+passport number"
    assert listed.content()["labels"] == {"person": "PERSON", "passport number": "ID"}
    assert mapped.content()["labels"] == {"person": "CUSTOMER", "passport number": "ID"}
    assert listed.hash != mapped.hash
    assert listed.hash != Gliner(str(folder), LABELS[::-1]).hash
    wrongs: tuple[dict[str, Any], ...] = ({"labels": []}, {"labels": ["x"], "threshold": 2}, {"labels": "person"})
    for wrong in wrongs:
        with pytest.raises(PolicyError):
            build_policy({"gliner": {"folder": str(folder), **wrong}})


def test_what_is_found_has_our_kinds(
    installed: dict[str, str],
    folder: Path,
    tokenizer: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gliner, "_reader", lambda _: Reader(StandIn(tokenizer)))
    found = Gliner(str(folder), LABELS).find(Record("r", "Ann met Bob.\ud800"))
    assert found == (Span(0, 3, "PERSON"), Span(8, 11, "PERSON"))


# the package


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> str:  # noqa: ANN401
    """A GLiNER model with random weights, as the package saves it."""
    try:
        gliner._check_installed()
    except PolicyError:
        pytest.skip("gliner is not installed beside this transformers")
    import torch
    from gliner import GLiNER
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("gliner")
    tokenizer.add_special_tokens({"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"})
    tokenizer.save_pretrained(folder / "base")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=MAX_TOKENS,
    )
    BertModel(config).save_pretrained(folder / "base")  # type: ignore[no-untyped-call]
    described = {
        "model_name": str(folder / "base"),
        "max_len": MAX_WORDS,
        "max_width": 3,
        "hidden_size": 32,
        "span_mode": "markerV0",
        "encoder_config": config.to_dict(),
    }
    GLiNER.from_config(described, load_tokenizer=True).save_pretrained(folder / "model", safe_serialization=True)
    return str(folder / "model")


@pytest.mark.filterwarnings("default")
def test_the_package_reads_as_the_stand_in_does(tiny: str, recwarn: pytest.WarningsRecorder) -> None:
    spans = {at: Gliner(tiny, LABELS, at).find(Record("r", TEXT)) for at in (0.0, 0.4, 0.5, 0.6, 1.0)}
    assert all(spans_fault(found, len(TEXT)) is None for found in spans.values())
    covered = [{at for one in found for at in range(one.start, one.end)} for found in spans.values()]
    assert all(later <= earlier for earlier, later in pairwise(covered))
    assert covered[0] >= {at for at, letter in enumerate(TEXT) if not letter.isspace()}, "every word, at threshold 0"
    assert {one.kind for one in spans[0.4]} <= {"PERSON", "ID"}
    assert not [one for one in recwarn if "truncated" in str(one.message)]


@pytest.mark.filterwarnings("default")
def test_the_package_s_findings_depend_on_nothing_but_the_text(tiny: str) -> None:
    policy = Gliner(tiny, LABELS, 0.45)
    before = policy.find(Record("r", TEXT))
    for neighbor in ("", "x" * 3_000, "Ann " * 300, "\ud800", "戦場"):
        policy.find(Record("n", neighbor))
        assert policy.find(Record("r", TEXT)) == before
