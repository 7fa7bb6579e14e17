"""The learned view of a store: from the counts of its secrets to what public steps read in their place."""

import re
from random import Random

import pytest

from marking import prepare
from tacit.data.form_counts import count_forms
from tacit.data.forms import learn
from tacit.data.records import Record, Span
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.viewed import Inventions, tokens_of
from tacit.policies.patterns import Gold
from tacit.privacy.plan import View

NOISE = 2.0
CANARY = "zebra_quux"
TOKENIZER = byte_tokenizer()


def record(number: int, kind: str, secret: str) -> Record:
    before = {"ORDER": "my order ", "PHONE": "call "}[kind]
    span = Span(len(before), len(before) + len(secret), kind)
    return Record(f"{kind} {number}", f"{before}{secret} now.", spans=(span,))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """500 orders of one form and one of another; and five telephone numbers, which are too few to be learned."""
    chance = Random(1)
    orders = [record(number, "ORDER", f"KA-{chance.randint(0, 9999):04}") for number in range(500)]
    phones = [record(number, "PHONE", "0171 <> 1234567") for number in range(5)]
    records = [*orders, record(500, "ORDER", CANARY), *phones]
    return prepare(records, Gold(), TOKENIZER, tmp_path_factory.mktemp("forms") / "store")


def read(store: PreparedCorpus, view: View, inventions: Inventions) -> dict[str, str]:
    rows = ((store.record_id(row), tokens_of(store, row, view, inventions).tokens) for row in range(len(store)))
    return {name: TOKENIZER.decode(tokens.tolist()) for name, tokens in rows}


def test_shared_forms_come_out_a_single_secret_does_not_and_rare_kinds_have_the_fixed_rules(
    store: PreparedCorpus,
) -> None:
    sums, contexts = count_forms(store, TOKENIZER, NOISE)
    inventions = Inventions(TOKENIZER, {}, learn(sums, contexts, NOISE, Random(2)))
    learned, invented = (read(store, view, inventions) for view in (View.LEARNED, View.INVENTED))
    orders = [text for name, text in learned.items() if name.startswith("ORDER")]
    fitting = [text for text in orders if re.fullmatch(r"my order KA-\d{4} now\.", text)]
    assert len(fitting) > 0.8 * len(orders)
    assert len(set(fitting)) > 100, "not the same few for everybody"
    assert not any(part in text for text in learned.values() for part in (CANARY[:3], CANARY[-3:], "_"))
    phones = [name for name in learned if name.startswith("PHONE")]
    assert [learned[name] for name in phones] == [invented[name] for name in phones]
    assert not any("<>" in learned[name] for name in phones)


def test_with_next_to_no_noise_what_only_five_records_share_would_come_out(store: PreparedCorpus) -> None:
    """The control: noise, and the threshold that it sets, are what keeps rare forms inside."""
    sums, contexts = count_forms(store, TOKENIZER, 1e-6)
    inventions = Inventions(TOKENIZER, {}, learn(sums, contexts, 1e-6, Random(2)))
    learned = read(store, View.LEARNED, inventions)
    assert any("<>" in text for name, text in learned.items() if name.startswith("PHONE"))
