"""Invented secrets: made from kinds and public examples alone, learned by public steps, and free for secrets."""

import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import phonenumbers
import pytest
import torch

from marking import prepare
from runs import experiment, mechanism_of, quiet, write_corpus
from tacit.data.batches import RowReader
from tacit.data.inventions import invent
from tacit.data.prepare import PrepareConfig
from tacit.data.records import ONTONOTES, PERSONAL, Record, Span
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.viewed import Inventions
from tacit.errors import ConfigError, PrepareError
from tacit.policies.patterns import Gold
from tacit.privacy.events import Free
from tacit.privacy.guarantee import Guarantee, Status
from tacit.privacy.plan import Neighbors, Targets, Unit, View, cost
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.training.checks import check_run
from tacit.training.stages import train

FORMLESS = {"EVENT", "LAW", "PRODUCT", "WORK_OF_ART"}
"""Kinds of which nobody can say what they look like."""
MARKS: dict[str, Callable[[str], bool]] = {
    "CARD": lambda text: text.isdigit() and len(text) >= 12,
    "DIGITS": lambda text: any(character.isdigit() for character in text),
    "EMAIL": lambda text: "@" in text,
    "PHONE": lambda text: phonenumbers.is_possible_number(phonenumbers.parse(text, "US")),
    "SSN": lambda text: re.fullmatch(r"\d{3}-\d{2}-\d{4}", text) is not None,
}


@pytest.mark.parametrize("kind", [*ONTONOTES, *PERSONAL, "DIGITS"])
def test_what_is_invented_is_of_its_kind_and_repeatable(kind: str) -> None:
    made = [invent(kind, random.Random(seed), {}) for seed in range(100)]
    assert made == [invent(kind, random.Random(seed), {}) for seed in range(100)]
    if kind in FORMLESS:
        assert made == [None] * 100
        return
    texts = [text for text in made if text]
    assert len(texts) == 100
    assert len(set(texts)) > 5
    assert kind not in MARKS or all(MARKS[kind](text) for text in texts)


def test_other_names_of_a_kind_are_known_too() -> None:
    assert invent("NAME", random.Random(3), {}) == invent("PERSON", random.Random(3), {})
    assert invent("CANARY", random.Random(3), {}) is None


def test_examples_give_the_form_and_never_themselves() -> None:
    examples = {"ORDER": ["QX-12345"], "HULL": ["Z9"]}
    for kind, form in (("ORDER", r"[A-Z]{2}-\d{5}"), ("HULL", r"[A-Z]\d")):
        made = [invent(kind, random.Random(seed), examples) or "" for seed in range(50)]
        assert all(re.fullmatch(form, text) for text in made)
        assert not {"QX-12345", "Z9"} & set(made)
    assert len({invent("ORDER", random.Random(seed), examples) for seed in range(50)}) > 40


def _records(secret: str) -> Iterator[Record]:
    """Two spans of known form and one of unknown."""
    for number in range(9):
        code, name = f"{secret}{number}", secret.upper()
        text = f"my code {code}, I am {name}: {secret}!"
        starts = (8, 8 + len(code) + 7, len(text) - 1 - len(secret))
        ends = (8 + len(code), starts[1] + len(name), len(text) - 1)
        yield Record(f"r{number}", text, spans=tuple(map(Span, starts, ends, ("ORDER", "NAME", "RIDDLE"))))


def _reader(folder: Path, secret: str) -> tuple[PreparedCorpus, RowReader]:
    tokenizer = byte_tokenizer()
    store = prepare(_records(secret), Gold(), tokenizer, folder / secret, PrepareConfig(max_tokens=64))
    return store, RowReader(store, tokenizer.end, 100, Inventions(tokenizer, {}))


@pytest.mark.parametrize("targets", list(Targets))
def test_g1_the_invented_view_does_not_depend_on_what_secrets_say(tmp_path: Path, targets: Targets) -> None:
    """T1 for this view, with secrets of other content and length; the full view is the negative control."""
    rows = range(9)
    (_, one), (_, other) = _reader(tmp_path, "abc"), _reader(tmp_path, "longer secret")
    first, second = (reader.batch(rows, View.INVENTED, targets) for reader in (one, other))
    assert torch.equal(first.tokens, second.tokens)
    assert torch.equal(first.weights, second.weights)
    full = [reader.batch(rows, View.FULL, targets).tokens for reader in (one, other)]
    assert full[0].shape != full[1].shape


