"""A finished run, as its audit sees it: the model, the claim, and the truth about members and canaries.

G1 (as trained). Canaries that bound an epsilon are in the prepared rows, each as often as planned and whole: one that
   training never read would make any claim look consistent. Those left out as duplicates are counted.
G2 (as marked). A canary counts as known, and is spelled so, if the policy marked it in the prepared rows, whatever its
   plan says: a policy finds digits that nobody listed for it, and tokens that training did not see look like no leak.
   Canaries count as records of the protected set if all that were planted are there; those that a coin left out are
   of the same template, and are taken to be like them.
G3 (apart). No two candidates of a side are from one user: a coin decided about users, so that what one user's records
   have in common would count several times, and would help the blind baseline.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np
import torch

from tacit.audits.candidates import Integers, Spelling
from tacit.audits.passages import Passage
from tacit.audits.shadows import Shadow
from tacit.config.audit_schema import FEWEST, AuditConfig
from tacit.config.load import load_config
from tacit.data.chats import ASSISTANT, ChatRows, ChatTemplate
from tacit.data.inventions import surrogate
from tacit.data.marked import QUESTION
from tacit.data.ownership import RecordMarks
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer
from tacit.data.views import encode_all
from tacit.errors import AttackError, RunError
from tacit.models.language_model import Learner
from tacit.models.loading import load_unchecked
from tacit.privacy.guarantee import Guarantee
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import AFTER_TRAINING, Planted, check_stores, check_verified, planted_canaries

PLANTED = "canary-"


@dataclass(frozen=True, slots=True)
class Hidden:
    """A secret to extract: the tokens before it (at least one), and itself."""

    id: str
    prompt: Sequence[int]
    tokens: Sequence[int]
    text: str

    def __post_init__(self) -> None:
        if not self.prompt or not self.tokens or not self.text:
            raise AttackError(
                expected=f"a prompt and a secret in {self.id}",
                found=f"{len(self.prompt)} and {len(self.tokens)} tokens",
                way_out="begin the prompt with the end token, and leave empty secrets out",
            )


@dataclass(frozen=True, slots=True, eq=False)
class CandidateRows:
    """The rows of one side of a corpus; each is read up to `longest` tokens, framed as in training."""

    store: PreparedCorpus
    tokenizer: Tokenizer
    longest: int

    def chosen(self, count: int, rng: random.Random, *, with_secrets: bool = False) -> list[int]:
        """At most `count` random rows that were not planted, one of each user (or of each record)."""
        rows = np.flatnonzero(self.store.pieces == 0).tolist()
        spans, users = self.store.span_counts(), self.store.users
        rng.shuffle(rows)
        found: list[int] = []
        seen: set[int] = set()
        for row in rows:
            if len(found) == count:
                break
            user = int(users[row])
            wanted = user not in seen and (spans[row] or not with_secrets)
            if wanted and not self.is_planted(row):
                found.append(row)
                seen |= {user} - {0}
        return found

    def is_marked(self, row: int, value: str) -> bool:
        """Whether a secret of the row is this value, no more and no less."""
        return self.tokenizer.encode(value) in self.secrets(row)

    def passage(self, name: str, row: int) -> Passage:
        """The row as a candidate for membership."""
        return Passage(name, self._framed(self.store.full(row).tokens.tolist()))

    def surrogates(self, name: str, row: int, count: int, rng: random.Random) -> list[Passage]:
        """The row `count` times with stand-ins for its secrets; without secrets there are none."""
        secrets = [self.tokenizer.decode(tokens) for tokens in self.secrets(row)]
        kinds, made = self.store.kinds(row), []
        for number in range(count if secrets else 0):
            texts = [surrogate(kind, text, rng) for kind, text in zip(kinds, secrets, strict=True)]
            made.append(Passage(f"{name}/{number}", self._framed(self._filled(row, texts))))
        return made

    def hidden(self, name: str, row: int, longest_prompt: int) -> list[Hidden]:
        """The secrets of the row inside `longest`, each with the text before it."""
        every = (self.hidden_at(f"{name}/{number}", row, number) for number in range(len(self.store.kinds(row))))
        return [replace(one, prompt=one.prompt[-longest_prompt:]) for one in every if one is not None]

    def hidden_at(self, name: str, row: int, number: int) -> Hidden | None:
        """One secret of the row, with all text before it; None if it is blank, is cut off, or nothing precedes it."""
        tokens, _, starts, ends = self.store.full(row)
        start, end = int(starts[number]), int(ends[number])
        secret, prompt = tokens[start:end].tolist(), [*self._begin, *tokens[:start].tolist()]
        text = self.tokenizer.decode(secret)
        whole = end <= self.longest and bool(text.strip()) and bool(prompt)
        return Hidden(name, prompt, secret, text) if whole else None

    def is_planted(self, row: int) -> bool:
        """Whether the row is a canary's."""
        return self.store.record_id(row).startswith(PLANTED)

    def planted_opening(self) -> list[int]:
        """The tokens before the text of a planted canary: of a chat, all that comes before its answer."""
        if not self.store.header.facts.chats:
            return self._begin
        chats = ChatRows(self.tokenizer, ChatTemplate.of_store(self.store))
        role, question = QUESTION
        return [*self._begin, *chats.tokens_before((role, ASSISTANT), [question])]

    def text(self, passage: Passage) -> str:
        """The text of a row, without the tokens that it is put between."""
        framed = self.store.framed
        return self.tokenizer.decode(passage.tokens[1:-1] if framed else passage.tokens)

    @property
    def _begin(self) -> list[int]:
        return [self.tokenizer.begin] if self.store.framed else []

    def secrets(self, row: int) -> list[list[int]]:
        """The tokens of each secret of the row."""
        tokens, _, starts, ends = self.store.full(row)
        return [tokens[start:end].tolist() for start, end in zip(starts, ends, strict=True)]

    def _filled(self, row: int, secrets: Sequence[str]) -> list[int]:
        """The tokens of the row with these secrets."""
        redacted, filled, end = self.store.redacted(row).tolist(), [], 0
        for position, tokens in zip(self.store.positions(row), encode_all(secrets, self.tokenizer), strict=True):
            filled += [*redacted[end : int(position)], *tokens]
            end = int(position) + 1
        return [*filled, *redacted[end:]]

    def _framed(self, tokens: list[int]) -> list[int]:
        return [*self._begin, *tokens[: self.longest], *([self.tokenizer.end] if self.store.framed else [])]


