"""CRT with invented secrets (theory, sections 4 and 10): another view of protected records, at the same price."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from marking import prepare
from runs import experiment, mechanism_of, quiet, write_corpus
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record, Span
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.viewed import Inventions, tokens_of
from tacit.errors import ConfigError
from tacit.mechanisms.build import plan
from tacit.mechanisms.mechanism import FROZEN_MARKS, INVENTED, INVENTED_BY_KIND
from tacit.policies.patterns import Gold
from tacit.policies.policy import Policy
from tacit.policies.stability import PLACEHOLDER, record_is_stable, with_replaced
from tacit.privacy.events import Free
from tacit.privacy.guarantee import Evidence
from tacit.privacy.plan import Pool, View
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile
from tacit.runs.verify import verify
from tacit.training.prepared import prepare as prepare_run_store
from tacit.training.stages import train

WORDS: dict[str, Any] = {"mechanism": "crt", "records": 1000, "flagged": 300, "epsilon": 2.0, "steps": 30}
TOKENIZER = byte_tokenizer()


def marked(name: str, secret: str, kind: str = "PERSON", before: str = "I am ") -> Record:
    span = Span(len(before), len(before) + len(secret), kind)
    return Record(name, f"{before}{secret}, hello.", spans=(span,))


def store_of(folder: Path, records: list[Record], settings: PrepareConfig) -> PreparedCorpus:
    return prepare(records, Gold(), TOKENIZER, folder, settings)


def read(store: PreparedCorpus) -> dict[str, str]:
    """What a private step reads of each record."""
    inventions = Inventions(TOKENIZER, {})
    rows = ((store.record_id(row), tokens_of(store, row, View.INVENTED, inventions)) for row in range(len(store)))
    return {name: TOKENIZER.decode(row.tokens.tolist()) for name, row in rows}


EXACT = PrepareConfig(64, "exact", by_kind=True)
DOUBTFUL = PrepareConfig(64, "doubtful", by_kind=True)


def test_the_price_is_the_same_and_only_the_view_of_protected_records_changes() -> None:
    """The plan of each view, step by step, for every kind of neighbors that the claim is about."""
    redacted, invented = (plan({**WORDS, "public_view": view}) for view in ("redacted", "invented"))
    assert [(figure.epsilon, figure.delta) for figure in redacted.guarantee.figures] == [
        (figure.epsilon, figure.delta) for figure in invented.guarantee.figures
    ]
    for neighbors in redacted.mechanism.notions():
        paid = [
            [spent for spent in one.plan.spend(neighbors) if not isinstance(spent[0], Free)]
            for one in (redacted, invented)
        ]
        assert paid[0] == paid[1]
    views = {step.pool: step.view for step in invented.plan.executions()}
    assert views == {Pool.CLEARED: View.REDACTED, Pool.FLAGGED: View.INVENTED}
    assert {step.view for step in redacted.plan.executions()} == {View.REDACTED}


def test_the_claim_says_so_and_lists_what_it_needs() -> None:
    for given, condition in ((False, INVENTED_BY_KIND), (True, INVENTED)):
        found = plan({**WORDS, "public_view": "invented"}, Evidence(examples_given=given)).guarantee
        assert {FROZEN_MARKS, condition} <= set(found.holds_if)
        assert "invented ones were read in their place" in found.claim
    redacted = plan({**WORDS, "public_view": "redacted"}, Evidence(examples_given=False)).guarantee
    assert INVENTED_BY_KIND not in redacted.holds_if
    assert "invented" not in redacted.claim


def test_learned_forms_are_refused() -> None:
    """They would use marked spans, which the claim says were not used (theory, section 12)."""
    with pytest.raises(ConfigError, match="which uses no marked secret"):
        mechanism_of({**WORDS, "public_view": "learned"})


def test_what_is_read_of_a_duplicate_does_not_depend_on_which_one_is_left(tmp_path: Path) -> None:
    """Zero-out of a protected record: an equal one takes its place, and a step reads the same of it."""
    records = [marked("a", "Ann Lee"), marked("b", "Bo"), marked("c", "Cid", before="We met ")]
    both = read(store_of(tmp_path / "both", records, EXACT))
    without = read(store_of(tmp_path / "without", records[1:], EXACT))
    assert both == {"a": both["a"], "c": both["c"]}
    assert without == {"b": both["a"], "c": both["c"]}
    assert "Ann" not in both["a"]
    assert both["a"].startswith("I am ")
    assert both["a"].endswith(", hello.")


def test_records_whose_kinds_differ_are_not_equal_where_kinds_are_read(tmp_path: Path) -> None:
    """Otherwise a removed name would leave an invented telephone number where another name was."""
    records = [marked("a", "Ann"), marked("b", "555-0199", "PHONE")]
    assert len(store_of(tmp_path / "invented", records, EXACT)) == 2
    assert len(store_of(tmp_path / "redacted", records, dataclasses.replace(EXACT, by_kind=False))) == 1


def test_marked_records_that_all_stay_have_inventions_of_their_own(tmp_path: Path) -> None:
    """`doubtful` compares no marked record, so each may be known by its id; the others decide nothing."""
    records = [marked(f"r{number}", "Ann") for number in range(20)]
    found = read(store_of(tmp_path / "all", records, DOUBTFUL))
    assert len(found) == 20
    assert len(set(found.values())) > 10
    rest = read(store_of(tmp_path / "rest", records[7:], DOUBTFUL))
    assert rest == {name: text for name, text in found.items() if name in rest}


@pytest.mark.parametrize("settings", [EXACT, DOUBTFUL])
def test_a_hit_gives_the_same_prepared_corpus(settings: PrepareConfig, tmp_path: Path) -> None:
    """The lemma of section 10: masking a found secret changes nothing that training reads."""
    records = [marked("a", "Ann Lee"), marked("b", "555-0199", "PHONE")]
    span = records[0].spans
    assert span is not None
    masked = [with_replaced(records[0], span[0], PLACEHOLDER), records[1]]
    stores = [store_of(tmp_path / str(number), some, settings) for number, some in enumerate((records, masked))]
    assert read(stores[0]) == read(stores[1])
    assert stores[0].header == stores[1].header


class Nosy(Policy):
    """Its kind for a word depends on another one."""

    id = "nosy"

    def content(self) -> Any:  # noqa: ANN401
        return "nosy"

    def find(self, record: Record) -> tuple[Span, ...]:
        kinds = {"Ann": "PERSON", "55": "AGE" if "Ann" in record.text else "PHONE"}
        found = ((record.text.find(word), word, kind) for word, kind in kinds.items())
        return tuple(Span(at, at + len(word), kind) for at, word, kind in found if at >= 0)


def test_a_redaction_that_changes_a_kind_is_not_stable() -> None:
    """The redacted text is the same, but another secret would be invented."""
    record = Record("a", "Ann is 55")
    assert not record_is_stable(Nosy(), record, (Span(0, 3, "X"),))
    assert record_is_stable(Nosy(), Record("b", "Bo is 55"), (Span(6, 8, "X"),))


def test_a_run_with_inventions_is_verified_and_its_store_is_its_own(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, 40)
    words: dict[str, Any] = {"model_config": {"embedding_size": 4, "hidden_size": 4}}
    config = experiment(corpus, "crt", {"public_view": "invented", "steps": 2}, **words)
    train(config, tmp_path / "run", quiet)
    assert verify(tmp_path / "run").holds
    run = RunFolder.view(tmp_path / "run")
    assert "invented ones were read" in run.path(ReleaseFile.GUARANTEE).read_text(encoding="utf-8")
    prepare_run_store(
        experiment(corpus, "crt", {"public_view": "redacted", "steps": 2}, **words), tmp_path / "s", quiet
    )
    with pytest.raises(ConfigError, match="public_view"):
        train(config, tmp_path / "other", quiet, prepared=tmp_path / "s")
