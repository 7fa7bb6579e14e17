"""Drafts of labels: exact parts of the text, never labels by themselves, and named with the hash of their model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from chat_folders import CHATML, write_llama
from tacit.api import label_draw, label_read
from tacit.data.records import Record
from tacit.errors import ConfigError, CorpusError, PolicyError
from tacit.policies.drafts import Drafter, copied

TEXT = "Ann Lee, born 5 May 1980, lives at 12 Elm Street; 'Bob' does not."


@pytest.fixture(scope="module", params=[CHATML, None], ids=["chat", "plain"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return write_llama(tmp_path_factory.mktemp("llama"), request.param)


def test_only_exact_parts_of_the_text_are_copied() -> None:
    answer = "- Ann Lee\n2. 5 May 1980,\n'Bob'\n\"12 Elm Street\"\nann lee\nMr. Bob\n  Ann Lee\nNONE\na\n"
    assert copied(answer, TEXT) == ("Ann Lee", "5 May 1980", "Bob", "12 Elm Street")
    assert copied("", TEXT) == copied("\n \n", TEXT) == ()


def test_a_random_model_drafts_nothing_but_parts_of_the_text(folder: Path) -> None:
    drafter = Drafter(folder)
    drafted = drafter.draft(TEXT)
    assert all(part in TEXT for part in drafted)
    assert drafter.draft(TEXT) == drafted
    assert drafter.draft("") == ()
    drafter._loaded[0].config.max_position_embeddings = 50
    with pytest.raises(PolicyError, match="found one that reads 50"):
        drafter.draft(TEXT)


def test_the_hash_sees_the_weights(folder: Path, tmp_path: Path) -> None:
    same, other = (shutil.copytree(folder, tmp_path / part / folder.name) for part in ("same", "other"))
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert Drafter(same).hash == Drafter(folder).hash != Drafter(other).hash
    assert Drafter(other).id == Drafter(folder).id


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_draft_is_shown_and_is_no_label(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drafter, "_answer", lambda self, text: "Ann Lee\nSomebody Else\n")
    records, sample = [Record("r", TEXT)], tmp_path / "sample.jsonl"
    label_draw(records, "digits", sample, records=1, draft=folder)
    header, row = _rows(sample)
    assert header["labels"] == "person shown a model's draft"
    assert header["draft"] == {"id": f"causal-model:{folder.name}", "hash": Drafter(folder).hash}
    assert (row["draft"], row["secrets"]) == (["Ann Lee"], None)
    with pytest.raises(CorpusError, match="without one"):
        label_read(sample, "digits")
    _write(sample, header, row | {"secrets": row["draft"]})
    read = label_read(sample, "digits")
    assert read.missed == 1
    assert "shown a model's draft" in str(read.coverage)
    _write(sample, header | {"draft": None}, row | {"secrets": []})
    with pytest.raises(CorpusError, match="a header"):  # nobody was shown a draft, it says now
        label_read(sample, "digits")


def _write(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_one_source_of_labels_at_a_time(folder: Path, tmp_path: Path) -> None:
    for gold in (True, False):
        with pytest.raises(ConfigError, match="draft; found both"):
            label_draw(
                [Record("r", TEXT)], "digits", tmp_path / "s.jsonl", draft=folder, gold=gold, show_found=not gold
            )
    with pytest.raises(PolicyError, match="a folder with a causal language model"):
        label_draw([Record("r", TEXT)], "digits", tmp_path / "s.jsonl", records=1, draft=tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