@dataclass(frozen=True, slots=True, eq=False)
class SampledTexts:
    """Prompts, and for each of them a row of tokens that the model continued it with."""

    prompts: tuple[tuple[int, ...], ...]
    said: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A finished run. longest: where training ended the full view of a row.

    trained: what training read. members: every record of the corpus, those that de-duplication left out included, as
    nobody leaves them out of the held-out side: the sides of a membership attack differ by a coin alone. flagged: ids
    of planted records in the protected set. reference: a model that did not see its records. shadows: models trained on
    other halves of the corpus. texts: what the model said when it was sampled, kept for the next attack.
    """

    learner: Learner
    tokenizer: Tokenizer
    guarantee: Guarantee
    planted: tuple[Planted, ...]
    flagged: frozenset[str]
    trained: CandidateRows
    members: CandidateRows
    held_out: CandidateRows
    longest: int
    keeps_duplicates: bool
    reference: Learner | None = None
    shadows: tuple[Shadow, ...] = ()
    texts: "dict[AuditConfig, tuple[SampledTexts, ...]]" = field(default_factory=dict)
    _candidates: "dict[AuditConfig, Candidates | None]" = field(default_factory=dict)

    @classmethod
    def of(cls, run: RunFolder, reference: Learner | None = None, shadows: tuple[Shadow, ...] = ()) -> "Target":
        """Of a run that `check_attackable` let pass."""
        learner, tokenizer = load_unchecked(run)
        learner.module.eval()
        check_finite(learner)
        longest = load_config(run.read_json(dict, PrivateFile.SETTINGS)).data.max_full_tokens
        trained, held_out = (
            CandidateRows(PreparedCorpus(run.path(place)), tokenizer, longest)
            for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT)
        )
        whole = run.path(PrivateFile.MEMBERS)
        members = CandidateRows(PreparedCorpus(whole), tokenizer, longest) if whole.exists() else trained
        guarantee = run.read_json(Guarantee, ReleaseFile.GUARANTEE)
        keeps = not whole.exists()
        planted = tuple(_as_marked(one, trained) for one in planted_canaries(run).planted)
        sides = trained, members, held_out
        flagged = _flagged(trained, RecordMarks.load(run.path(PrivateFile.MARKS)))
        target = cls(learner, tokenizer, guarantee, planted, flagged, *sides, longest, keeps, reference, shadows)
        target.check_planted()
        return target

    def decoded(self, tokens: Sequence[int]) -> str:
        """The text of what the model generated, as far as the tokenizer knows it: some models have more outputs."""
        known = takewhile(lambda token: token < self.tokenizer.vocabulary_size, tokens)
        return self.tokenizer.decode(known)

    def candidates(self, config: AuditConfig) -> "Candidates | None":
        """Rows of both sides, the same for every attack; None where a side has too few."""
        if config not in self._candidates:
            self._candidates[config] = Candidates.of(self, config)
        return self._candidates[config]

    def left_out(self, planted: Planted) -> int:
        """Planted records that training did not read, as de-duplication left them out."""
        rows = self._planted_rows()
        return sum(rows[one] == 0 for one in _planned(planted))

    def is_protected(self, planted: Planted) -> bool:
        """Whether all planted records of these canaries are in the protected set."""
        return _planned(planted).keys() <= self.flagged

    def _planted_rows(self) -> Counter[str]:
        store = self.trained.store
        ids = (store.record_id(row) for row in range(len(store)))
        return Counter(one for one in ids if one.startswith(PLANTED))

    def check_planted(self) -> None:
        rows = self._planted_rows()
        for planted in self.planted:
            cut = sum(rows[one] > 1 for one in _planned(planted))
            before = len(self.trained.planted_opening()) - self.trained.store.framed
            longest = before + max(len(self.tokenizer.encode(canary.text)) for canary in planted.canaries)
            if cut or longest > self.longest:
                raise AttackError(
                    expected=f"canaries that training read whole, of at most {self.longest} tokens and in one piece",
                    found=f"{planted.plan.template!r}, of up to {longest} tokens" + (", cut in pieces" if cut else ""),
                    way_out="use a shorter template, or a larger max_full_tokens and max_tokens",
                )

    def spelling(self, planted: Planted) -> Spelling:
        return Spelling.as_trained(self.tokenizer, planted.plan.known, self.trained.planted_opening())


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows of both sides, as many of each, under names that do not reveal the side."""

    passages: tuple[Passage, ...]
    neighbors: dict[str, list[Passage]]
    texts: dict[str, str]
    inside: dict[str, bool]
    records: dict[str, str]

    @classmethod
    def of(cls, target: Target, settings: AuditConfig) -> "Candidates | None":
        """None where a side has too few rows for a figure to mean anything."""
        rng = random.Random(settings.seed)
        sides = (target.members, target.held_out)
        chosen = [side.chosen(settings.candidates, rng) for side in sides]
        size = min(map(len, chosen))
        if size < FEWEST:
            return None
        places = [
            (side, row, side is sides[0]) for side, rows in zip(sides, chosen, strict=True) for row in rows[:size]
        ]
        rng.shuffle(places)
        passages, neighbors, inside, records = [], {}, {}, {}
        for number, (side, row, trained) in enumerate(places):
            name = f"candidate-{number}"
            passages.append(side.passage(name, row))
            neighbors[name] = side.surrogates(name, row, settings.surrogates, rng)
            inside[name], records[name] = trained, side.store.record_id(row)
        texts = {one.id: target.members.text(one) for one in passages}
        return cls(tuple(passages), neighbors, texts, inside, records)


