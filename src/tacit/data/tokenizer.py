"""Text to token ids and back, and what each tokenizer may have learned from which text.

G1 (hostile text). `encode` never gives an id of `specials`: text that spells `<MASK>`, `<END>` or a special token of
   the vocabulary, such as `<|endoftext|>`, is ordinary text. Special ids enter a sequence only when a program puts them
   there. (A placeholder that is the unknown token or a run of underscores is none of them: text may contain it, too.)
G2 (local). The ids of a text depend on that text alone: no padding, truncation, dropout or neighbor in the batch.
G3 (lossless). When `lossless`, the ids of texts encoded apart and put in a row decode to the texts in a row. A lone
   surrogate, which no valid text holds, becomes U+FFFD.
G4 (one definition). A tokenizer saved and loaded again has the same hash; equal hashes encode and decode alike.
G5 (public training). A BPE is a function of the segments it is trained on, in whatever order they come.
"""

import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, Protocol, final

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from tacit.common.files import read_bytes, why
from tacit.common.libraries import foreign
from tacit.common.serialize import parse_json
from tacit.data.records import without_surrogates
from tacit.errors import PrepareError

FORMAT = "tacit-tokenizer"
FORMAT_VERSION = 2
_MOST_TOKENS = 1 << 24


class VocabularySource(StrEnum):
    """What a vocabulary was learned from."""

    NOTHING = "nothing"
    PUBLIC_CORPUS = "public corpus"
    REDACTED_VIEW = "redacted view"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Dependence:
    """What text a vocabulary depends on. A vocabulary is part of what is released, so it can break a claim."""

    source: VocabularySource
    corpus: str | None = None
    policy_hash: str | None = None

    def __post_init__(self) -> None:
        learned = self.source in (VocabularySource.PUBLIC_CORPUS, VocabularySource.REDACTED_VIEW)
        redacted = self.source is VocabularySource.REDACTED_VIEW
        if learned != bool(self.corpus) or redacted != bool(self.policy_hash):
            raise PrepareError(
                expected="a corpus for a public corpus, a corpus and a policy hash for a redacted view, neither else",
                found=f"source {self.source.value!r}, corpus {self.corpus!r}, policy hash {self.policy_hash!r}",
                way_out="say what the vocabulary was learned from",
            )

    @property
    def free_for_records(self) -> bool:
        """Whether the vocabulary says nothing about which records or users a private corpus holds."""
        return self.source in (VocabularySource.NOTHING, VocabularySource.PUBLIC_CORPUS)

    def free_for_secrets(self, policy_hash: str) -> bool:
        """Whether the vocabulary says nothing about the secrets that the policy with this hash marks."""
        redacted = self.source is VocabularySource.REDACTED_VIEW
        return self.free_for_records or (redacted and self.policy_hash == policy_hash)


NOTHING = Dependence(VocabularySource.NOTHING)
UNKNOWN = Dependence(VocabularySource.UNKNOWN)


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """What a program puts into rows: what each begins with, what it ends with, and what replaces a secret."""

    begin: int
    end: int
    placeholder: int


class Codec(Protocol):
    """Ordinary text to ids below `size` and back.

    specials: ids of special tokens that the vocabulary has itself. Text that spells one may still be given its id:
    `Tokenizer` prevents that.
    """

    @property
    def size(self) -> int: ...

    @property
    def specials(self) -> frozenset[int]: ...

    @property
    def lossless(self) -> bool: ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def definition(self) -> dict[str, Any]: ...


@final
class Bytes:
    """The bytes of UTF-8: depends on no corpus."""

    size = 256
    lossless = True
    specials: frozenset[int] = frozenset()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(text.encode()) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    def definition(self) -> dict[str, Any]:
        return {"codec": "bytes"}


@final
class HuggingFace:
    """Any `tokenizer.json`, without what would break G1 and G2: templates, padding, truncation and dropout."""

    def __init__(self, content: dict[str, Any]) -> None:
        with foreign(
            lambda found: PrepareError(
                expected="the content of a tokenizer.json",
                found=f"something the tokenizers library cannot build ({found})",
                way_out="save the tokenizer anew with the tokenizers library",
            )
        ):
            _check_ids(content["model"].get("vocab"))
            model = {**content["model"], "dropout": None} if "dropout" in content["model"] else content["model"]
            bare = {**content, "model": model, "truncation": None, "padding": None, "post_processor": None}
            self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(bare))
        self._tokenizer.encode_special_tokens = True  # that is: read special tokens in text as ordinary text
        self._content: dict[str, Any] = json.loads(self._tokenizer.to_str())
        self.size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        unknown = self._content["model"].get("unk_token")  # text may have it, where it is used
        added = self._content["added_tokens"]
        self.specials = frozenset(one["id"] for one in added if one["special"] and one["content"] != unknown)
        self.lossless = _byte_level(self._content)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=False)

    def definition(self) -> dict[str, Any]:
        return {"codec": "tokenizer.json", "content": self._content}


