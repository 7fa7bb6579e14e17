"""CRT's appendix A.6, "The devil is in the details" (Zhao et al., NAACL 2022): a test for each of its six points.

Two corpora are neighbors when one has a secret where the other has it masked. All goes through what training uses:
policies, `prepare`, the annotator, pools, and a run.
"""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marking import mark, prepare
from runs import experiment, mechanism_of, quiet, write_corpus
from tacit.config.load import load_config
from tacit.config.setting import Duplicates
from tacit.data.corpus import write_jsonl
from tacit.data.ownership import Annotator, RecordMarks
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record, Span, resolve_overlaps, segment_records, sentences
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ClaimRefused
from tacit.mechanisms.crt import NOTIONS
from tacit.policies.coverage import measured
from tacit.policies.labels import LabelOrigin, draw_sample
from tacit.policies.patterns import Capitals, Digits, Gold, Regex
from tacit.policies.pii.policy import Pii
from tacit.policies.policy import Either, Forgetful, Policy
from tacit.policies.stability import PLACEHOLDER, redact, with_replaced
from tacit.privacy.events import Free, Relation
from tacit.privacy.plan import Noisy, Plain, Plan, Pool, Step, Unit, cost
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.simulation.simulate import simulate
from tacit.training.marking import Caps, annotate, mark_once
from tacit.training.parts import make_policies, prepare_stores
from tacit.training.pools import DrawnUnits, Pools
from tacit.training.randomness import Streams
from tacit.training.sampling import Samplers
from tacit.training.stages import train
from tacit.training.updates import Done, Updates

TOKENIZER = byte_tokenizer()
Rows = Counter[tuple[int, ...]]


def _texts(*texts: str) -> list[Record]:
    return [Record(f"r{number}", text, spans=()) for number, text in enumerate(texts)]


def _marked(records: Sequence[Record], policy: Policy) -> list[Record]:
    """The records with what `policy` finds as their spans: what it found stays marked when it is masked."""
    return [dataclasses.replace(record, spans=policy.find(record)) for record in records]


def _masked(records: Sequence[Record], which: int) -> list[Record]:
    """The neighbor: the first secret of one record is masked."""
    spans = records[which].spans
    assert spans
    changed = list(records)
    changed[which] = with_replaced(records[which], spans[0], PLACEHOLDER)
    return changed


def _prepared(folder: Path, records: Iterable[Record], policy: Policy, max_tokens: int = 64) -> PreparedCorpus:
    """As a run of crt prepares its corpus."""
    return prepare(records, policy, TOKENIZER, folder, PrepareConfig(max_tokens, "exact"))


def _contents(store: PreparedCorpus) -> Rows:
    """What training reads: the redacted rows, in whatever order."""
    return Counter(tuple(store.redacted(row).tolist()) for row in range(len(store)))


def _plan(records: int, flagged: int) -> Plan:
    """Of crt, with all protected records in every draw."""
    words = {"records": records, "flagged": flagged, "sampling_rate": 1.0, "noise_multiplier": 1.0, "steps": 2}
    return mechanism_of({"mechanism": "crt", **words}).plan()


def test_1_neighbors_are_a_corpus_and_the_same_one_perfectly_redacted(tmp_path: Path) -> None:
    """A detected secret against its mask: no difference. Against one that nobody detects: some, so nothing is said."""
    policy = Digits()
    corpus = _texts("my code is 4711, thanks", "it rained all day", "call 555 now")
    ours = _prepared(tmp_path / "D", _marked(corpus, policy), Gold())
    masked = _prepared(tmp_path / "masked", _masked(_marked(corpus, policy), 0), Gold())
    assert _contents(ours) == _contents(masked)
    for record in corpus:
        for span in policy.find(record):
            assert redact(policy, with_replaced(record, span, PLACEHOLDER)) == redact(policy, record)
    undetected = _prepared(
        tmp_path / "undetected", _texts("my code is four, thanks", *[r.text for r in corpus[1:]]), policy
    )
    assert _contents(_prepared(tmp_path / "detected", corpus, policy)) != _contents(undetected)

    assert [notion.relation for notion in NOTIONS if notion.unit == Unit.SECRETS] == [Relation.ZERO_OUT]
    secrets = next(notion for notion in NOTIONS if notion.unit == Unit.SECRETS)
    assert all(isinstance(cost(step, secrets), Free) for step in _plan(100, 30).executions())


