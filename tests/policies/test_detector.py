"""Context detectors: what they read, how they are fitted, their folders, and what they do as policies."""

import json
import math
import os
import pickle
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from held_out_prompts import held_out
from marking import check_detector_data
from near_misses import NONE_OF_ITS_WORDS, OTHER_SENSES, SOME_OF_ITS_WORDS
from tacit.cli.main import app
from tacit.common.progress import Progress
from tacit.data.records import Record, spans_fault
from tacit.errors import ClaimRefused, ConfigError, PolicyError
from tacit.mechanisms.build import plan
from tacit.policies.detectors.detector import Detected, detector_data, read_detector, write_detector
from tacit.policies.detectors.encoder import DetectorSettings
from tacit.policies.detectors.examples import public_sentences, read_prompts, split_openings
from tacit.policies.detectors.linear import (
    DEFAULT_WINDOW,
    UNIT,
    Linear,
    Window,
    cut,
    fit,
    fit_linear,
    grams,
    hashed,
    loss_and_gradient,
    make_rows,
    masked,
)
from tacit.policies.detectors.paraphrase import ParaphraseFunction
from tacit.policies.detectors.rewording import Rewording
from tacit.policies.detectors.training import (
    TrainedDetector,
    TrainingTexts,
    choose_threshold,
    measure,
    train,
    with_values,
)
from tacit.policies.patterns import Digits
from tacit.policies.registry import build_policy, parse_policy
from tacit.policies.stability import StabilityCounts, mask_stability
from tacit.privacy.guarantee import Evidence

CANARY = "My bank security code is"
PHI = ParaphraseFunction((Rewording(),), most=300)
SETTINGS = DetectorSettings(bits=16, sentences=3000)
TEXTS = st.lists(
    st.sampled_from(["My", "bank", "code", "is", "450.", "ÉTÉ", "x1", "forty-five", "dog", "\n", "…", "_", "\ue000"]),
    max_size=40,
).map(" ".join) | st.text(max_size=60)


def unwatched(_: Progress) -> None:
    pass


def public_text(count: int, seed: int) -> list[str]:
    """Sentences of no meaning from words of everyday life; nobody says anything of himself in them."""
    rng = random.Random(seed)
    who = ["the team", "a river", "the council", "her uncle", "the band", "every player", "the castle", "he", "they"]
    does = ["won", "crossed", "recorded", "was built in", "moved to", "was named after", "lost", "described", "met"]
    what = ["the season", "a bridge", "an album of songs", "the north bank of the river", "the old town", "two ships"]
    when = ["in 1998", "after 14 years", "for national security", "on page 30", "with a score of 3", "that summer"]
    more = ["as the building code required", "while it rained", "near the number 5 bus", "before the war", "again"]
    return [
        " ".join(rng.choice(part) for part in (who, does, what, when, more)).capitalize() + "." for _ in range(count)
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detector")
    (folder / "canary.txt").write_text(CANARY + " {3 digits}\n")
    (folder / "public.txt").write_text("\n".join(dict.fromkeys(public_text(3000, 1))))
    return folder


@pytest.fixture(scope="module")
def trained(place: Path) -> TrainedDetector:
    return train(place / "made", place / "public.txt", PHI, SETTINGS, unwatched, place / "canary.txt")


# What a detector reads


@given(text=TEXTS, digits=st.text("0123456789", min_size=1, max_size=9))
def test_g1_numbers_are_masked_whatever_they_are(text: str, digits: str) -> None:
    around = [f"my code is {number} {text}" for number in (digits, "7", "450-22-1234", "4 5 0", "forty five", "x9z")]
    assert len(set(masked(around))) == 1


@given(texts=st.lists(TEXTS, max_size=5))
def test_masking_keeps_texts_apart_and_can_be_repeated(texts: list[str]) -> None:
    lines = masked(texts)
    assert lines == [masked([text])[0] for text in texts]
    assert masked(lines) == lines
    assert all(line == " ".join(line.split()) for line in lines)


@given(length=st.integers(0, 80), words=st.integers(1, 20), stride=st.integers(1, 20))
def test_g2_windows_hold_every_run_of_words(length: int, words: int, stride: int) -> None:
    window = Window(words, min(stride, words))
    pieces = cut(length, window)
    assert all(0 <= start <= end <= length and end - start <= words for start, end in pieces)
    overlap = words - window.stride
    for start in range(length):
        run = range(start, min(length, start + max(1, overlap)))
        assert any(first <= run[0] and run[-1] < last for first, last in pieces)


def slow_hash(text: str) -> int:
    """Sums of mixed codes times powers of the prime, with Python's whole numbers."""
    return sum(slow_mix(ord(sign)) * pow(0x9E3779B97F4A7C15, place, 1 << 64) for place, sign in enumerate(text)) % (
        1 << 64
    )


def slow_mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) % (1 << 64)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % (1 << 64)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % (1 << 64)
    return value ^ (value >> 31)


