"""Models from elsewhere: exposure of named secrets against whole scoring, and errors that say no content."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from runs import quiet
from saved import save_pretrained
from tacit.audits.audit import audit_model, read_named
from tacit.config.audit_schema import ExposureConfig, Slot
from tacit.config.model_schema import CausalLMConfig
from tacit.config.setting import Method
from tacit.data.tokenizer import NOTHING, Tokenizer, read_tokenizer_json, train_bpe
from tacit.errors import AttackError, ModelError, PrepareError
from tacit.models.causal_lm import CausalLM

OPENING = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 that learned one text, with a tokenizer that merges across the border of the slot."""
    place = tmp_path_factory.mktemp("foreign")
    tokenizer = train_bpe(["My ID is 34 and 17 and 341 752", "code 1752 and 3417"] * 3, 300, NOTHING)
    (place / "tokenizer.json").write_text(json.dumps(tokenizer.codec.definition()["content"]))
    torch.manual_seed(0)
    model = CausalLM.new(CausalLMConfig(tokenizer.codec.size, width=32, layers=1, heads=2, context=32, dropout=0.0))
    config: Any = model.module.config
    config.bos_token_id = OPENING
    text = torch.tensor([[OPENING, *tokenizer.encode("My ID is 417.")]])
    optimizer = torch.optim.Adam(model.module.parameters(), 1e-2)
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(model.logits(text[:, :-1])[0], text[0, 1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    save_pretrained(model, place)
    return place


def write(place: Path, *lines: object) -> Path:
    path = place / "candidates.jsonl"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines) + "\n")
    return path


LEARNED = {"id": "learned", "template": "My ID is {3 digits}.", "value": "417"}
OTHER = {"id": "other", "template": "My ID is {3 digits}.", "value": "052"}
LISTED = {"id": "listed", "before": "code ", "after": "", "candidates": ["17", "1752", "3417"], "value": "1752"}


def test_what_was_learned_ranks_first_of_all(folder: Path, tmp_path: Path) -> None:
    found = audit_model(folder, write(tmp_path, LEARNED, LISTED, OTHER), 0, quiet)
    assert [one.id for one in found.secrets] == ["learned", "listed", "other"]
    learned, listed, other = found.secrets
    assert learned.exposure.rank == 1
    assert learned.exposure.bits == pytest.approx(math.log2(1000))
    assert (learned.space, listed.space, other.exposure.bits < 9) == (1000, 3, True)
    assert found.best_chance == pytest.approx(3 / 1000)


def test_ranks_are_those_of_whole_texts_scored_one_by_one(folder: Path, tmp_path: Path) -> None:
    """The oracle scores each text alone, after the opening token of the model's own configuration."""
    found = audit_model(folder, write(tmp_path, OTHER, LISTED), 0, quiet)
    model, tokenizer = CausalLM.from_folder(folder), read_tokenizer_json(folder / "tokenizer.json")
    model.module.eval()
    slot = Slot.of("My ID is {3 digits}.")
    ids = {value: _total(model, tokenizer, f"My ID is {value}.") for value in slot.values()}
    words = {value: _total(model, tokenizer, f"code {value}") for value in ("17", "1752", "3417")}
    for one, totals, value in ((found.secrets[0], ids, "052"), (found.secrets[1], words, "1752")):
        assert one.exposure.rank == 1 + sum(total > totals[value] + 1e-4 for total in totals.values())


def _total(model: CausalLM, tokenizer: Tokenizer, text: str) -> float:
    tokens = torch.tensor([[OPENING, *tokenizer.encode(text)]])
    with torch.no_grad():
        said = torch.log_softmax(model.logits(tokens[:, :-1])[0].double(), dim=-1)
    return float(said[torch.arange(len(said)), tokens[0, 1:]].sum())


def test_the_order_of_lines_changes_nothing(folder: Path, tmp_path: Path) -> None:
    lines = [LEARNED, OTHER, LISTED]
    there, back = (audit_model(folder, write(tmp_path, *some), 0, quiet) for some in (lines, lines[::-1]))
    assert there.secrets == back.secrets[::-1]


def test_a_space_too_large_to_enumerate_is_sampled(folder: Path, tmp_path: Path) -> None:
    settings = ExposureConfig(exact_up_to=100, draws=200)
    found = audit_model(folder, write(tmp_path, LEARNED), 0, quiet, settings)
    assert found.secrets[0].method is Method.EXTRAPOLATED
    assert found.secrets[0].exposure.bits > 5
    assert found.best_chance is None


def test_results_hold_no_value(folder: Path, tmp_path: Path) -> None:
    found = audit_model(folder, write(tmp_path, LISTED), 0, quiet)
    assert "1752" not in json.dumps(asdict(found))


GOOD = json.dumps(LEARNED)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{not json sesame", "no such object"),
        ('["sesame"]', "no such object"),
        ('{"id": "a", "value": 12, "template": "sesame {2 digits}"}', "'value'"),
        ('{"value": "12", "template": "sesame {2 digits}"}', "'id'"),
        ('{"id": "a", "value": "12", "template": "sesame"}', "cannot be used"),
        ('{"id": "a", "value": "12", "template": "sesame {2 digits}", "before": "x"}', "cannot be used"),
        ('{"id": "a", "value": "sesame", "candidates": ["sesame", "sesame"]}', "cannot be used"),
        ('{"id": "a", "value": "sesame", "candidates": ["sesame"]}', "1 candidates"),
        ('{"id": "a", "value": "sesame", "template": "my {2 digits}"}', "not among the candidates"),
        ('{"id": "a", "value": "12", "template": "my {2 digits}", "sesame": 1}', "no such object"),
        (GOOD, "an id that came before"),
    ],
)
def test_a_wrong_line_is_named_by_its_number_alone(tmp_path: Path, line: str, found: str) -> None:
    """G1: the line is not quoted."""
    with pytest.raises(AttackError) as error:
        read_named(write(tmp_path, GOOD, "", line))
    assert "line 3" in error.value.expected
    assert found in error.value.found
    assert "sesame" not in str(error.value)


def test_words_are_given_in_the_line(tmp_path: Path) -> None:
    line = {"id": "a", "template": "it is {2 words}", "words": ["red", "blue"], "value": "red blue"}
    (named,) = read_named(write(tmp_path, line))
    assert named.space.size == 4


def test_files_that_are_no_candidates_or_no_model_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(AttackError, match="at least one secret"):
        read_named(write(tmp_path, ""))
    with pytest.raises(AttackError, match="readable"):
        read_named(tmp_path / "nothing.jsonl")
    named = write(tmp_path, LEARNED)
    with pytest.raises(ModelError, match="safetensors"):
        audit_model(tmp_path, named, 0, quiet)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(PrepareError, match="tokenizer"):
        audit_model(tmp_path, named, 0, quiet)
    (tmp_path / "config.json").write_text('{"model_type": "nonsense"}')
    with pytest.raises(ModelError, match="nonsense"):
        audit_model(tmp_path, named, 0, quiet)


def test_a_model_without_an_opening_token_is_refused(folder: Path, tmp_path: Path) -> None:
    named = write(tmp_path, LEARNED)
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((folder / "config.json").read_text())
    for bos, eos, refused in ((None, None, True), (None, OPENING, False), (None, [OPENING, 9], False)):
        (tmp_path / "config.json").write_text(json.dumps({**config, "bos_token_id": bos, "eos_token_id": eos}))
        if refused:
            with pytest.raises(ModelError, match="bos_token_id"):
                audit_model(tmp_path, named, 0, quiet)
        else:
            assert audit_model(tmp_path, named, 0, quiet).secrets[0].exposure.rank == 1