@pytest.mark.parametrize("missed", range(6))
def test_2_records_are_divided_before_redaction_so_that_nothing_is_misaligned(missed: int, tmp_path: Path) -> None:
    """An approximate policy, that misses one record's secret, against the ideal one: one record's rows differ.

    Duplicates (the last two records), cuts (the long ones) and secrets of any length make no other record differ.
    """
    tail = " and so the day went by, quietly." * 3
    corpus = _texts(
        "my code is 1, thanks",
        f"code 22 is mine. It is late.{tail}",
        "call 333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333 now",
        f"one more: 4.{tail}",
        "my code is 55555, thanks",
        "my code is 6, thanks",
    )
    ideal = _marked(corpus, Digits())
    approximate = [dataclasses.replace(r, spans=()) if number == missed else r for number, r in enumerate(ideal)]
    ours = _prepared(tmp_path / "approximate", approximate, Gold(), 40)
    theirs = _prepared(tmp_path / "ideal", ideal, Gold(), 40)
    of_missed = Counter(tuple(ours.redacted(int(row)).tolist()) for row in np.flatnonzero(ours.records == missed))
    assert sum((_contents(ours) - _contents(theirs)).values()) <= sum(of_missed.values())
    assert _contents(ours) - _contents(theirs) <= of_missed
    ideal_alone = _contents(_prepared(tmp_path / "alone", [ideal[missed]], Gold(), 40))
    assert _contents(theirs) - _contents(ours) <= ideal_alone


@pytest.mark.parametrize("gone", [0, 1])
def test_2_a_protected_record_does_not_decide_which_other_rows_are_trained(gone: int, tmp_path: Path) -> None:
    """Duplicates are whole records: pieces that protected records share with others stay with those, too."""
    shared = "It was a long day, and nobody came. "
    corpus = _texts(
        f"{shared}The code is 4711, I said.", f"{shared}Then came 12, and all was well.", f"{shared}It rained."
    )
    rows = []
    for name, records in (("D", corpus), ("without", corpus[:gone] + corpus[gone + 1 :])):
        annotator, settings = Annotator(), PrepareConfig(40, "exact")
        (tmp_path / name).mkdir()
        store = prepare(records, Digits(), TOKENIZER, tmp_path / name / "store", settings, annotator=annotator)
        flagged = annotator.marks().flagged[store.records.astype(np.int64)]
        kept = [row for row in range(len(store)) if store.record_id(row) != f"r{gone}"]
        rows.append([(store.record_id(row), bool(flagged[row]), store.redacted(row).tolist()) for row in kept])
    assert rows[0] == rows[1]


def test_2_a_vocabulary_that_would_misalign_all_records_is_refused(tmp_path: Path) -> None:
    """A BPE of the redacted view is another one for the approximate policy: every record would differ."""
    corpus = write_corpus(tmp_path, 20)
    with pytest.raises(ClaimRefused, match="tokenizer"):
        train(experiment(corpus, "crt", tokenizer="bpe", vocabulary_size=300), tmp_path / "run", quiet)


def test_3_data_points_are_whole_sentences_and_a_sentence_that_is_not_is_one_unit(tmp_path: Path) -> None:
    text = "Ann is here. She lives at 12 Long Road. Call 555 now! Is it late? " + "It goes on and on, " * 6 + "alas."
    policy = Digits()
    annotator, settings = Annotator(), PrepareConfig(56, "exact")
    corpus = [Record("r0", text), Record("r1", "It rained all day."), *(Record(f"s{n}", f"day {n}") for n in range(3))]
    store = prepare(corpus, policy, TOKENIZER, tmp_path / "store", settings, annotator=annotator)
    rows = [int(row) for row in np.flatnonzero(store.records == 0)]
    pieces = [TOKENIZER.decode(store.full(row).tokens) for row in rows]
    assert "".join(pieces) == text
    borders = {end - (text[end - 1] == " ") for _, end in sentences(text)} | {len(text)}
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    long = text.index("It goes on")
    assert [end for end in ends if end < long] == [end for end in ends if end < long and end in borders]
    assert sum(end > long for end in ends) > 1, "the last sentence has to be cut"

    annotation, _ = annotate(store, annotator.marks(), Caps())
    assert annotation.flagged is not None
    assert annotation.flagged[rows].all(), "also the pieces without a mask: they are of the same record"
    executed = _plan(5, 4)
    step = next(step for step in executed.executions() if isinstance(step.update, Noisy))
    samplers, generator = Samplers(executed, Pools(annotation)), np.random.default_rng(0)
    for _ in range(20):
        (batch,) = samplers.draw(step, generator)
        assert len(set(rows) & set(batch.rows.tolist())) == 1, "one clipped gradient, whatever the pieces"


