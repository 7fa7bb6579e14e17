"""Views of one record, and the records that the other tests of the preparation share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.records import Record, Span
from tacit.data.tokenizer import Dependence, Tokenizer, VocabularySource, byte_tokenizer, train_bpe
from tacit.data.views import FullTokens, PublicTokens, Tokens, divide, encode_all, fill_in, join
from tacit.errors import PrepareError
from tacit.policies.policy import Policy

SENTENCES = ("The cat sat. ", "Is it Ann? ", "No.\n", " It is <MASK>!  ", "Dr. ", "\ufffc", "日本語。", "x" * 30, "")
SECRETS = ("Ann", ". A", " ", "\n\nB", "<MASK>", "\ufffc", "a. b! C? ", "7" * 300, "Ω" * 40)
TOKENIZERS = (
    byte_tokenizer(),
    train_bpe(SENTENCES * 3, 290, Dependence(VocabularySource.PUBLIC_CORPUS, corpus="sentences")),
)


class Annotated(Policy):
    """Says what the record's own spans say."""

    @property
    def id(self) -> str:
        return "annotated"

    def content(self) -> Any:  # noqa: ANN401
        return "annotated"

    def find(self, record: Record) -> tuple[Span, ...]:
        return record.spans or ()


@dataclass(frozen=True)
class Parts:
    """A record's public segments with two lists of secrets to put between them."""

    segments: tuple[str, ...]
    kinds: tuple[str, ...]
    secrets: tuple[str, ...]
    other_secrets: tuple[str, ...]

    def record(self, name: str, secrets: tuple[str, ...]) -> Record:
        text, spans = self.segments[0], []
        for kind, secret, segment in zip(self.kinds, secrets, self.segments[1:], strict=True):
            spans.append(Span(len(text), len(text) + len(secret), kind))
            text += secret + segment
        return Record(name, text, user=f"user of {name}", spans=tuple(spans))

    def twins(self, name: str = "r") -> tuple[Record, Record]:
        return self.record(name, self.secrets), self.record(name, self.other_secrets)


@st.composite
def parts(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Parts:
    segment = st.lists(st.sampled_from(SENTENCES), max_size=6).map("".join) | st.text(max_size=12)
    secret = st.sampled_from(SECRETS) | st.text(min_size=1, max_size=12)
    inside = draw(st.lists(st.tuples(st.sampled_from(("NAME", "PHONE")), secret, secret, segment), max_size=4))
    return Parts(
        (draw(segment), *(item[3] for item in inside)),
        tuple(item[0] for item in inside),
        tuple(item[1] for item in inside),
        tuple(item[2] for item in inside),
    )


@dataclass(frozen=True, slots=True)
class PreparedRecord:
    """One record in tokens; both views share the public ones."""

    public: PublicTokens
    secrets: tuple[list[int], ...]  # the tokens of each secret

    def redacted(self) -> Tokens:
        """Reads no secret."""
        return np.array(self.public.tokens, dtype=np.uint32)

    def full(self) -> FullTokens:
        """Reads secrets: for private steps only."""
        lengths = np.array([len(secret) for secret in self.secrets], dtype=np.int64)
        contents = np.array([token for secret in self.secrets for token in secret], dtype=np.uint32)
        return fill_in(self.redacted(), np.array(self.public.positions, dtype=np.int64), contents, lengths)


def prepared(record: Record, tokenizer: Tokenizer) -> PreparedRecord:
    """One record in tokens, uncut."""
    public, secrets = divide(record.text, record.spans or ())
    segments = encode_all(public.segments, tokenizer)
    return PreparedRecord(join(public, segments, tokenizer), tuple(encode_all(secrets, tokenizer)))


every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=["bytes", "bpe"])


@every_tokenizer
@given(parts=parts())
@settings(deadline=None)
def test_g1_texts_that_differ_inside_their_spans_are_one_redacted_record(tokenizer: Tokenizer, parts: Parts) -> None:
    one, other = (prepared(record, tokenizer) for record in parts.twins())
    assert one.redacted().tobytes() == other.redacted().tobytes()
    assert one.public == other.public


@every_tokenizer
@given(parts=parts())
@settings(deadline=None)
def test_g2_a_secret_leaves_one_placeholder_and_nothing_else(tokenizer: Tokenizer, parts: Parts) -> None:
    record = prepared(parts.twins()[0], tokenizer)
    special = [(place, token) for place, token in enumerate(record.redacted()) if token >= tokenizer.codec.size]
    assert special == list(zip(record.public.positions, [tokenizer.placeholder] * len(parts.kinds), strict=True))
    without_secrets = sum(len(tokenizer.encode(segment)) for segment in parts.segments)
    assert len(record.redacted()) == without_secrets + len(parts.kinds)


@every_tokenizer
@given(parts=parts())
@settings(deadline=None)
def test_g3_public_text_is_unchanged_and_in_order(tokenizer: Tokenizer, parts: Parts) -> None:
    tokens = prepared(parts.twins()[0], tokenizer).redacted()
    assert tokenizer.decode(tokens[tokens < tokenizer.codec.size]) == "".join(parts.segments)


@every_tokenizer
@given(parts=parts())
@settings(deadline=None)
def test_g4_full_tokens_decode_to_the_text(tokenizer: Tokenizer, parts: Parts) -> None:
    record = parts.twins()[0]
    full = prepared(record, tokenizer).full()
    assert tokenizer.decode(full.tokens) == record.text
    assert tokenizer.decode(full.tokens[~full.private]) == "".join(parts.segments)
    secrets = [tokenizer.decode(full.tokens[start:end]) for start, end in zip(full.starts, full.ends, strict=True)]
    assert secrets == list(parts.secrets)


@every_tokenizer
@given(parts=parts())
@settings(deadline=None)
def test_the_full_view_agrees_with_a_loop(tokenizer: Tokenizer, parts: Parts) -> None:
    record = prepared(parts.twins()[0], tokenizer)
    tokens: list[int] = []
    private: list[bool] = []
    secrets = iter(record.secrets)
    for place, token in enumerate(record.public.tokens):
        content = next(secrets) if place in record.public.positions else [token]
        tokens += content
        private += [place in record.public.positions] * len(content)
    full = record.full()
    assert full.tokens.tolist() == tokens
    assert full.private.tolist() == private
    assert np.count_nonzero(full.private) == np.sum(full.ends - full.starts)


def test_every_kind_is_masked_alike() -> None:
    record = Parts(("I am ", ", call ", "."), ("NAME", "PHONE"), ("Ann", "12"), ("Bo", "3")).twins()[0]
    tokenizer = byte_tokenizer()
    assert tokenizer.decode(prepared(record, tokenizer).redacted()) == "I am <MASK>, call <MASK>."


@given(first=parts(), second=parts())
def test_digests_tell_segments_apart_and_nothing_else(first: Parts, second: Parts) -> None:
    digests = [divide(record.text, record.spans or ())[0].digest for record in (*first.twins(), *second.twins())]
    assert digests[0] == digests[1]
    assert (digests[0] == digests[2]) == (first.segments == second.segments)


@pytest.mark.parametrize("spans", [[Span(0, 9, "A")], [Span(2, 2, "A")], [Span(0, 2, "A"), Span(1, 3, "A")]])
def test_spans_that_make_no_sense_are_refused_without_quoting(spans: list[Span]) -> None:
    with pytest.raises(PrepareError) as caught:
        divide("secret", spans)
    assert "secret" not in str(caught.value).replace("secret spans", "")
