"""What tests of training share: a small corpus, settings of every mechanism, and the parts of a run to look into."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marking import prepare
from tacit.config.load import load, load_config
from tacit.config.plan_schema import PlanRequest
from tacit.config.schema import BUILT_IN, Config
from tacit.data.batches import RowReader
from tacit.data.corpus import write_jsonl
from tacit.data.ownership import Annotator
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.viewed import Inventions
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.registry import build_mechanism
from tacit.mechanisms.settings import MeasuredCounts
from tacit.policies.patterns import Gold
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.simulation.simulate import simulate
from tacit.training.marking import Caps, annotate
from tacit.training.pools import Annotation, Pools, measured_counts

TINY: dict[str, Any] = {
    "mode": "research",
    "policy": "gold",
    "held_out": 0.2,
    "max_tokens": 64,
    "max_full_tokens": 64,
    "canaries": [],
}
PLANS: dict[str, dict[str, Any]] = {
    "plain": {"public_epochs": 1},
    "redaction": {"public_epochs": 1},
    "invented": {"public_epochs": 1},
    "dpsgd": {"noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8},
    "selective": {"noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8, "public_epochs": 1},
    "twice": {"noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8, "public_epochs": 1},
    "cadp": {"noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8, "public_epochs": 1},
    "crt": {"noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8, "public_epochs": 1},
    "user": {"noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8, "weight_cap": 2, "local_epochs": 2},
    "uedp": {"noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8, "user_cap": 2, "entity_cap": 1},
    "selective-published": {"noise_multiplier": 1.0, "steps": 2, "expected_batch_size": 4},
    "cadp-published": {"noise_multiplier": 1.0, "steps": 2, "expected_batch_size": 8, "recall": 0.98},
    "uedp-published": {"noise_multiplier": 1.0, "steps": 2, "expected_batch_size": 4, "entity_rate": 0.5},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "cadp": {"policy": "forgetful.yaml"},
    "crt": {"policy": "forgetful.yaml", "conservative_policy": "cautious.yaml"},
    "user": {"user_source": "documents"},
    "uedp": {"user_source": "documents", "entity_kinds": ["NAME"]},
    "cadp-published": {"policy": "forgetful.yaml"},
    "uedp-published": {"user_source": "documents", "entity_kinds": ["NAME"]},
}


def write_corpus(folder: Path, dialogs: int = 60) -> Path:
    """Dialogs, and beside them policies that forget: some records are then cleared."""
    write_jsonl(simulate("customersim", dialogs), folder / "corpus.jsonl")
    for name, missed in (("forgetful", 0.9), ("cautious", 0.8)):
        policy = f"policy: {{forgetful: {{policy: gold, miss_rate: {missed}, seed: 1}}}}"
        (folder / f"{name}.yaml").write_text(policy)
    return folder / "corpus.jsonl"


def experiment(corpus: Path, mechanism: str, words: dict[str, Any] | None = None, **more: Any) -> Config:  # noqa: ANN401
    """A run of `mechanism`: `words` go over its plan, `more` over the other settings."""
    quick = {"tokenizer": "bytes"} if more.get("model", "lstm") in BUILT_IN else {}
    chosen = {**TINY, **quick, **SETTINGS.get(mechanism, {}), **more}
    for word in ("policy", "conservative_policy"):
        if str(chosen.get(word)).endswith(".yaml"):
            chosen[word] = str(corpus.parent / chosen[word])
    asked = {"mechanism": mechanism, **PLANS[mechanism], **(words or {})}
    return load_config({"corpus": str(corpus), "plan": asked, **chosen})


def mechanism_of(words: Mapping[str, Any], measured: MeasuredCounts | None = None) -> Mechanism:
    """The mechanism that settings and counts ask for."""
    asked = load(PlanRequest, words)
    return build_mechanism(asked.plan, measured, asked.counts)


def quiet(_: object) -> None:
    """Watches nothing."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of before anything is trained."""

    store: PreparedCorpus
    annotation: Annotation
    pools: Pools
    mechanism: Mechanism
    reader: RowReader


def make_parts(folder: Path, records: Iterable[Record], words: dict[str, Any], longest: int = 64) -> Parts:
    """The parts of the run that `words` of a plan ask for, as an experiment makes them; the spans are the secrets."""
    tokenizer, annotator = byte_tokenizer(), Annotator()
    settings = PrepareConfig(max_tokens=longest)
    store = prepare(records, Gold(), tokenizer, folder / "store", settings, annotator=annotator)
    annotation, _ = annotate(store, annotator.marks(), Caps(words.get("user_cap"), words.get("entity_cap")))
    pools = Pools(annotation)
    mechanism = mechanism_of(words, measured_counts(annotation, pools, load(PlanRequest, words).plan))
    reader = RowReader(store, tokenizer.end, longest + 36, Inventions(tokenizer, {}))
    return Parts(store, annotation, pools, mechanism, reader)


def recorded(run: RunFolder) -> list[dict[str, Any]]:
    """The lines of the private log of steps; one that a crash tore is passed over."""
    found: list[dict[str, Any]] = []
    log = run.path(PrivateFile.STEPS)
    for line in log.read_text("utf-8", errors="replace").splitlines() if log.exists() else ():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found