def test_the_invented_view_never_touches_the_private_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T5."""
    _, reader = _reader(tmp_path, "abc")
    monkeypatch.setattr(PreparedCorpus, "full", lambda self, row: pytest.fail("read a secret"))
    assert len(reader.batch(range(9), View.INVENTED, Targets.PUBLIC)) == 9


def test_public_text_stays_and_placeholders_without_a_form_are_no_targets(tmp_path: Path) -> None:
    store, _ = _reader(tmp_path, "abc")
    tokenizer = byte_tokenizer()
    inventions = Inventions(tokenizer, {})
    codes = set[str]()
    for row in range(9):
        tokens, left, _ = inventions.row(store, row)
        assert left.sum() == 1
        assert tokens[left].tolist() == store.redacted(row)[store.positions(row)[2:]].tolist()
        text = tokenizer.decode(tokens[~left].tolist())
        match = re.fullmatch(r"my code (.+), I am (.+): !", text)
        assert match is not None
        codes.add(match[1])
    assert len(codes) > 5  # rows do not share one invention
    batch = RowReader(store, tokenizer.end, 100, inventions).batch([0], View.INVENTED, Targets.PUBLIC)
    counted = batch.targets[0][batch.weights[0] != 0].tolist()
    tokens, left, _ = inventions.row(store, 0)
    assert counted == [*tokens[~left].tolist(), tokenizer.end]


def test_rows_without_secrets_stay_as_they_are(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    store = prepare([Record("r", "nothing to hide", spans=())], Gold(), tokenizer, tmp_path / "store")
    tokens, left, _ = Inventions(tokenizer, {}).row(store, 0)
    assert np.array_equal(tokens, store.redacted(0))
    assert not left.any()


def test_a_reader_without_inventions_refuses_the_view(tmp_path: Path) -> None:
    store, _ = _reader(tmp_path, "abc")
    with pytest.raises(PrepareError, match="inventions"):
        RowReader(store, byte_tokenizer().end, 100).batch([0], View.INVENTED, Targets.ALL)


WORDS: dict[str, Any] = {"records": 100, "public_epochs": 1}
NOISE: dict[str, Any] = {"noise_multiplier": 1.0, "expected_batch_size": 10, "epochs": 1}


@pytest.mark.parametrize("name", ["selective", "twice"])
def test_public_steps_stay_free_and_the_price_is_that_of_placeholders(name: str) -> None:
    words = {"mechanism": name, **WORDS, **NOISE}
    mechanisms = [mechanism_of({**words, "public_view": view}) for view in ("redacted", "invented")]
    for neighbors in mechanisms[0].notions():
        redacted, invented = (
            [spent for spent in mechanism.plan().spend(neighbors) if not isinstance(spent[0], Free)]
            for mechanism in mechanisms
        )
        assert redacted == invented
    public = [step for step in mechanisms[1].plan().executions() if step.name == "public"]
    assert {step.view for step in public} == {View.INVENTED}
    assert all(isinstance(cost(step, Neighbors(Unit.SECRETS)), Free) for step in public)


@pytest.mark.parametrize("name", ["plain", "redaction", "invented", "dpsgd", "cadp", "user", "uedp"])
def test_mechanisms_that_leave_no_secrets_out_refuse_the_word(name: str) -> None:
    counts = {"records": 100, "flagged": 30, "users": 100, "user_cap": 2, "entity_cap": 2, "other_records": 50}
    wanted = {
        "plain": ("records",),
        "redaction": ("records",),
        "invented": ("records",),
        "dpsgd": ("records",),
        "cadp": ("records", "flagged"),
        "user": ("users",),
        "uedp": ("records", "user_cap", "entity_cap"),
    }[name]
    exact = ("plain", "redaction", "invented")
    words = {"mechanism": name, **{word: counts[word] for word in wanted}, **({} if name in exact else NOISE)}
    words |= {"public_epochs": 1} if name in (*exact, "cadp") else {}
    mechanism_of(words)
    with pytest.raises(ConfigError, match="public_view"):
        mechanism_of({**words, "public_view": "invented"})


def test_examples_without_the_view_are_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    with pytest.raises(ConfigError, match="inventions"):
        check_run(experiment(corpus, "redaction", inventions={"ORDER": ["A1"]}))
    with pytest.raises(ConfigError, match="inventions"):
        check_run(experiment(corpus, "selective", {"public_view": "redacted"}, inventions={"ORDER": ["A1"]}))
    check_run(experiment(corpus, "selective", inventions={"ORDER": ["A1"]}))
    check_run(experiment(corpus, "invented", inventions={"ORDER": ["A1"]}))


@pytest.mark.parametrize(
    ("name", "view"),
    [("selective", View.INVENTED), ("twice", View.INVENTED), ("redaction", View.REDACTED), ("invented", View.INVENTED)],
)
def test_what_public_steps_read_unless_told(name: str, view: View) -> None:
    words = {"mechanism": name, **WORDS, **({} if name in ("redaction", "invented") else NOISE)}
    steps = mechanism_of(words).plan().executions()
    assert {step.view for step in steps if step.name == "public"} == {view}


def test_only_examples_have_to_be_trusted(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    found = list[list[Status]]()
    chosen: dict[str, dict[str, list[str]]] = {"without": {}, "with": {"ORDER": ["A1"]}}
    for name, examples in chosen.items():
        train(experiment(corpus, "selective", inventions=examples), tmp_path / name, quiet)
        with RunFolder.view(tmp_path / name) as run:
            guarantee = run.read_json(Guarantee, ReleaseFile.GUARANTEE)
        found.append([one.status for one in guarantee.holds_if if "invented" in one.text])
    assert found == [[Status.MET], [Status.ASSUMED]]


@pytest.mark.parametrize("names", [("redaction", "invented"), ("selective", "selective")])
def test_a_model_learns_the_form_of_secrets_for_free(tmp_path: Path, names: tuple[str, str]) -> None:
    """Held-out secrets are likelier after invented ones than after placeholders; the claim says what was done."""
    corpus = write_corpus(tmp_path, 40)
    found = dict[str, float]()
    for name, view in zip(names, ("redacted", "invented"), strict=True):
        words = {"public_epochs": 4, "public_batch_size": 8, **({"public_view": view} if name == "selective" else {})}
        folder = tmp_path / view
        train(experiment(corpus, name, words, private={"optimizer": "sgd", "learning_rate": 1e-3}), folder, quiet)
        with RunFolder.view(folder) as run:
            guarantee = run.read_json(Guarantee, ReleaseFile.GUARANTEE)
            found[view] = run.read_json(dict, PrivateFile.UTILITY)["private"]["nats"]
        assert ("invented" in str(guarantee)) == (view == "invented")
    assert math.isfinite(found["invented"])
    assert found["invented"] < 0.8 * found["redacted"]
