"""The parts that recipes cut the papers' data into: nobody and nothing stands in two of them."""

import json
import lzma
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "reproduce"))

corpora: Any = import_module("corpora")
uedp_corpora: Any = import_module("uedp_corpora")

PARTS = ("train", "valid", "test")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of our own; nothing is read with spaCy."""
    monkeypatch.setattr(corpora, "DATA", tmp_path)
    monkeypatch.setattr(uedp_corpora, "with_entities", iter)
    return tmp_path


def put(data: Path, name: str, lines: list[str]) -> None:
    place = data / f"{name}.xz"
    place.parent.mkdir(exist_ok=True)
    with lzma.open(place, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_a_company_is_in_one_part_with_at_most_four_clauses(data: Path) -> None:
    clauses = [
        {"text": f"Clause {number} of {company}.", "cik": f"c{company}", "type": "lease"}
        for company in range(40)
        for number in range(1 + company % 7)
    ]
    put(data, "sec_contracts/clauses.jsonl", [json.dumps(one) for one in clauses])
    parts = {part: list(uedp_corpora.CORPORA["sec_clauses"](part)) for part in PARTS}
    companies = {part: {record.user for record in records} for part, records in parts.items()}
    assert [len(companies[part]) for part in PARTS] == [32, 4, 4]
    assert len(set.union(*companies.values())) == 40
    kept = Counter(record.user for records in parts.values() for record in records)
    assert all(kept[f"c{company}"] == min(1 + company % 7, 4) for company in range(40))


def test_news_of_the_training_file_are_in_one_part_and_the_official_test_file_is_the_test(data: Path) -> None:
    put(data, "ag_news/train_subset.csv", [f'"{number % 4 + 1}","news {number}"' for number in range(50)])
    put(data, "ag_news/test.csv", [f'"1","title {number}","text {number}"' for number in range(5)])
    parts = {part: [record.text for record in uedp_corpora.CORPORA["ag_news"](part)] for part in PARTS}
    assert [len(parts[part]) for part in PARTS] == [45, 5, 5]
    assert set(parts["train"]) | set(parts["valid"]) == {f"news {number}" for number in range(50)}
    assert set(parts["test"]) == {f"title {number} . text {number}" for number in range(5)}


def test_mixed_dialogs_come_in_an_order_that_files_do_not_decide(data: Path) -> None:
    rows = [
        json.dumps(
            {"id": f"d{number}", "turns": [{"speaker": "USR", "text": "At six.", "spans": [[3, 6, "s", "time"]]}]}
        )
        for number in range(20)
    ]
    put(data, "sgd/train.jsonl", rows)
    put(data, "sgd/dev.jsonl", rows[::-1])
    train, valid = ([record.id for record in corpora.sgd_mixed(part)] for part in ("train", "valid"))
    assert sorted(train) == sorted(f"d{number}" for number in range(20))
    assert train != [f"d{number}" for number in range(20)]
    put(data, "sgd/train.jsonl", rows[::-1])
    assert [record.id for record in corpora.sgd_mixed("train")] == train
    assert not set(train) & set(valid), "ids tell the parts apart"
    first = next(corpora.sgd_mixed("train"))
    assert [(first.text[span.start : span.end], span.kind) for span in first.spans or ()] == [("six", "TIME")]
