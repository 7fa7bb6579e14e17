"""What a policy is: a pure function from one record to the spans of its secrets."""

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.corpus.record import Record, Span

if TYPE_CHECKING:
    from tacit.policy.algebra import Both, Either, Without

Definition = str | dict[str, Any]
"""What a person writes in YAML to get a policy: a name, or one key with its argument."""


class Policy(ABC):
    """Says which characters of a record are secret.

    G1 (pure). `find` gives the same spans for the same record, in every process and on every day.
    G2 (local). `find` looks at nothing but the record it is given.
    G3 (tidy). Spans are sorted, disjoint, non-empty and inside the text.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """A short readable name, such as `digits` or `(pii | dictionary:names)`."""

    @abstractmethod
    def content(self) -> Any:  # noqa: ANN401  (any JSON value)
        """All that decides what `find` returns, as JSON: patterns, word lists, versions of libraries, parts."""

    @abstractmethod
    def find(self, record: Record) -> tuple[Span, ...]:
        """The secret spans of `record`."""

    @property
    def public(self) -> bool:
        """Whether `content` has nothing but what comes with tacit: a hash of a person's words would give them away."""
        return False

    @property
    def hash(self) -> str:
        """SHA-256 of `content()`: two policies with one hash behave alike."""
        canonical = json.dumps(self.content(), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def __or__(self, other: "Policy") -> "Either":
        from tacit.policy.algebra import Either

        return Either(self, other)

    def __and__(self, other: "Policy") -> "Both":
        from tacit.policy.algebra import Both

        return Both(self, other)

    def __sub__(self, other: "Policy") -> "Without":
        from tacit.policy.algebra import Without

        return Without(self, other)


@dataclass(frozen=True, slots=True)
class Policies:
    """What marks secrets and, for crt, what else routes a record to the protected ones: read once by a process."""

    marking: Policy
    conservative: Policy | None = None

    def together(self) -> Policy:
        """One policy of both: what either of them learned from matters."""
        return self.marking if self.conservative is None else self.marking | self.conservative
