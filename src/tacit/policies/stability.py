"""Does a policy's mask depend on what the secrets are?

If it does, the mask itself reveals something about them. Two checks: put a random stand-in of the same kind in a
secret's place and see whether the rest of the mask moves (theory, T8), and CRT's exact condition that redacting a text
equals redacting it after one secret was masked (theory, section 4).
"""

import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from operator import add

from tacit.data.inventions import surrogate
from tacit.data.records import Message, Record, Span, resolve_overlaps
from tacit.policies.policy import Policy, difference, overlaps

PLACEHOLDER = "\ue000"
"""One character of the private-use area: neither letter nor digit nor mark, as opaque to a policy as a token is."""

MOST_CHARACTERS = 4_000_000
"""How much of one record is read again to see whether its redaction is stable."""


@dataclass(frozen=True, slots=True)
class StabilityCounts:
    """How found spans behaved, one at a time; adds up with `+`."""

    spans: int = 0
    rest_changed: int = 0
    found_again: int = 0
    redaction_stable: int = 0

    def __add__(self, other: "StabilityCounts") -> "StabilityCounts":
        return StabilityCounts(*map(add, astuple(self), astuple(other)))


def mask_stability(policy: Policy, record: Record, rng: random.Random, most: int | None = None) -> StabilityCounts:
    """Replace the found spans of `record` one at a time, at most `most` of them drawn at random, and count.

    The rest of the mask is what lies outside the replaced span, moved along with the text. The stand-in counts as
    found again when every character of it is found.
    """
    found = policy.marks(record)
    chosen = found if most is None or len(found) <= most else tuple(sorted(rng.sample(found, most)))
    redacted = _redacted(record.text, found)
    total = StabilityCounts()
    for span in chosen:
        stand_in = surrogate(span.kind, record.text[span.start : span.end], rng)
        changed = with_replaced(record, span, stand_in)
        after = policy.marks(changed)
        here = Span(span.start, span.start + len(stand_in), span.kind)
        shift = here.end - span.end
        expected = tuple(
            other if other.end <= span.start else Span(other.start + shift, other.end + shift, other.kind)
            for other in found
            if other != span
        )
        inside = sum(end - start for _, start, end in overlaps([here], after))
        total += StabilityCounts(
            spans=1,
            rest_changed=int(difference(after, [here], len(changed.text)) != expected),
            found_again=int(inside == here.end - here.start),
            redaction_stable=int(redact(policy, with_replaced(record, span, PLACEHOLDER)) == redacted),
        )
    return total


def record_is_stable(policy: Policy, record: Record, secrets: Sequence[Span]) -> bool:
    """Whether the redacted text, and the kinds of what is still to be found, stay as they are when spans are masked.

    That is each of them alone, those that `secrets` overlap at once, and all at once. A record that is too long to be
    checked is taken for one that is not stable.
    """
    found = policy.marks(record)
    if len(found) > max(1, MOST_CHARACTERS // max(1, len(record.text))):  # each check reads the whole record
        return False
    redacted = _redacted(record.text, found)
    of_secrets = [span for span in found if any(one.start < span.end and span.start < one.end for one in secrets)]
    return all(
        _same_when_masked(policy, record, found, redacted, spans)
        for spans in (found, of_secrets, *([span] for span in found))
    )


def _same_when_masked(
    policy: Policy, record: Record, found: tuple[Span, ...], redacted: str, spans: Sequence[Span]
) -> bool:
    """A mask keeps the kind of what it hides; by the other kinds, secrets may be invented."""
    masked = _masked(record, spans)
    after = policy.marks(masked)
    left = [span.kind for span in after if masked.text[span.start : span.end] != PLACEHOLDER]
    return _redacted(masked.text, after) == redacted and left == [span.kind for span in found if span not in spans]


def redact(policy: Policy, record: Record) -> str:
    """The text of `record` with each found span replaced by one placeholder, whatever its length."""
    return _redacted(record.text, policy.marks(record))


def with_replaced(record: Record, span: Span, text: str) -> Record:
    """`record` with `text` in the place of `span`; labels move along, one that overlaps `span` covers all of `text`."""
    shift = len(text) - (span.end - span.start)

    def moved(position: int, inside: int) -> int:
        if position <= span.start:
            return position
        return position + shift if position >= span.end else inside

    spans = record.spans
    if spans is not None:
        spans = resolve_overlaps(
            Span(moved(gold.start, span.start), moved(gold.end, span.end + shift), gold.kind) for gold in spans
        )
    messages = record.messages
    if messages is not None:
        messages = tuple(
            Message(role, moved(start, span.start), moved(end, span.end + shift)) for role, start, end in messages
        )
    whole = record.text[: span.start] + text + record.text[span.end :]
    return replace(record, text=whole, spans=spans, messages=messages)


def _masked(record: Record, spans: Sequence[Span]) -> Record:
    for span in sorted(spans, reverse=True):
        record = with_replaced(record, span, PLACEHOLDER)
    return record


def _redacted(text: str, spans: tuple[Span, ...]) -> str:
    pieces = []
    start = 0
    for span in spans:
        pieces += [text[start : span.start], PLACEHOLDER]
        start = span.end
    return "".join([*pieces, text[start:]])
