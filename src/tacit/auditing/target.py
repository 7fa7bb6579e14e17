"""A finished run, as its audit sees it: the model, the claim, and the truth about members and canaries.

G1 (as trained). Canaries that bound an epsilon are in the prepared rows, each as often as planned and whole: one that
   training never read would make any claim look consistent. Those left out as duplicates are counted.
G2 (as marked). A canary counts as known, and is spelled so, if the policy marked it in the prepared rows, whatever its
   plan says: a policy finds digits that nobody told it of, and other tokens than those trained look like no leak.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import torch

from tacit.attacks.candidates import Spelling
from tacit.attacks.exposure import measure_exposure
from tacit.attacks.membership import Passage
from tacit.attacks.rows import PLANTED, CandidateRows
from tacit.attacks.scoring import Progress as Told
from tacit.audit.exposures import ExposureResult
from tacit.auditing.settings import FEWEST, AuditSettings
from tacit.codec import from_words
from tacit.errors import AttackError, RunError
from tacit.guarantee import Guarantee
from tacit.loading import load_unchecked
from tacit.models import Learner
from tacit.planting import Planted, planted_canaries
from tacit.prepare import Prepared
from tacit.prepare.canaries import CanaryRecord
from tacit.run import PrivateFile, ReleaseFile, Run
from tacit.settings import Experiment
from tacit.stores import check_stores
from tacit.tokenizer import Tokenizer
from tacit.verifying import AFTER_TRAINING, check_verified


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A finished run. longest: where training ended the full view of a row.

    trained: what training read. members: every record of the corpus, those that de-duplication left out among them, as
    nobody leaves them out of the held-out side: the sides of a membership attack differ by a coin alone.
    """

    learner: Learner
    tokenizer: Tokenizer
    guarantee: Guarantee
    planted: tuple[Planted, ...]
    trained: CandidateRows
    members: CandidateRows
    held_out: CandidateRows
    longest: int
    keeps_duplicates: bool

    @classmethod
    def of(cls, run: Run) -> "Target":
        """Of a run that `check_attackable` let pass."""
        learner, tokenizer = load_unchecked(run)
        learner.module.eval()
        check_finite(learner)
        experiment = from_words(Experiment, run.read_json(dict, PrivateFile.SETTINGS))
        longest = experiment.longest_full
        trained, held_out = (
            CandidateRows(Prepared(run.path(place)), tokenizer, longest)
            for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT)
        )
        whole = run.path(PrivateFile.MEMBERS)
        members = CandidateRows(Prepared(whole), tokenizer, longest) if whole.exists() else trained
        guarantee = run.read_json(Guarantee, ReleaseFile.GUARANTEE)
        keeps = experiment.which_duplicates == "keep"
        planted = tuple(_as_marked(one, trained) for one in planted_canaries(run).planted)
        target = cls(learner, tokenizer, guarantee, planted, trained, members, held_out, longest, keeps)
        target.check_planted()
        return target

    def left_out(self, planted: Planted) -> int:
        """Planted records that training did not read: de-duplication left them out."""
        rows = self._planted_rows()
        return sum(rows[one] == 0 for one in _planned(planted))

    def _planted_rows(self) -> Counter[str]:
        store = self.trained.store
        ids = (store.record_id(row) for row in range(len(store)))
        return Counter(one for one in ids if one.startswith(PLANTED))

    def check_planted(self) -> None:
        """Refuse canaries that training cut."""
        rows = self._planted_rows()
        for planted in self.planted:
            cut = sum(rows[one] > 1 for one in _planned(planted))
            longest = max(len(self.tokenizer.encode(canary.text)) for canary in planted.canaries)
            if cut or longest > self.longest:
                raise AttackError(
                    expected=f"canaries that training read whole, of at most {self.longest} tokens and in one piece",
                    found=f"{planted.plan.template!r}, of up to {longest} tokens" + (", cut in pieces" if cut else ""),
                    way_out="use a shorter template, or a larger longest_full and max_tokens",
                )

    def spelling(self, planted: Planted) -> Spelling:
        """How training spelled these canaries."""
        return Spelling.as_trained(self.tokenizer, planted.plan.known)

    def exposure(self, planted: Planted, settings: AuditSettings, told: Told | None = None) -> ExposureResult:
        """Of these canaries in the model as it stands."""
        return measure_exposure(
            self.learner,
            planted.plan.slot,
            planted.canaries,
            self.spelling(planted),
            settings.exposure,
            np.random.default_rng(settings.seed),
            told,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows of both sides, as many of each, under names that do not tell the side to any score."""

    passages: tuple[Passage, ...]
    neighbours: dict[str, list[Passage]]
    texts: dict[str, str]
    inside: dict[str, bool]

    @classmethod
    def of(cls, target: Target, settings: AuditSettings) -> "Candidates | None":
        """None where a side has too few rows for a figure to mean anything."""
        rng = random.Random(settings.seed)
        sides = (target.members, target.held_out)
        chosen = [side.chosen(settings.candidates, rng) for side in sides]
        size = min(map(len, chosen))
        if size < FEWEST:
            return None
        places = [(sides[0], row, True) for row in chosen[0][:size]] + [
            (sides[1], row, False) for row in chosen[1][:size]
        ]
        rng.shuffle(places)
        passages, neighbours, inside = [], {}, {}
        for number, (side, row, trained) in enumerate(places):
            name = f"candidate-{number}"
            passages.append(side.passage(name, row))
            neighbours[name] = side.surrogates(name, row, settings.surrogates, rng)
            inside[name] = trained
        texts = {one.id: target.tokenizer.decode(one.tokens[1:-1]) for one in passages}
        return cls(tuple(passages), neighbours, texts, inside)


def check_finite(learner: Learner) -> None:
    """Refuse a model whose training diverged before an attack stumbles over it."""
    if not all(bool(torch.isfinite(value).all()) for value in learner.module.parameters()):
        raise AttackError(
            expected="a model whose weights are finite numbers",
            found="a model with NaN or infinite weights",
            way_out="its training diverged: train it again with a smaller learning rate",
        )


def check_attackable(run: Run) -> None:
    """Refuse a run that is not finished, that does not verify, or without the private part that knows the members."""
    missing = [name for name in (ReleaseFile.MODEL, ReleaseFile.GUARANTEE) if not run.path(name).exists()]
    if missing:
        raise RunError(
            expected="a run whose training is finished",
            found=f"one without {' and '.join(missing)}",
            way_out=f"tacit train --resume {run.folder.name}",
        )
    for name in (PrivateFile.SETTINGS, PrivateFile.PREPARED, PrivateFile.HELD_OUT):
        if not run.path(name).exists():
            raise RunError(
                expected=f"the private part of the run, with private/{name}",
                found="a run without it, as one that was released",
                way_out="audit where it was trained: only its private part knows members and canaries",
            )
    check_verified(run, AFTER_TRAINING)
    check_stores(run)


def _as_marked(planted: Planted, trained: CandidateRows) -> Planted:
    """With `known` as training had it."""
    values = {one: canary.value for canary in planted.canaries for one in _copies(canary)}
    store = trained.store
    rows = ((row, values.get(store.record_id(row))) for row in range(len(store)))
    marked = {trained.is_marked(row, value) for row, value in rows if value is not None}
    if len(marked) == 2:
        raise AttackError(
            expected=f"a policy that marks all canaries of {planted.plan.template!r}, or none",
            found="one that marks some",
            way_out="plant canaries that it never finds, or known: true",
        )
    return replace(planted, plan=replace(planted.plan, known=marked.pop())) if marked else planted


def _planned(planted: Planted) -> list[str]:
    """The ids of the records that were planted."""
    return [one for canary in planted.canaries for one in _copies(canary)]


def _copies(canary: CanaryRecord) -> list[str]:
    return [f"{canary.id}/{n}" for n in range(canary.repetitions)] if canary.inside else []
