"""From a stream of records to a prepared store: spans, views, pieces, duplicates, columns.

G1 (invariant). Corpora that differ only inside their spans, in content or in length, give byte-identical public files,
   also after cutting and de-duplication: which rows there are is a function of the public part.
G2 (local). Masking the secrets of one record changes the full view of that record's rows and nothing else.
G3 (bounded). Memory does not grow with the number of records.
G4 (exact). A record is a duplicate exactly when one with the same key went before: the same public segments,
   label and routing, and the same kinds where they are read, whatever the secrets are (up to a collision of 128 bits of
   SHA-256).
G5 (public). Which records survive is a function of the public part of the corpus and its order.
G6 (one for one). Equal records are the same to training, which then reads nothing but what is in the key: when one is
   taken away, at most an equal one takes its place.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Protocol, TextIO

from tacit.common.files import new_folder
from tacit.common.workers import in_batches
from tacit.config.setting import Duplicates, TrainOn
from tacit.data.chats import ChatRows, ChatTemplate
from tacit.data.marked import MarkedRecord
from tacit.data.records import Record, Seen
from tacit.data.store import PRIVATE, Facts, PreparedCorpus, StoreCounts, StoreWriter
from tacit.data.tokenizer import Tokenizer
from tacit.data.views import PublicChat, PublicText, PublicTokens, cut, encode_all, join, surely_too_long
from tacit.errors import CorpusError, PolicyError, PrepareError, TacitError

_BATCH_RECORDS = 512
_BATCH_CHARACTERS = 1 << 19
_FEWEST_TOKENS = 8  # more than the four bytes of the longest character


@dataclass(frozen=True, slots=True)
class DuplicateKey:
    """What training reads of a record without its secrets. The user is not part of it: claims about users keep
    duplicates.
    """

    text: PublicText | PublicChat
    label: str | None = None  # None where no label is learned
    flagged: bool = True
    kinds: tuple[str, ...] | None = None  # None where nothing is invented by them

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        label = None if self.label is None else self.label.encode("utf-8", "surrogatepass")
        known = () if self.kinds is None else (tuple(map(ascii, self.kinds)),)
        rest = repr((label, self.flagged, *known)).encode()
        return hashlib.sha256(self.text.digest + rest).digest()


@dataclass(frozen=True, slots=True)
class PrepareConfig:
    """`max_tokens`: the longest redacted piece. `duplicates`: which records are left out because an equal one,
    redacted, came before: none (keep), all that are equal (exact), or those of them that are doubtful.

    `labelled`: labels are learned, and records without one are set aside. `template`: that of chats, if there is one.
    `train_on`: which messages of a chat are learned; with `assistant`, a record that is no chat is set aside.
    `by_kind`: secrets are invented by their kinds, so that records which differ in a kind are not equal.

    A record that is left out takes its secrets with it: of many records that differ in their secrets only, `exact`
    leaves one.
    """

    max_tokens: int = 512
    duplicates: Duplicates = "keep"
    labelled: bool = False
    template: ChatTemplate | None = None
    train_on: TrainOn = "all"
    by_kind: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < _FEWEST_TOKENS:
            raise PrepareError(f"max_tokens of at least {_FEWEST_TOKENS}", f"{self.max_tokens}", "set it higher")


class PolicyName(Protocol):
    """What is noted of the policy that marked the records."""

    @property
    def id(self) -> str: ...

    @property
    def hash(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Divided:
    """A record that is to be encoded, and its place in the stream."""

    number: int
    marked: MarkedRecord
    public: PublicText | PublicChat
    secrets: tuple[str, ...]


def prepare(
    records: Iterable[MarkedRecord],
    policy: PolicyName,
    tokenizer: Tokenizer,
    out: Path,
    settings: PrepareConfig = PrepareConfig(),  # noqa: B008  (frozen)
) -> PreparedCorpus:
    """Prepare `records`, which `policy` marked, into the new folder `out` and open it.

    Records without sensible spans go to quarantine.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(new_folder(out))
        writer = StoreWriter(folder, tokenizer.vocabulary_size)
        stack.callback(writer.abandon)
        quarantine = stack.enter_context((folder / PRIVATE / "quarantine.jsonl").open("w", encoding="utf-8"))
        seen = None if settings.duplicates == "keep" else stack.enter_context(closing(Seen()))
        job = _Job(tokenizer, settings, writer, quarantine, seen)
        for batch in in_batches(records, lambda one: len(one.record.text), _BATCH_RECORDS, _BATCH_CHARACTERS):
            job.add(batch)
        writer.finish(_facts(policy, tokenizer, settings, job.chats), job.counts())
    return PreparedCorpus(out)


