"""A policy of one's own: ticket numbers that a company writes as AB-1234, measured before it is trusted.

python examples/own_policy.py
"""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tacit
from tacit.api import label_draw, label_read
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record, Span
from tacit.policies.policy import Policy
from tacit.policies.registry import parse_policy, register_policy

TICKET = re.compile(r"\b[A-Z]{2}-\d{4}\b")


@dataclass(frozen=True)
class Tickets(Policy):
    """Every ticket number. Pure, and it looks at one record alone."""

    @property
    def id(self) -> str:
        """How it is called in tables and certificates."""
        return "tickets"

    def content(self) -> Any:  # noqa: ANN401  (any JSON value)
        """All that decides what it finds: the hash in the certificate is made from it."""
        return {"tickets": TICKET.pattern}

    def find(self, record: Record) -> tuple[Span, ...]:
        """The spans of its secrets: sorted, disjoint, inside the text."""
        return tuple(Span(*match.span(), "TICKET") for match in TICKET.finditer(record.text))


def mails(number: int) -> list[Record]:
    """Mails with gold spans; every tenth writes its ticket in lower case, which the policy misses."""
    written = []
    for index in range(number):
        ticket = f"QX-{1000 + index}" if index % 10 else f"qx-{1000 + index}"
        text = f"Hello, any news about {ticket}? Please call 980.322.{8000 + index}."
        start = text.index(ticket)
        phone = text.index("980")
        spans = (Span(start, start + len(ticket), "TICKET"), Span(phone, phone + 12, "PHONE"))
        written.append(Record(f"mail-{index}", text, spans=spans))
    return written


def main() -> None:
    """Scan with the policy, then say how much it misses at most."""
    register_policy("tickets", Tickets)  # from now on `tickets` is a word like `pii`
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "mails.jsonl"
        write_jsonl(iter(mails(300)), corpus)
        for words in ("tickets", "tickets,pii"):
            found = tacit.scan(corpus, words, processes=1)
            kinds = ", ".join(f"{kind} {total.secrets}" for kind, total in found.kinds.items())
            print(f"{words}: {found.secrets} secrets ({kinds})")
        label_draw(corpus, "tickets,pii", Path(folder) / "sample.jsonl", records=200, seed=1, gold=True)
        measured = label_read(Path(folder) / "sample.jsonl", parse_policy("tickets,pii"))
        print(f"{measured.missed} of {measured.sampled} sampled mails hold a secret that it misses,")
        print(f"so with 95 % confidence at most {measured.coverage.miss_rate:.3f} of all mails do.")


if __name__ == "__main__":
    main()