def slow_buckets(words: list[str], bits: int) -> Counter[int]:
    """The same n-grams one at a time."""
    hashes = []
    for word in words:
        spaced = f" {word} "
        hashes += [slow_hash(spaced[at : at + n]) for n in (3, 4, 5) for at in range(len(spaced) - n + 1)]
    for at in range(len(words)):
        state = slow_hash(words[at]) + 1
        hashes.append(state)
        for size in (2, 3):
            if at + size <= len(words):
                state = slow_mix(state % (1 << 64)) + slow_hash(words[at + size - 1]) + size
                hashes.append(state)
    return Counter(slow_mix(one % (1 << 64)) >> (64 - bits) for one in hashes)


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
@settings(max_examples=15)
def test_g3_n_grams_are_those_of_the_slow_way(texts: list[str]) -> None:
    lines = masked(texts)
    expected: Counter[int] = sum((slow_buckets(line.split(), 12) for line in lines), Counter())
    assert Counter(grams(lines, 12).buckets.tolist()) == expected
    matrix = hashed(lines, 12).toarray()
    for line, row in zip(lines, matrix, strict=True):
        counts = slow_buckets(line.split(), 12)
        dense = np.zeros(1 << 12)
        for bucket, count in counts.items():
            dense[bucket] = count / math.sqrt(counts.total())
        assert row == pytest.approx(dense)


@given(texts=st.lists(TEXTS, min_size=1, max_size=4), seed=st.integers(0, 9))
@settings(max_examples=15)
def test_scores_are_those_of_the_slow_way(texts: list[str], seed: int) -> None:
    weights = np.random.default_rng(seed).integers(-(2**20), 2**20, 1 << 12).astype(np.int32)
    detector = Linear(weights, 0.25, Window(6, 3))
    for text, score in zip(texts, detector.scores(texts), strict=True):
        words = masked([text])[0].split()
        best = -1e9
        for start, end in cut(len(words), detector.window):
            counts = slow_buckets(words[start:end], 12)
            if counts:
                total = sum(int(weights[bucket]) * count for bucket, count in counts.items())
                best = max(best, total * UNIT / math.sqrt(counts.total()) + 0.25)
        assert score == best


# Fitting


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    matrix, labels = rng.normal(size=(30, 6)), rng.random(30) < 0.3
    at = rng.normal(size=7)
    _, gradient = loss_and_gradient(at, matrix, labels, 0.1)
    for place in range(7):
        step = np.zeros(7)
        step[place] = 1e-6
        higher, lower = (loss_and_gradient(at + sign * step, matrix, labels, 0.1)[0] for sign in (1, -1))
        assert gradient[place] == pytest.approx((higher - lower) / 2e-6, rel=1e-5, abs=1e-8)


def test_the_fit_has_no_slope_left_and_sparse_is_dense() -> None:
    lines = masked([*public_text(60, 0), *(f"{CANARY} {word}" for word in "abcdefgh")])
    labels = np.array([False] * 60 + [True] * 8)
    sparse = hashed(lines, 8)
    weights, bias = fit(sparse, labels, 1e-3)
    _, gradient = loss_and_gradient(np.append(weights, bias), sparse.toarray(), labels, 1e-3)
    assert np.abs(gradient).max() < 1e-4
    fitted = fit_linear(lines, labels, 8, 1e-3, DEFAULT_WINDOW)
    assert fitted.weights * UNIT == pytest.approx(weights, abs=UNIT)