def test_4_a_duplicate_leaves_no_mark_of_its_own(tmp_path: Path) -> None:
    """Neighbors of a corpus with repeated text, repeated secrets and secrets of several kinds: no difference."""
    policy: Policy = Either(Regex(r"\b[A-Z]\w+", "NAME"), Digits())
    corpus = _texts(
        "call 12 now", "call 12 now", "call 34 now", "call Ann now", "call Ann now", "it rained", "it rained"
    )
    marked = _marked(corpus, policy)
    ours = _prepared(tmp_path / "D", marked, Gold())
    assert len(ours) == 2, "one text with a mask, whatever is under it, and one without"
    for number in range(5):
        neighbor = _prepared(tmp_path / f"masked {number}", _masked(marked, number), Gold())
        assert [neighbor.redacted(row).tolist() for row in range(len(neighbor))] == [
            ours.redacted(row).tolist() for row in range(len(ours))
        ]
    specials = {token for row in _contents(ours) for token in row if token >= TOKENIZER.codec.size}
    assert specials == {TOKENIZER.placeholder}


@pytest.mark.parametrize(
    "conservative", [None, Capitals(), Forgetful(Gold(), 0.9, 1)], ids=["none", "capitals", "half"]
)
def test_5_what_holds_a_mask_is_protected(conservative: Policy | None, tmp_path: Path) -> None:
    """Whatever the conservative policy says, and in all pieces of the record."""
    policy = Digits()
    corpus = _texts("call 12 now", "it rained", "Ann came", "long, " * 30 + "call 12", "no 5 but Ann", "late")
    annotator, settings = Annotator(), PrepareConfig(40, "exact")
    store = prepare(corpus, policy, TOKENIZER, tmp_path / "store", settings, conservative, annotator)
    annotation, _ = annotate(store, annotator.marks(), Caps())
    pools = Pools(annotation)
    cleared, flagged = set(pools.rows(Pool.CLEARED).tolist()), set(pools.rows(Pool.FLAGGED).tolist())
    masks = {row for row in range(len(store)) if TOKENIZER.placeholder in store.redacted(row)}
    assert len(masks) == 3
    assert masks < flagged
    assert cleared.isdisjoint(flagged)
    assert cleared | flagged == set(range(len(store)))


def test_6_a_minibatch_is_all_protected_with_noise_or_all_cleared_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Step, list[int]]] = []
    pools: list[Pools] = []
    carry_out = Updates.carry_out

    def watched(self: Updates, step: Step, batch: DrawnUnits, streams: Streams) -> Done:
        pools[:] = [self.pools]
        drawn.append((step, batch.rows.tolist()))
        return carry_out(self, step, batch, streams)

    monkeypatch.setattr(Updates, "carry_out", watched)
    words: dict[str, Any] = {"steps": 6}
    settings = experiment(write_corpus(tmp_path), "crt", words, model_config={"embedding_size": 8, "hidden_size": 8})
    train(settings, tmp_path / "run", quiet)
    flagged, cleared = (set(pools[0].rows(pool).tolist()) for pool in (Pool.FLAGGED, Pool.CLEARED))
    assert {type(step.update) for step, _ in drawn} == {Noisy, Plain}
    for step, rows in drawn:
        assert set(rows) <= (flagged if isinstance(step.update, Noisy) else cleared)
    assert any(rows for step, rows in drawn if isinstance(step.update, Noisy))


@pytest.mark.parametrize("duplicates", ["keep", "exact", "doubtful"])
def test_taking_a_protected_record_away_takes_at_most_its_own_rows_from_its_own_pool(
    duplicates: Duplicates, tmp_path: Path
) -> None:
    """Equal texts of all three sorts (marked, doubtful, cleared), some of them with other secrets, in any order."""
    texts = ["my code is 1", "my code is 2", "ask Ann", "it rained", "ask Ann", "it rained", "my code is 3", "ask Bo"]
    corpus = _texts(*random.Random(5).sample(texts * 2, 16))

    def pools(name: str, records: Sequence[Record]) -> Counter[tuple[bool, tuple[int, ...]]]:
        annotator, settings = Annotator(), PrepareConfig(64, duplicates)
        store = prepare(records, Digits(), TOKENIZER, tmp_path / name, settings, Capitals(), annotator)
        flagged = annotator.marks().flagged[store.records.astype(np.int64)]
        return Counter((bool(flagged[row]), tuple(store.redacted(row).tolist())) for row in range(len(store)))

    everything = pools("all", corpus)
    assert sum(everything.values()) == {"keep": 16, "exact": 4, "doubtful": 6 + 2 + 4}[duplicates]
    for gone, record in enumerate(corpus):
        without = pools(f"without-{gone}", corpus[:gone] + corpus[gone + 1 :])
        assert not without - everything
        assert everything - without <= pools(f"alone-{gone}", [record])