class _Job:
    """One preparation while it runs."""

    def __init__(
        self, tokenizer: Tokenizer, settings: PrepareConfig, writer: StoreWriter, quarantine: TextIO, seen: Seen | None
    ) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._writer = writer
        self._quarantine = quarantine
        self._seen = seen
        self._counts = dict.fromkeys(("records", "empty", "quarantined", "duplicates"), 0)
        self._chats = ChatRows(tokenizer, settings.template, settings.train_on)
        self.chats: bool | None = None
        """Whether the records are chats; None before the first one."""

    def add(self, batch: Sequence[MarkedRecord]) -> None:
        divided = list(self._divided(batch))
        texts = [text for item in divided for text in (*self._whole(item.public), *item.secrets)]
        encoded = iter(encode_all(texts, self._tokenizer))
        for item in divided:
            segments = list(islice(encoded, len(self._whole(item.public))))
            secrets = list(islice(encoded, len(item.secrets)))
            try:
                pieces = self._pieces(item.public, segments)
            except PrepareError as error:
                self._set_aside(item.marked.record, error)
            else:
                self._store(item, pieces, secrets)

    def counts(self) -> StoreCounts:
        return StoreCounts(**self._counts, rows=self._writer.rows, spans=self._writer.spans)

    def _divided(self, batch: Sequence[MarkedRecord]) -> Iterator[_Divided]:
        for marked in batch:
            number = self._counts["records"]
            self._counts["records"] += 1
            if not marked.record.text:
                self._counts["empty"] += 1
                continue
            try:
                if self._settings.labelled and marked.record.label is None:
                    raise PrepareError("a label in every record", "no label", "put the class into the field `label`")
                public, secrets = self._fitted(marked)
            except (PolicyError, PrepareError) as error:
                self._set_aside(marked.record, error)
            else:
                yield _Divided(number, marked, public, secrets)

    def _fitted(self, marked: MarkedRecord) -> tuple[PublicText | PublicChat, tuple[str, ...]]:
        public, secrets = marked.divided()
        is_chat = isinstance(public, PublicChat)
        if self.chats not in (None, is_chat):
            raise mixed()
        self.chats = is_chat
        if isinstance(public, PublicChat):
            return self._chats.fitted(public), secrets
        if self._settings.train_on != "all":
            raise PrepareError("chats, of which the assistant's messages are learned", "no chat", "train_on: all")
        return public, secrets

    def _set_aside(self, record: Record, error: TacitError) -> None:
        """Count and note a record that cannot be prepared: none is lost silently."""
        self._counts["quarantined"] += 1
        self._quarantine.write(json.dumps({"id": record.id, "reason": error.found}) + "\n")

    def _whole(self, public: PublicText | PublicChat) -> tuple[str, ...]:
        """The segments to encode uncut: none where a cut is certain."""
        return () if surely_too_long(public, self._settings.max_tokens) else public.segments

    def _pieces(self, public: PublicText | PublicChat, segments: Sequence[list[int]]) -> list[PublicTokens]:
        if isinstance(public, PublicChat):
            return self._chats.rows(public, segments, self._settings.max_tokens)
        if segments:
            tokens = join(public, segments, self._tokenizer)
            if len(tokens.tokens) <= self._settings.max_tokens:
                return [tokens]
        return [chunk.tokens for chunk in cut(public, self._tokenizer, self._settings.max_tokens)]

    def _is_duplicate(self, item: _Divided) -> bool:
        if self._seen is None or (self._settings.duplicates == "doubtful" and not item.marked.doubtful):
            return False
        label = item.marked.record.label if self._settings.labelled else None
        kinds = item.public.kinds if self._settings.by_kind else None
        return not self._seen.add(DuplicateKey(item.public, label, item.marked.marks.flagged, kinds).digest)

    def _store(self, item: _Divided, pieces: Sequence[PublicTokens], secrets: Sequence[list[int]]) -> None:
        # Whole records: a piece that two records share would go to whichever came first, so that a protected record
        # decided what is trained of another one, be it a cleared one.
        if self._is_duplicate(item):
            self._counts["duplicates"] += 1
            return
        record, done = item.marked.record, 0
        for number, piece in enumerate(pieces):
            inside = secrets[done : done + len(piece.kinds)]
            done += len(inside)
            self._writer.add(item.number, number, record, piece, inside)


def mixed() -> CorpusError:
    """The error for a corpus of chats and other texts: which of them it has is public, and the same for all records."""
    return CorpusError(
        expected="a corpus of chats, or one of texts",
        found="records with messages beside records without",
        way_out="train on one kind at a time, or give every record `messages`",
    )


def _facts(policy: PolicyName, tokenizer: Tokenizer, settings: PrepareConfig, chats: bool | None) -> Facts:
    template = settings.template if chats else None
    return Facts(
        tokenizer_hash=tokenizer.hash,
        tokenizer_depends_on=asdict(tokenizer.depends_on),
        vocabulary_size=tokenizer.vocabulary_size,
        lossless=tokenizer.lossless,
        policy_id=policy.id,
        policy_hash=policy.hash,
        max_tokens=settings.max_tokens,
        duplicates=settings.duplicates,
        chats=bool(chats),
        chat_template=None if template is None else {"source": template.source, **dict(template.tokens)},
        train_on=settings.train_on,
        versions={name: version(name) for name in ("tacit", "tokenizers")},
    )