@final
class Tokenizer:
    """A codec, the special ids of rows, and what the vocabulary depends on.

    begin, end: what a row begins and ends with. placeholder: what replaces a secret. By default the codec gets two ids
    behind its own: `<END>`, with which rows also begin, and `<MASK>`.
    """

    def __init__(self, codec: Codec, depends_on: Dependence, special: SpecialIds | None = None) -> None:
        added = SpecialIds(codec.size, codec.size, codec.size + 1)
        self.codec = codec
        self.depends_on = depends_on
        self.lossless = codec.lossless
        self.special = special or added
        self.begin, self.end, self.placeholder = self.special.begin, self.special.end, self.special.placeholder
        self._names = {added.end: "<END>", added.placeholder: "<MASK>"} if self.special == added else {}
        self.vocabulary_size = codec.size + len(self._names)
        self.specials = codec.specials | {self.begin, self.end} | self._names.keys()
        if not {self.begin, self.end, self.placeholder} <= set(range(self.vocabulary_size)):
            raise ValueError("special ids outside the vocabulary")

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores where the codec can."""
        clean = [without_surrogates(text) for text in texts]
        encoded = self.codec.encode_batch(clean)
        for place, ids in enumerate(encoded):
            if not self.specials.isdisjoint(ids):
                encoded[place] = self._without_specials(clean[place])
        return encoded

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of the ids; special ids become `<END>`, `<MASK>` and the like, for people to read."""
        parts: list[str] = []
        for ordinary, run in groupby(map(int, tokens), lambda token: 0 <= token < self.codec.size):
            part = list(run)
            parts += [self.codec.decode(part)] if ordinary else map(self._name, part)
        return "".join(parts)

    def spoken(self, tokens: Iterable[int]) -> str:
        """The text of the ids up to the end of the row, without special ones."""
        until_end = takewhile(lambda token: token != self.end, tokens)
        known = (token for token in until_end if token < self.codec.size)
        return self.codec.decode([token for token in known if token not in self.specials])

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all that decides what `encode`, `decode` and the special ids give."""
        content = {**self.codec.definition(), "special": asdict(self.special)}
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def made_under(self, policy_hash: str) -> "Tokenizer":
        """The same one; where it was learned from a redacted view, with this as the hash of the policy."""
        if self.depends_on.source is not VocabularySource.REDACTED_VIEW:
            return self
        return Tokenizer(self.codec, replace(self.depends_on, policy_hash=policy_hash), self.special)

    def save(self, path: Path) -> None:
        head = {"format": FORMAT, "version": FORMAT_VERSION, "hash": self.hash, "depends_on": asdict(self.depends_on)}
        head["special"] = asdict(self.special)
        path.write_text(json.dumps(head | self.codec.definition(), ensure_ascii=False), encoding="utf-8")

    def _without_specials(self, text: str) -> list[int]:
        """The ids of a text that spells special tokens: each is cut after its first character, and read in two parts.

        A special token of a single character is left out.
        """
        spelled = sorted((self.codec.decode([token]).strip() for token in self._own_specials), key=len, reverse=True)
        borders = "|".join(f"(?<={re.escape(one[0])})(?={re.escape(one[1:])})" for one in spelled if len(one) > 1)
        parts = [part for part in re.split(borders, text) if part] if borders else [text]
        return [token for ids in self.codec.encode_batch(parts) for token in ids if token not in self.specials]

    @property
    def _own_specials(self) -> list[int]:
        return sorted(token for token in self.specials if token < self.codec.size)

    def _name(self, token: int) -> str:
        if token not in self._names:
            known = f"ids in [0, {self.vocabulary_size})"
            raise PrepareError(known, f"id {token}", "decode with the tokenizer that encoded")
        return self._names[token]


def byte_tokenizer() -> Tokenizer:
    return Tokenizer(Bytes(), NOTHING)


def train_bpe(segments: Iterable[str], codec_size: int, depends_on: Dependence) -> Tokenizer:
    """A byte-level BPE of at most `codec_size` ordinary ids, learned from `segments`: text without placeholders."""
    if codec_size < 256:
        raise PrepareError("at least 256 ids, one a byte", f"{codec_size}", "ask for a larger vocabulary")
    learner = bare_bpe(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=codec_size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    learner.train_from_iterator(map(without_surrogates, segments), trainer)
    return Tokenizer(HuggingFace(json.loads(learner.to_str())), depends_on)


def read_tokenizer_json(path: Path, depends_on: Dependence = UNKNOWN) -> Tokenizer:
    """Any tokenizer of the Hugging Face library, from its `tokenizer.json` (or `.json.xz`)."""
    return Tokenizer(HuggingFace(read_tokenizer_content(path)), depends_on)


def read_gpt2(encoder: Path, merges: Path, depends_on: Dependence = UNKNOWN) -> Tokenizer:
    """A GPT-2 style pair: `encoder.json` (or `vocab.json`) and `vocab.bpe` (or `merges.txt`), plain or `.xz`."""
    vocabulary = read_tokenizer_content(encoder)
    lines = [line for line in _read_text(merges).split("\n") if line and not line.startswith("#version")]
    with foreign(
        lambda found: PrepareError(
            expected="a vocabulary and the merges that build it",
            found=f"{len(vocabulary)} ids and {len(lines)} merges that do not fit ({found})",
            way_out="take both files from the same model",
        )
    ):
        bare = bare_bpe(models.BPE(vocabulary, [(left, right) for left, right in map(str.split, lines)]))
    return Tokenizer(HuggingFace(json.loads(bare.to_str())), depends_on)


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer that `save` wrote; refused when it is another format or was changed."""
    content = read_tokenizer_content(path)
    if content.get("format") != FORMAT or content.get("version") != FORMAT_VERSION:
        raise PrepareError(
            expected=f"a file of format {FORMAT}, version {FORMAT_VERSION}",
            found=f"format {content.get('format')!r}, version {content.get('version')!r} in {path.name}",
            way_out="read foreign tokenizers with `read_tokenizer_json` or `read_gpt2`",
        )
    try:
        declared = content["depends_on"]
        depends_on = Dependence(VocabularySource(declared["source"]), declared["corpus"], declared["policy_hash"])
        codec: Codec = Bytes() if content["codec"] == "bytes" else HuggingFace(content["content"])
        tokenizer = Tokenizer(codec, depends_on, SpecialIds(**content["special"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"a field is missing or wrong ({type(error).__name__})") from error
    if tokenizer.hash != content["hash"]:
        raise _damaged(path, "a hash that does not match the content")
    return tokenizer


def bare_bpe(model: models.BPE) -> tokenizers.Tokenizer:
    """A byte-level BPE that adds nothing to a text."""
    bare = tokenizers.Tokenizer(model)
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    return bare


def _check_ids(vocabulary: object) -> None:
    """Refuse ids that no model has room for: the library would count up to the largest, for minutes."""
    largest = max(vocabulary.values(), default=0) if isinstance(vocabulary, dict) else 0
    if largest >= _MOST_TOKENS:
        raise PrepareError(
            expected=f"a tokenizer with ids below {_MOST_TOKENS:,}",
            found=f"id {largest:,}",
            way_out="save the tokenizer anew: its ids are the rows of the model's embedding",
        )


def _byte_level(content: dict[str, Any]) -> bool:
    """Whether a tokenizer.json is surely lossless: bytes in, every byte has an id, bytes out."""
    pre_tokenizer, decoder, model = content["pre_tokenizer"] or {}, content["decoder"] or {}, content["model"]
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    return (
        content["normalizer"] is None
        and all(token["special"] for token in content["added_tokens"])
        and all(
            (step.get("type") == "ByteLevel" and not step["add_prefix_space"])
            or (step.get("type") == "Split" and step["behavior"] == "Isolated")
            or step.get("type") == "Digits"
            for step in steps
        )
        and steps[-1].get("type") == "ByteLevel"
        and decoder.get("type") == "ByteLevel"
        and model["type"] == "BPE"
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
        and set(pre_tokenizers.ByteLevel.alphabet()) <= model["vocab"].keys()
    )


def _read_text(path: Path) -> str:
    try:
        raw = read_bytes(path)
        return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise PrepareError(
            f"a readable text file {path.name}", why(error), "check the path, and that the download was complete"
        ) from error


def read_tokenizer_content(path: Path) -> dict[str, Any]:
    """The JSON object in a tokenizer's file."""
    try:
        content = parse_json(_read_text(path))
    except ValueError as error:
        raise _damaged(path, "no JSON") from error
    if not isinstance(content, dict):
        raise _damaged(path, "JSON that is no object")
    return content


def _damaged(path: Path, found: str) -> PrepareError:
    return PrepareError(f"a tokenizer in {path.name}", found, "write the file anew from where it came")
