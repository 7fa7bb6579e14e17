"""What every policy promises (G1 pure, G2 local, G3 tidy), over one example of each. A new policy is a new row."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers import PIPELINE, has_presidio, save_tiny_run
from tacit.api import detector_train, simulate
from tacit.data.records import Record, Span, spans_fault
from tacit.papers.alpha_context import WithAlphaContext
from tacit.policies.conservative import conservative
from tacit.policies.detectors.detector import Detected
from tacit.policies.entities import Grammar, Presidio, SpacyEntities
from tacit.policies.patterns import Capitals, Dictionary, Digits, Everything, Gold, RareWords, Regex
from tacit.policies.pii.policy import Pii
from tacit.policies.policy import Forgetful, Policy, Widened

POLICIES: dict[str, Policy] = {
    "digits": Digits(),
    "any-capital": Capitals(),
    "regex": Regex(r"[a-c]+", "ABC"),
    "gold": Gold(),
    "everything": Everything(),
    "dictionary": Dictionary.of(["ann", "ann lee", "İstanbul", "😀"], "NAME"),
    "dictionary, exact": Dictionary.of(["Ann", "lee b"], "NAME", "exact", ignore_case=False),
    "rare-words": RareWords(frozenset({"my", "name", "is"}), "tiny"),
    "pii": Pii(),
    "pii, some kinds": Pii(("NAME", "PHONE")),
    "conservative_policy": conservative(None),
    "either": Capitals() | Digits(),
    "both": Everything() & Digits(),
    "without": Everything() - Digits(),
    "widened to sentence": Widened(Capitals(), "sentence"),
    "widened to turn": Widened(Digits(), "turn"),
    "widened to record": Widened(Digits(), "record"),
    "forgetful": Forgetful(Digits(), 0.5, 7),
}


def a_detector(folder: Path) -> Policy:
    (folder / "prompts.txt").write_text("My order number is {5 digits}\n")
    simulate("customersim", dialogs=20, seed=5, out=folder / "public.jsonl")
    words: dict[str, Any] = {"most": 40, "sentences": 200, "harmless": False}
    detector_train(folder / "made", folder / "public.jsonl", templates=folder / "prompts.txt", **words)
    return Detected.from_folder(folder / "made", "turn")


def an_alpha_context(folder: Path) -> Policy:
    return WithAlphaContext.of(Digits(), save_tiny_run(folder / "run"), 1e-3, "disjoint")


READERS: dict[str, Callable[[Path], Policy]] = {"detector": a_detector, "alpha-context": an_alpha_context}
"""Policies that read with a model or a pipeline, where one is installed: how to make each, in an empty folder."""
if PIPELINE:
    READERS |= {"spacy": lambda _: SpacyEntities(PIPELINE or ""), "grammar": lambda _: Grammar(PIPELINE or "")}
if PIPELINE and has_presidio():
    READERS |= {"presidio": lambda _: Presidio(PIPELINE or "")}

SAMPLE = (
    "SYS: Hello, may I have your name?\nUSR: Sure, Ann Lee. 😀\nSYS: Thanks, Ann. And your order number and phone?\n"
    "USR: It's 843-58572-7002, and 980.322.8737. I live at 322 Khan Mews Allisonville, ME 20072.\n"
    "שלום, my name is דוד. مرحبا ٣٤٥ İstanbul, Straße 5; mail to a@b.example, born 5 May 1980, ID 341752.\n"
)
PIECES = st.sampled_from([*SAMPLE.split(), "\n", " ", ". ", "my name is", "Ann Lee", "\u202e", "\x00", "e\u0301", "İ"])
TEXTS = st.lists(PIECES, max_size=25).map(" ".join) | st.text(max_size=80)


def record_of(text: str) -> Record:
    return Record("r", text, spans=(Span(0, len(text), "GOLD"),) if text else ())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Policy]:
    return POLICIES | {name: make(tmp_path_factory.mktemp("policy")) for name, make in READERS.items()}


@pytest.fixture(scope="module")
def policy(made: dict[str, Policy], request: pytest.FixtureRequest) -> Policy:
    return made[request.param]


every_policy = pytest.mark.parametrize("policy", [*POLICIES, *READERS], indirect=True)


@every_policy
@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_g3_spans_are_sorted_disjoint_and_inside(policy: Policy, text: str) -> None:
    spans = policy.find(record_of(text))
    assert isinstance(spans, tuple)
    assert spans_fault(spans, len(text)) is None
    assert all(span.kind for span in spans)


@every_policy
@given(text=TEXTS, other=TEXTS)
@settings(max_examples=30, deadline=None)
def test_g1_g2_the_same_record_gives_the_same_spans_whatever_was_read_before(
    policy: Policy, text: str, other: str
) -> None:
    record = record_of(text)
    first = policy.find(record)
    policy.find(record_of(other))
    assert policy.find(record) == first
    assert policy.find(replace(record, id="another", user="u", label="l")) == first


@every_policy
def test_policies_can_be_pickled_after_use(policy: Policy) -> None:
    record = record_of(SAMPLE)
    spans = policy.find(record)
    again = pickle.loads(pickle.dumps(policy))
    assert again == policy
    assert again.find(record) == spans
    assert again.hash == policy.hash
    assert hash(again) == hash(policy)


@every_policy
def test_empty_text_holds_no_secret(policy: Policy) -> None:
    assert policy.find(record_of("")) == ()


@every_policy
def test_a_long_record_is_read_to_its_end(policy: Policy) -> None:
    text = SAMPLE * (1_000_000 // len(SAMPLE))
    if policy not in POLICIES.values():  # few words in many characters: they take a minute for a million of SAMPLE's
        text = (" " * 50_000 + SAMPLE) * 20
    if isinstance(policy, WithAlphaContext):  # it reads all that stands before a secret, for each secret
        text = SAMPLE * 5
    spans = policy.find(record_of(text))
    assert spans_fault(spans, len(text)) is None
    assert spans[-1].end > len(text) - len(SAMPLE)


def test_every_policy_says_who_it_is(made: dict[str, Policy]) -> None:
    assert len({policy.id for policy in made.values()}) == len(made)
    assert len({policy.hash for policy in made.values()}) == len(made)


PRINT_ALL = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent / "support")]
from test_policy_contract import POLICIES, SAMPLE, record_of
for name, policy in POLICIES.items():
    print(name, policy.id, policy.hash, policy.find(record_of(SAMPLE)))
"""


def test_g1_processes_with_other_hash_seeds_agree() -> None:
    outputs = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
        command = [sys.executable, "-c", PRINT_ALL, str(Path(__file__).parent)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=True)
        outputs.append(run.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == len(POLICIES)
