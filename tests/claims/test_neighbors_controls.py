"""Negative controls of T11: mistakes that were found in review are put back by patches, and each must be caught."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from neighbor_checks import Broken, fuzz
from neighbor_settings import OwnNetwork, published, words_of
from tacit.data.forms import Cell, Secret, vector
from tacit.data.ownership import Annotator
from tacit.data.prepare import DuplicateKey
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer
from tacit.data.viewed import Inventions
from tacit.models import loading as own
from tacit.training.covered import COVERED
from tacit.training.gradients.contributions import Outer

SEEDS = 12


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with published(tmp_path_factory.mktemp("published")) as folder:
        yield folder


def _without(field: str) -> property:
    """The key of a duplicate as it was once made."""
    digest = DuplicateKey.digest.fget  # type: ignore[attr-defined]

    def made(self: DuplicateKey) -> bytes:
        same: dict[str, Any] = {"flagged": True} if field == "flagged" else {field: None}
        found: bytes = digest(replace(self, **same))
        return found

    return property(made)


@contextmanager
def _dropping(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Private steps in training mode."""
    with torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def _one_mask() -> Iterator[None]:
    """As if nobody checked."""
    with (
        patch("tacit.training.gradients.clipped.exact", _dropping),
        patch("neighbor_worlds.check_gradients", return_value="fused"),
    ):
        yield


class Rounded(Outer):
    """The head's squared norms as products in the caller's bfloat16."""

    def squared_norms(self) -> Tensor:
        left, right = (values.bfloat16() for values in (self.left.values, self.right.values))
        grams = [torch.bmm(values, values.transpose(1, 2)) for values in (left, right)]
        return (grams[0] * grams[1]).sum(dim=(1, 2)).float().clamp_min(0.0)


class Encoder(OwnNetwork):
    """It reads what follows, and padding."""

    def forward(self, tokens: Tensor) -> Tensor:
        read = self.embedding(tokens)
        scores: Tensor = self.head(self.norm(self.inner(read + read.mean(dim=1, keepdim=True))))
        return scores


@contextmanager
def _bidirectional() -> Iterator[None]:
    """As if nobody checked."""
    with (
        patch.dict(own._OWN, {"neighbors": Encoder}),
        patch.object(own, "_check"),
        patch("neighbor_worlds.check_gradients", return_value="fused"),
    ):
        yield


def _by_kind(secrets: Iterable[Secret], contexts: Mapping[str, Sequence[str]]) -> dict[Cell, int]:
    """Each kind of a record cut to a norm of 1 by itself."""
    kinds: dict[str, list[Secret]] = {}
    for secret in secrets:
        kinds.setdefault(secret.kind, []).append(secret)
    return {cell: value for some in kinds.values() for cell, value in vector(some, contexts).items()}


@contextmanager
def _kinds_apart() -> Iterator[None]:
    with patch("tacit.data.form_counts.vector", _by_kind), patch("neighbor_checks.vector", _by_kind):
        yield


def _rows_apart(rows: Iterable[int], key: Any) -> Iterator[tuple[int, list[int]]]:  # noqa: ANN401
    """Each piece of a record cut to a norm of 1 by itself."""
    return ((row, [row]) for row in rows)


def _behind_secrets(store: PreparedCorpus, row: int, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """What is before a secret, with the text of another one in it."""
    words = tokenizer.decode(store.full(row).tokens.tolist()).split()
    return [(kind, " ".join(words)) for kind in store.kinds(row)]


@contextmanager
def _contexts_of_secrets() -> Iterator[None]:
    names = ("tacit.data.form_counts", "tacit.data.viewed", "neighbor_checks")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patch(f"{name}.public_spans", _behind_secrets))
        yield


def _drawn_for_secrets(self: Inventions, store: PreparedCorpus, row: int, places: list[str]) -> list[list[int]]:
    """As many characters as the true secret has."""
    return [[65] * int(end - start) for start, end in zip(*store.full(row)[2:], strict=True)]


INVENTED_AND_EXACT = {"mechanism": "crt", "public_view": "invented", "duplicates": "exact"}
LEARNED = {"mechanism": "selective", "public_view": "learned"}
CONTROLS: dict[str, tuple[Any, dict[str, str]]] = {
    "norms in the caller's bfloat16": (
        lambda: patch("tacit.training.gradients.clipped.Outer", Rounded),
        {"mechanism": "dpsgd", "model": "gpt", "trainable": "head"},
    ),
    "one mask of words for a micro-batch": (_one_mask, {"mechanism": "cadp", "embedding_dropout": "some"}),
    "duplicates without their labels": (
        lambda: patch.object(DuplicateKey, "digest", _without("label")),
        {"mechanism": "crt", "duplicates": "exact", "task": "classification"},
    ),
    "duplicates without their routing": (
        lambda: patch.object(DuplicateKey, "digest", _without("flagged")),
        {"mechanism": "crt", "duplicates": "exact", "conservative_policy": "given"},
    ),
    "inventions drawn from the ids of equal records": (
        lambda: patch("tacit.data.viewed.origin", PreparedCorpus.record_id),
        INVENTED_AND_EXACT,
    ),
    "inventions for duplicates of other kinds": (
        lambda: patch.object(DuplicateKey, "digest", _without("kinds")),
        INVENTED_AND_EXACT,
    ),
    "entities where the policy marks them": (
        lambda: patch.object(Annotator, "search", lambda self, records: None),
        {"mechanism": "uedp", "user_cap": "given", "rest": "plain", "entity_kinds": "some"},
    ),
    "counts of forms cut kind by kind": (_kinds_apart, LEARNED),
    "counts of forms cut piece by piece": (lambda: patch("tacit.data.form_counts.groupby", _rows_apart), LEARNED),
    "forms behind words that are secret": (_contexts_of_secrets, LEARNED),
    "learned secrets as long as true ones": (lambda: patch.object(Inventions, "_drawn", _drawn_for_secrets), LEARNED),
    "an encoder for a causal model": (
        _bidirectional,
        {"mechanism": "dpsgd", "model": "own", "dropout": "of the model"},
    ),
}


@pytest.mark.parametrize("mistake", CONTROLS)
def test_a_mistake_that_we_made_is_caught(mistake: str, place: Path, tmp_path: Path) -> None:
    """In the first corpora already; and where it is, the same neighbors are equal enough without the mistake."""
    control, choice = CONTROLS[mistake]
    whole = {**{name: values[0] for name, values in COVERED.items()}, **choice}
    for seed in range(SEEDS):
        words = words_of(whole, place, Random(seed))
        try:
            with control():
                fuzz(tmp_path / f"{seed} with", words, seed)
        except Broken:
            fuzz(tmp_path / f"{seed} without", words, seed)
            return
    pytest.fail("nothing was caught")