@given(
    sensitive=st.lists(st.integers(-5, 5), min_size=1, max_size=30),
    harmless=st.lists(st.integers(-5, 5), max_size=30),
    recall=st.sampled_from([0.5, 0.9, 0.99, 1.0]),
    alarms=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_the_threshold_reaches_the_recall_and_is_no_lower_than_the_alarms_need(
    sensitive: list[int], harmless: list[int], recall: float, alarms: float
) -> None:
    yes, no = np.array(sensitive, float), np.array(harmless, float)
    threshold = choose_threshold(yes, no, recall, alarms)
    assert (yes >= threshold).mean() >= recall - 1e-9
    if len(no) and (no >= threshold).mean() > alarms + 1e-9:  # then only because recall needs it
        assert (yes >= np.nextafter(threshold, np.inf)).mean() < recall


def test_held_out_paraphrases_begin_with_other_words() -> None:
    texts = PHI.paraphrases([CANARY], 0)[0]
    parts = split_openings(texts, 0)
    assert parts.by == "opening words"
    assert sorted([*parts.train, *parts.threshold, *parts.test]) == sorted(texts)
    openings = [
        {" ".join(line.split()[:2]) for line in masked(part)} for part in (parts.train, parts.threshold, parts.test)
    ]
    assert not openings[0] & openings[1]
    assert not openings[0] & openings[2]
    assert not openings[1] & openings[2]
    assert CANARY in parts.train
    assert split_openings([f"my code {word} is" for word in map(chr, range(97, 123))], 0).by == "text"


# What it finds


def test_the_canary_and_its_unseen_paraphrases_are_found(trained: TrainedDetector) -> None:
    assert trained.verbatim.flagged == trained.verbatim.of == 1
    assert trained.recall.flagged / trained.recall.of >= 0.98
    detector = trained.detector
    assert detector.flags([f"{CANARY} {value:03d}." for value in range(1000)]).all()
    unseen = held_out()
    assert len(unseen) >= 202
    assert detector.flags(unseen).mean() >= 0.98
    assert detector.flags([f"{text} 450." for text in unseen]).mean() >= 0.98
    assert detector.flags(public_text(500, 2)).mean() <= 0.02


def test_near_misses_are_told_by_words_not_by_meaning(trained: TrainedDetector) -> None:
    """What docs/detectors.md says a linear detector is: it needs one of the prompt's words, in whatever sense."""
    flags = trained.detector.flags
    assert flags(list(SOME_OF_ITS_WORDS)).mean() >= 0.7
    assert flags(list(OTHER_SENSES)).mean() > flags(list(NONE_OF_ITS_WORDS)).mean()
    words = {word for line in masked([*SOME_OF_ITS_WORDS, *NONE_OF_ITS_WORDS]) for word in line.split()}
    assert not words & {"bank", "banking", "code", "pin", "passcode", "security"}
    words = {word for line in masked(list(NONE_OF_ITS_WORDS)) for word in line.split()}
    assert not words & {"account", "card", "debit", "credit", "digits", "number", "secret", "key", "access", "union"}


@pytest.mark.statistical
def test_a_detector_of_shuffled_labels_does_not_find_them(place: Path) -> None:
    """Control. Labels without a meaning: at 2 % alarms recall stays below a half. The shuffling is seeded."""
    sentences, _ = public_sentences(place / "public.txt", 1000, 0)
    rows = make_rows(PHI.paraphrases([CANARY], 0)[0], [], sentences, DEFAULT_WINDOW, 0)
    shuffled = np.random.default_rng(0).permutation(rows.sensitive)
    other = public_text(1000, 2)
    for labels, finds in ((rows.sensitive, True), (shuffled, False)):
        detector = fit_linear(rows.lines, labels, 14, 1e-5, DEFAULT_WINDOW)
        threshold = np.quantile(detector.scores(other), 0.98)
        found = float(np.mean(detector.scores(held_out()) > threshold))
        assert found > 0.9 if finds else found < 0.5


def test_context_decides_not_the_number(place: Path) -> None:
    prompts = place / "prompts.jsonl"
    rows = [("I received my social security card; my number is", "sensitive"), ("My SSN is", "sensitive")]
    rows += [("I am waiting at the motor vehicle department; my number is", "harmless"), ("Our ticket is", "harmless")]
    prompts.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    made = train(place / "context", place / "public.txt", PHI, SETTINGS, unwatched, prompts=prompts)
    assert made.detector.flags(
        [
            "I received my social security card; my number is 450-22-1234.",
            "I am waiting at the motor vehicle department; my number is 87.",
            "Today the social security card came; the number is 87.",
            "The queue at the motor vehicle office is long; my number is 450-22-1234.",
        ]
    ).tolist() == [True, False, True, False]


# Its folder


def test_the_same_words_give_the_same_folder_byte_by_byte(place: Path, trained: TrainedDetector) -> None:
    again = train(place / "again", place / "public.txt", PHI, SETTINGS, unwatched, place / "canary.txt")
    assert again.detector == trained.detector
    for name in ("detector.json", "card.json", "weights.npy"):
        assert (again.folder / name).read_bytes() == (trained.folder / name).read_bytes()
    with pytest.raises(ConfigError, match="which is there"):
        train(again.folder, place / "public.txt", PHI, SETTINGS, unwatched, place / "canary.txt")
    assert not list(place.glob(".*"))


def test_the_card_says_on_what_and_how_well_and_not_the_prompts(trained: TrainedDetector) -> None:
    card = trained.detector.card
    assert [source["name"] for source in card["sources"]] == ["canary.txt", "public.txt"]
    assert card["phi"]["ways"][0]["way"] == "rewording"
    assert card["recall"]["of"] == card["counts"]["test"]["sensitive"]
    assert 0 <= card["recall"]["low"] <= card["recall"]["share"] <= card["recall"]["high"] <= 1
    assert {"numpy", "scipy", "tacit"} <= card["libraries"].keys()
    assert "security" not in (trained.folder / "card.json").read_text()
    assert str(trained.folder.parent) not in (trained.folder / "card.json").read_text()


@pytest.mark.parametrize("harm", ["weight", "card", "threshold", "extra", "missing", "pickle", "hash"])
def test_g1_a_folder_that_was_changed_is_refused(tmp_path: Path, trained: TrainedDetector, harm: str) -> None:
    for path in trained.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights, words = tmp_path / "weights.npy", tmp_path / "detector.json"
    if harm == "weight":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    elif harm == "card":
        (tmp_path / "card.json").write_text((tmp_path / "card.json").read_text().replace("0.99", "0.98"))
    elif harm == "threshold":
        words.write_text(words.read_text().replace('"threshold": ', '"threshold": 1'))
    elif harm == "extra":
        (tmp_path / "more.json").write_text("{}")
    elif harm == "missing":
        (tmp_path / "card.json").unlink()
    elif harm == "pickle":
        weights.write_bytes(pickle.dumps([1, 2]))
    else:
        words.write_text(words.read_text().replace('"hash": "', '"hash": "0'))
    assert read_detector(trained.folder)
    with pytest.raises(PolicyError):
        read_detector(tmp_path)


@pytest.mark.parametrize(
    "weights", [np.array([1, 2, 3], np.int32), np.zeros(4), np.zeros((2, 2), np.int32), np.array([None], object)]
)
def test_weights_that_are_no_weights_are_refused(tmp_path: Path, weights: np.ndarray) -> None:
    np.save(tmp_path / "weights.npy", weights, allow_pickle=True)
    with pytest.raises(PolicyError):
        Linear.load(tmp_path, 0.0, DEFAULT_WINDOW)


def test_g2_any_weight_the_threshold_and_the_card_change_the_hash(tmp_path: Path, trained: TrainedDetector) -> None:
    scorer = trained.detector.scorer
    assert isinstance(scorer, Linear)
    card = dict(trained.detector.card)
    seen = set()
    rng = np.random.default_rng(0)
    changed = []
    for place in (0, len(scorer.weights) - 1, *rng.integers(0, len(scorer.weights), 4)):
        weights = scorer.weights.copy()
        weights[place] += 1
        changed.append((replace(scorer, weights=weights), 0.0, card))
    changed += [(scorer, 0.0, card), (scorer, 1.0, card), (replace(scorer, bias=9.0), 0.0, card)]
    changed += [(scorer, 0.0, {**card, "seed": 5}), (replace(scorer, window=Window(9, 3)), 0.0, card)]
    for number, (one, threshold, words) in enumerate(changed):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_detector(folder, one, threshold, words)
        seen.add(Detected.from_folder(folder).hash)
    assert len(seen) == len(changed)


# As a policy


@given(text=TEXTS, level=st.sampled_from(["sentence", "turn", "record"]))
@settings(max_examples=60)
def test_spans_are_tidy_whole_and_pure(trained: TrainedDetector, text: str, level: str) -> None:
    policy = Detected(trained.detector, level)
    text = f"{CANARY} 450. {text}"
    spans = policy.find(Record("r", text))
    assert spans_fault(spans, len(text)) is None
    assert all(not text[span.start].isspace() and not text[span.end - 1].isspace() for span in spans)
    assert policy.find(Record("other", text, user="u")) == spans
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_levels_mark_whole_pieces(trained: TrainedDetector) -> None:
    text = "The dog slept. My bank security code is 450. It rained.\nHe left."
    start = text.index("My")
    found = {
        level: Detected(trained.detector, level).find(Record("r", text)) for level in ("sentence", "turn", "record")
    }
    assert found["sentence"] == ((start, text.index(" It"), "SENSITIVE"),)
    assert found["turn"] == ((0, text.index("\n"), "SENSITIVE"),)
    assert found["record"] == ((0, len(text), "SENSITIVE"),)
    with pytest.raises(ConfigError, match="sentence"):
        Detected(trained.detector, "paragraph")


def test_empty_blank_and_very_long_texts(trained: TrainedDetector) -> None:
    policy = Detected(trained.detector)
    for text in ("", " \n\t", "...", "\ue000", "\ud800"):
        assert policy.find(Record("r", text)) == ()
    piece = f"The dog slept. {CANARY} 450. It rained all day long.\n"
    long = Record("r", piece * (1_000_000 // len(piece)))
    spans = policy.find(long)
    assert len(spans) == 1_000_000 // len(piece)
    unbroken = Record("r", "a" * 500_000 + f" {CANARY} " + "b" * 500_000)
    assert spans_fault(Detected(trained.detector, "record").find(unbroken), 1_000_026) is None


def test_g3_masks_are_stable(trained: TrainedDetector) -> None:
    rng = random.Random(0)
    total = StabilityCounts()
    for number in range(30):
        sentences = [*rng.sample(held_out(), 3), *public_text(3, number)]
        rng.shuffle(sentences)
        record = Record("r", " ".join(f"{text.rstrip('.:,')} {rng.randrange(1000)}." for text in sentences))
        total += mask_stability(Detected(trained.detector), record, rng)
    assert total.spans >= 80
    assert total.rest_changed == 0
    assert total.redaction_stable == total.spans


def test_the_registry_builds_it(trained: TrainedDetector, tmp_path: Path) -> None:
    folder = trained.folder
    expected = Detected(trained.detector, "turn")
    assert build_policy({"detector": {"folder": folder.name, "level": "turn"}}, folder.parent) == expected
    assert build_policy({"detector": folder.name}, folder.parent) == Detected(trained.detector)
    (folder.parent / "mine.yaml").write_text(f"policy: {{detector: {folder.name}, level: turn}}\n")
    assert parse_policy(str(folder.parent / "mine.yaml")) == expected
    with pytest.raises(PolicyError, match="whole detector"):
        build_policy({"detector": "nowhere"}, tmp_path)


def test_the_certificate_of_cadp_names_the_detector_and_its_data(trained: TrainedDetector) -> None:
    policy = Digits() | Detected(trained.detector)
    data = detector_data(policy)
    assert data == trained.detector.trained_on
    assert detector_data(Digits()) is None
    words = {"mechanism": "cadp", "records": 1000, "flagged": 300, "epsilon": 3, "epochs": 2}
    claim = plan(words, Evidence(policy.id, policy.hash, detector_data=data)).guarantee.claim
    assert f"Detector {policy.hash}, trained on templates canary.txt (1, SHA-256 " in claim
    assert "public sentences of public.txt" in claim


def test_a_detector_that_learned_from_the_corpus_is_refused(trained: TrainedDetector) -> None:
    sentences = (trained.folder.parent / "public.txt").read_text().splitlines()
    same = [Record(str(number), text) for number, text in enumerate(sentences)]
    policy = Detected(trained.detector) | Digits()
    with pytest.raises(ClaimRefused, match="public or disjoint"):
        check_detector_data(policy, lambda: same)
    with pytest.raises(ClaimRefused, match="public or disjoint"):
        check_detector_data(policy, lambda: same[1:])
    check_detector_data(Digits(), lambda: same)


# What people write


def test_templates_and_prompts_are_read(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text('templates: ["My ID is {6 digits}.", "Take {3 digits} as my code"]\n')
    assert read_prompts(tmp_path / "t.yaml", None).sensitive == ("My ID is", "Take 123 as my code")
    for name, content in (("a.yaml", "templates: 5"), ("b.txt", "\n"), ("c.txt", "{3 digits}"), ("d.yaml", "[")):
        (tmp_path / name).write_text(content)
        with pytest.raises(ConfigError):
            read_prompts(tmp_path / name, None)
    (tmp_path / "p.jsonl").write_text('{"text": "a secret text", "label": "maybe"}\n')
    with pytest.raises(ConfigError) as caught:
        read_prompts(None, tmp_path / "p.jsonl")
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError):
        read_prompts(None, None)


def test_the_command_line_trains_shows_and_measures(place: Path) -> None:
    run = CliRunner().invoke
    words = [str(place / "cli"), "--templates", str(place / "canary.txt"), "--negatives", str(place / "public.txt")]
    done = run(app, ["detector", "train", *words, "--most", "120", "--sentences", "500"])
    assert done.exit_code == 0, done.output
    assert "held-out paraphrases" in done.output
    card = json.loads(run(app, ["detector", "show", str(place / "cli")]).output)
    assert card["settings"]["sentences"] == 500
    (place / "held.txt").write_text("\n".join(held_out()))
    said = run(app, ["detector", "measure", str(place / "cli"), str(place / "held.txt")]).output
    assert said.startswith("flagged 2")
    assert measure(place / "cli", place / "held.txt").of >= len(held_out())


# On top of an encoder


def tiny_encoder(folder: Path, dropout: float = 0.1) -> None:
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel
    from transformers.utils import logging

    words = sorted({word for line in masked([*held_out(), *public_text(200, 0), CANARY]) for word in line.split()})
    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"intermediate_size": 32, "vocab_size": len(vocabulary)}
    shape |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    BertModel(BertConfig(**shape)).save_pretrained(folder)  # type: ignore[no-untyped-call]
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [0, 1])
def test_an_encoder_is_a_detector_too(place: Path, tmp_path: Path, epochs: int) -> None:
    pytest.importorskip("transformers")
    tiny_encoder(tmp_path)
    chosen = replace(SETTINGS, sentences=400, encoder=tmp_path, epochs=epochs, learning_rate=1e-3)
    out = place / f"encoder{epochs}"
    made = train(
        out, place / "public.txt", ParaphraseFunction((Rewording(),), most=150), chosen, unwatched, place / "canary.txt"
    )
    assert made.verbatim.flagged == 1
    policy = Detected.from_folder(out)
    record = Record("r", "The dog slept. My bank security code is 450. It rained.")
    assert (15, 44, "SENSITIVE") in policy.find(record)
    again = pickle.loads(pickle.dumps(policy))
    assert again.find(record) == policy.find(record)
    assert "torch" in policy.content()["libraries"]
    texts = [*held_out()[:40], "", *public_text(20, 5)]
    alone = [float(made.detector.scorer.scores([text])[0]) for text in texts]
    assert made.detector.scorer.scores(texts).tolist() == alone
    (out / "model" / "config.json").write_text("{}")
    with pytest.raises(PolicyError):
        read_detector(out)


@pytest.mark.slow
def test_tuning_repeats_itself_and_leaves_the_encoder_it_was_given(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    encoder = tmp_path / "given"
    tiny_encoder(encoder)
    given = (encoder / "model.safetensors").read_bytes()
    chosen = replace(SETTINGS, sentences=100, harmless=False, encoder=encoder, epochs=1, learning_rate=1e-3)
    phi = ParaphraseFunction((Rewording(),), most=60)
    made, again = (
        train(tmp_path / name, place / "public.txt", phi, chosen, unwatched, place / "canary.txt")
        for name in ("tuned", "again")
    )
    assert again.detector.hash == made.detector.hash
    assert (encoder / "model.safetensors").read_bytes() == given
    assert (made.folder / "model" / "model.safetensors").read_bytes() != given


@pytest.mark.slow
def test_tuning_begins_with_a_fitted_head_and_tells_how_far_it_is(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    tiny_encoder(tmp_path / "given", dropout=0.0)
    chosen = replace(SETTINGS, sentences=100, harmless=False, encoder=tmp_path / "given", epochs=2, learning_rate=1e-3)
    told: list[Progress] = []
    phi = ParaphraseFunction((Rewording(),), most=60)
    made = train(tmp_path / "tuned", place / "public.txt", phi, chosen, told.append, place / "canary.txt")
    stages = list(dict.fromkeys(one.stage for one in told))
    assert stages == ["preparing", "training", "measuring"]
    for stage in stages:
        steps = [one for one in told if one.stage == stage]
        assert len({one.total for one in steps}) == 1
        assert [one.done for one in steps] == sorted(one.done for one in steps)
        assert steps[-1].done == steps[-1].total
    assert all(one.tokens > 0 for one in told if one.stage == "training")
    losses = [one.public_loss for one in told if one.public_loss is not None]
    assert len(losses) == 2 * math.ceil(sum(made.detector.card["rows"].values()) / 32)
    assert losses[0] < 0.3  # with a random head about .7


def test_the_threshold_on_the_card_follows_the_rule(place: Path, trained: TrainedDetector) -> None:
    """Recomputed from the parts, text by text: one alarm more would be too many, and recall is reached."""
    known = read_prompts(place / "canary.txt", None)
    sentences, _ = public_sentences(place / "public.txt", SETTINGS.sentences, SETTINGS.seed)
    said = TrainingTexts.of(known, sentences, PHI, SETTINGS)
    score = trained.detector.scorer.scores
    threshold = trained.detector.threshold
    found = np.array([float(score([text])[0]) for text in with_values(said.sensitive.threshold)])
    alarms = np.array(
        [float(score([text])[0]) for text in said.public.threshold + with_values(said.harmless.threshold)]
    )
    assert (found >= threshold).mean() >= SETTINGS.recall
    assert (alarms >= threshold).mean() <= SETTINGS.false_alarms
    assert (alarms >= np.nextafter(threshold, -np.inf)).mean() > SETTINGS.false_alarms


def test_what_cannot_be_trained_is_refused_at_once(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an encoder to tune"):
        DetectorSettings(epochs=1)
    for recall, false_alarms in ((0.0, 0.1), (1.1, 0.1), (0.9, 1.0), (0.9, -0.1)):
        with pytest.raises(ConfigError, match="a recall above 0"):
            DetectorSettings(recall, false_alarms)
    told: list[Progress] = []
    empty = replace(SETTINGS, encoder=tmp_path, epochs=1)
    with pytest.raises(PolicyError, match="safetensors"):
        train(tmp_path / "out", place / "public.txt", PHI, empty, told.append, place / "canary.txt")
    with pytest.raises(ConfigError, match="to choose the threshold with"):
        train(
            tmp_path / "out",
            place / "public.txt",
            ParaphraseFunction((), 1),
            SETTINGS,
            told.append,
            place / "canary.txt",
        )
    assert not any(one.stage != "preparing" or one.done for one in told)


@pytest.mark.slow
def test_a_pretrained_encoder_finds_unseen_paraphrases(place: Path) -> None:
    folder = os.environ.get("TACIT_ENCODER")
    if folder is None:
        pytest.skip("TACIT_ENCODER names no folder of a pretrained encoder")
    chosen = replace(SETTINGS, sentences=1000, encoder=Path(folder))
    made = train(place / "pretrained", place / "public.txt", PHI, chosen, unwatched, place / "canary.txt")
    assert made.verbatim.flagged == 1
    assert made.detector.flags(held_out()).mean() >= 0.98
    assert made.detector.flags(list(SOME_OF_ITS_WORDS)).mean() >= 0.9
    assert made.detector.flags(list(NONE_OF_ITS_WORDS)).mean() >= 0.5  # a linear detector: 1 of 16