def check_finite(learner: Learner) -> None:
    if not all(bool(torch.isfinite(value).all()) for value in learner.module.parameters()):
        raise AttackError(
            expected="a model whose weights are finite numbers",
            found="a model with NaN or infinite weights",
            way_out="its training diverged: train it again with a smaller learning rate",
        )


def check_attackable(run: RunFolder) -> None:
    """Refuse a run that is not finished, that does not verify, or without the private part that knows the members."""
    missing = [name for name in (ReleaseFile.ARCHITECTURE, ReleaseFile.GUARANTEE) if not run.path(name).exists()]
    if not any(run.path(name).exists() for name in (ReleaseFile.MODEL, ReleaseFile.ADAPTERS)):
        missing.append(ReleaseFile.MODEL)
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
                found="a run without it, such as one that was released",
                way_out="audit where it was trained: only its private part knows members and canaries",
            )
    check_verified(run, AFTER_TRAINING)
    check_stores(run)


def _flagged(trained: CandidateRows, marks: RecordMarks) -> frozenset[str]:
    store = trained.store
    rows = np.flatnonzero(marks.flagged[store.records.astype(np.int64)]).tolist()
    return frozenset(store.record_id(row) for row in rows if trained.is_planted(row))


def _as_marked(planted: Planted, trained: CandidateRows) -> Planted:
    """With `known` as training had it."""
    values, store = _planned(planted), trained.store
    rows = ((row, values.get(store.record_id(row))) for row in range(len(store)))
    marked = {trained.is_marked(row, value) for row, value in rows if value is not None}
    bare = planted.plan.slot.before == planted.plan.slot.after == ""
    if len(marked) == 2 and bare:  # spelled alike either way, and what is true of those that are not marked holds
        marked = {False}
    if len(marked) == 2:
        raise AttackError(
            expected=f"a policy that marks all canaries of {planted.plan.template!r}, or none",
            found="one that marks some",
            way_out="plant canaries that it never finds, or known: true",
        )
    return replace(planted, plan=replace(planted.plan, known=marked.pop())) if marked else planted


def _planned(planted: Planted) -> dict[str, str]:
    """The values of the records that were planted, by record id."""
    inside = (canary for canary in planted.canaries if canary.inside)
    return {f"{canary.id}/{copy}": canary.value for canary in inside for copy in range(canary.repetitions)}
