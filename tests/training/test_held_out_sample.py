"""Utility is measured with a sample of the held-out records that only their ids decide, and a small corpus whole."""

import pytest

from tacit.data.records import Record
from tacit.training.marking import HeldOutSample, sample_key


def seen(records: list[Record], most: int) -> HeldOutSample:
    sample = HeldOutSample(most)
    for record in records:
        sample.see(record, len(record.text))
    return sample


RECORDS = [Record(f"r{number}", "x" * number) for number in range(50)]


@pytest.mark.parametrize("most", [1, 7, 49])
def test_the_smallest_keys_are_the_sample(most: int) -> None:
    sample = seen(RECORDS, most)
    assert sample.limit is not None
    chosen = [record for record in RECORDS if sample_key(record.id) <= sample.limit]
    assert len(chosen) == most
    assert sample.characters == sum(len(record.text) for record in chosen)


def test_few_records_are_all_measured_with() -> None:
    sample = seen(RECORDS, 51)
    assert sample.limit is None
    assert sample.characters == sum(len(record.text) for record in RECORDS)


def test_neither_the_order_nor_what_a_record_says_decides() -> None:
    emptied = [Record(record.id, "") for record in RECORDS]
    assert seen(RECORDS, 9).limit == seen(RECORDS[::-1], 9).limit == seen(emptied, 9).limit
