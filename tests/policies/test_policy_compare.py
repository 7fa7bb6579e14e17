"""Policies side by side: each row against a scan with that policy alone, pairs against slow twins, and a safe page."""

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_scan_page import HOSTILE, Page

from tacit.common.formatting import upper_bound
from tacit.data.records import Record, Span, resolve_overlaps
from tacit.errors import ConfigError, PolicyError
from tacit.policies import scan as look
from tacit.policies.compare import PolicyComparison, compare_policies
from tacit.policies.patterns import Capitals, Digits, Everything, Gold, Regex
from tacit.policies.pii.policy import Pii
from tacit.policies.policy import Policy
from tacit.policies.scan import scan
from tacit.reports.policy_pages import MOST_KINDS, policies_page
from tacit.simulation.simulate import simulate

POLICIES: dict[str, Policy] = {"digits": Digits(), "capitals": Capitals(), "pii": Pii()}


def labelled(size: int = 40) -> list[Record]:
    return list(simulate("customersim", size, 5, "train"))


def unlabelled(size: int = 40) -> list[Record]:
    return [Record(record.id, record.text) for record in labelled(size)]


def characters(policy: Policy, records: list[Record]) -> set[tuple[str, int]]:
    """Every found character, one at a time."""
    return {(one.id, at) for one in records for span in policy.find(one) for at in range(span.start, span.end)}


@pytest.mark.parametrize("records", [labelled(), unlabelled(), []])
def test_g2_each_row_is_what_a_scan_alone_counts(records: list[Record]) -> None:
    result = compare_policies(records, POLICIES)
    assert (result.records, result.labelled) == (len(records), sum(one.spans is not None for one in records))
    for row, (name, policy) in zip(result.policies, POLICIES.items(), strict=True):
        alone = scan(records, policy)
        assert (row.name, row.policy_id, row.policy_hash) == (name, alone.policy_id, alone.policy_hash)
        assert (row.records_with_secrets, row.secrets) == (alone.records_with_secrets, alone.secrets)
        assert (row.tokens, row.sensitive_tokens) == (alone.tokens, alone.sensitive_tokens)
        assert (row.share_of_tokens, row.share_of_records) == (alone.share_of_tokens, alone.share_of_records)
        assert row.card == alone.card
        assert row.stability == alone.stability


def test_g1_one_result_whatever_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_BATCH_RECORDS", 5)
    records = labelled(60)
    one = compare_policies(records, POLICIES, processes=1)
    assert compare_policies(records, POLICIES, processes=2) == one
    assert all(row.seconds > 0 for row in one.policies)