def _trained(folder: Path, records: Sequence[Record], settings: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    """What a run of crt trains: pool, tokens and label of every row, as `train` prepares them."""
    folder.mkdir()
    write_jsonl(records, folder / "corpus.jsonl")
    write_jsonl([Record("h", "held out", label="x", spans=())], folder / "held.jsonl")
    asked = {"mechanism": "crt", "noise_multiplier": 1.0}
    files = {"corpus": str(folder / "corpus.jsonl"), "held_out_corpus": str(folder / "held.jsonl")}
    chosen = load_config({**files, "plan": asked, "canaries": [], **settings})
    policies = make_policies(chosen)
    with RunFolder.create(folder / "run") as run:
        mark_once(chosen, policies, run, quiet)
        prepare_stores(chosen, policies, byte_tokenizer(), run, quiet)
        store = PreparedCorpus(run.path(PrivateFile.PREPARED))
        marks = RecordMarks.load(run.path(PrivateFile.MARKS))
    flagged = marks.flagged[store.records.astype(np.int64)]
    return Counter((bool(flagged[r]), tuple(store.redacted(r).tolist()), store.label(r)) for r in range(len(store)))


LABELS = {"task": "classification", "classes": ["x", "y"], "policy": "digits"}
TWINS: dict[str, tuple[tuple[Record, ...], dict[str, Any]]] = {
    "a label": ((Record("a", "pay 1", label="x"), Record("b", "pay 2", label="y")), LABELS),
    "routing": (
        (Record("a", "pay Ann", spans=(Span(4, 7, "NAME"),)), Record("b", "pay Ann", spans=())),
        {"policy": "digits", "conservative_policy": "gold"},
    ),
}


@pytest.mark.parametrize("differ", TWINS)
def test_equal_texts_that_training_tells_apart_are_no_duplicates(differ: str, tmp_path: Path) -> None:
    """Otherwise, without the first record, its twin is trained: with another label (2 C), or even without noise."""
    records, settings = TWINS[differ]
    both, without = (_trained(tmp_path / name, some, settings) for name, some in (("D", records), ("-a", records[1:])))
    assert not without - both
    assert sum((both - without).values()) == 1


def test_hit_caught_and_lost_are_what_preparation_makes_of_a_masked_record(tmp_path: Path) -> None:
    """Catches a record that is counted as hit although its two worlds differ, and one that is lost but not counted.

    Theory, section 10: the labelled sample's counts are those of the lemma. A masked record holds a placeholder.
    """
    policy = Pii()
    turns = list(segment_records(simulate("customersim", 40, seed=3), "turn"))
    sample = draw_sample(turns, policy, Capitals(), size=len(turns), seed=1, labels=LabelOrigin.GOLD)
    outcomes = measured(sample, policy, Capitals()).outcomes
    kinds = Counter[str]()
    for number, (item, outcome) in enumerate(zip(sample.items, outcomes, strict=True)):
        if not outcome.secret:
            continue
        record, labels = item.record, item.secrets or ()
        marks = [span for span in policy.find(record) if any(a.start < span.end and span.start < a.end for a in labels)]
        masked = record
        for span in sorted(resolve_overlaps([*marks, *labels]), reverse=True):
            masked = with_replaced(masked, span, PLACEHOLDER)
        same = redact(policy, record) == redact(policy, masked)
        hit = not (outcome.missed or outcome.unstable)
        assert same or not hit
        if hit and number % 10 == 0:  # the store itself, now and then
            ours = _prepared(tmp_path / f"{number}", [record], policy)
            theirs = _prepared(tmp_path / f"{number}-masked", [masked], policy | Regex(PLACEHOLDER, "X"))
            assert _contents(ours) == _contents(theirs)
        annotator = Annotator()
        list(annotator.watching(mark([record], policy, Capitals())))
        assert bool(outcome.cleared) == (not annotator.marks().flagged[0])
        kinds[("hit" if hit else "lost" if outcome.cleared else "caught") + ("" if same else ", differs")] += 1
    assert kinds["hit"] > 5
    assert kinds["caught, differs"] > 3
    assert kinds["hit, differs"] == 0