@given(
    st.lists(st.text(st.sampled_from("aB1 é"), min_size=1, max_size=12), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_agreement_against_characters_counted_one_by_one(texts: list[str], rng: random.Random) -> None:
    records = []
    for at, text in enumerate(texts):
        ends = sorted(rng.sample(range(len(text) + 1), min(2, len(text) + 1)))
        records.append(Record(f"{at}", text, spans=(Span(ends[0], ends[1], "KIND"),) if len(ends) == 2 else ()))
    policies: list[Policy] = [Gold(), Digits(), Capitals(), Everything()]
    result = compare_policies(records, {policy.id: policy for policy in policies})
    found = [characters(policy, records) for policy in policies]
    for left in range(4):
        assert result.policies[left].found_characters == len(found[left])
        for right in set(range(4)) - {left}:
            both, either = found[left] & found[right], found[left] | found[right]
            agreement = result.agreement(left, right)
            assert agreement == (len(both), len(found[left]), len(found[right]))
            assert agreement.jaccard == (len(both) / len(either) if either else None)


def test_recall_a_kind_uses_the_gold_kinds() -> None:
    text = "Ann 12 34 Bo"
    spans = (Span(0, 3, "NAME"), Span(4, 6, "CODE"), Span(7, 9, "CODE"), Span(10, 12, "NAME"))
    result = compare_policies([Record("1", text, spans=spans)], {"digits": Digits(), "gold": Gold()})
    assert result.kinds == ("CODE", "PERSON")
    digits, gold = result.policies
    assert digits.card is not None
    assert gold.card is None  # it repeats the labels: measured against them it would look perfect
    rows = result.kind_rows()
    assert [(row.kind, row.labels) for row in rows] == [("CODE", 2), ("PERSON", 2)]
    assert [row.recalls[0].value for row in rows if row.recalls[0]] == [1.0, 0.0]
    assert [row.recalls[1] for row in rows] == [None, None]


def test_a_policy_chosen_by_the_table_needs_a_bound_for_all_rows() -> None:
    records = [Record(f"{at}", "call 555", spans=(Span(5, 8, "PHONE"),)) for at in range(200)]
    one = compare_policies(records, {"digits": Digits()})
    three = compare_policies(records, {"digits": Digits(), "all": Everything(), "gold": Gold(), "capital": Capitals()})
    card = three.policies[0].card
    assert card is not None
    assert card.miss_bound == pytest.approx(0.0149, abs=1e-4)  # 0 of 200, 95 %
    assert one.chosen_bound(card) == card.miss_bound
    assert three.chosen_bound(card) == upper_bound(0, 200, 1 - 0.05 / 3)  # gold is not measured
    assert three.to_json()["policies"][2]["upper_bound_if_chosen_by_this_comparison"] is None


def test_without_labels_only_what_needs_none_is_told() -> None:
    result = compare_policies(unlabelled(), POLICIES)
    page = policies_page(result)
    assert result.kinds == ()
    assert all(row.card is None for row in result.policies)
    assert "Recall" not in page
    assert "The corpus has no labels" in page
    assert "Where they agree" in page
    assert all(row.stability.spans for row in result.policies)
    told = result.to_json()
    assert [policy["card"] for policy in told["policies"]] == [None] * 3
    assert len(told["agreement"]) == 3


def test_nothing_found_and_nothing_to_look_at() -> None:
    for records in ([], [Record("1", "nothing here", spans=())]):
        result = compare_policies(records, {"digits": Digits(), "capitals": Capitals()})
        assert result.agreement_rows() == [["", "–"], ["–", ""]]
        assert result.policies[0].mask_moved is None
        assert Page(policies_page(result)).tags
        json.dumps(result.to_json(), allow_nan=False)
    with pytest.raises(ConfigError, match="at least one policy"):
        compare_policies([], {})


def test_a_policy_that_breaks_says_where() -> None:
    with pytest.raises(PolicyError, match="record 2"):
        compare_policies([Record("1", "a", spans=()), Record("2", "b")], {"digits": Digits(), "gold": Gold()})


def test_g3_no_text_of_the_corpus_is_told() -> None:
    records = labelled()
    result = compare_policies(records, POLICIES)
    told = policies_page(result) + json.dumps(result.to_json())
    words = {word for record in records for word in re.findall(r"\w{6,}", record.text)}
    secrets = {record.text[span.start : span.end] for record in records for span in record.spans or ()}
    assert len(secrets) > 100
    assert not [secret for secret in secrets if len(secret) > 3 and secret in told]
    assert not {word for word in words if word[0].isupper() and word in told}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_g1_hostile_names_and_kinds_stay_text(hostile: str) -> None:
    record = Record(hostile, f"{hostile} order 12345", spans=(Span(0, 2, hostile),))
    harmless = Page(policies_page(compare_policies([Record("1", "x 1", spans=(Span(0, 1, "A"),))], POLICIES)))
    page = policies_page(compare_policies([record], {hostile: Regex("order", hostile), "digits": Digits()}))
    parsed = Page(page)
    assert set(parsed.tags) <= set(harmless.tags)
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name in ("src", "href")]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    assert "default-src 'none'" in page


def test_a_thousand_kinds_make_a_small_page() -> None:
    spans = resolve_overlaps(Span(at * 2, at * 2 + 1, f"KIND{at}" * 50) for at in range(1000))
    page = policies_page(compare_policies([Record("1", "x " * 1000, spans=spans)], POLICIES))
    assert len(page) < 100_000
    assert f"And {1000 - MOST_KINDS:,} more kinds" in page


def test_g2_equal_comparisons_give_equal_pages() -> None:
    result: PolicyComparison = compare_policies(labelled(), POLICIES)
    assert policies_page(result) == policies_page(result)
    assert Page(policies_page(result)).tags.count("svg") == 9  # recall, precision and F2 of three policies
