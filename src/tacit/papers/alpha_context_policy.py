"""A policy's secrets with their alpha-contexts: the words before a secret that make a language model expect it.

    policy: {widened: {policy: digits, to: alpha-context, model: RUN, alpha: .01, trained_on: public}}

What is marked is public annotation, so it may depend on public things alone (theory, Pub(D) hygiene). This policy reads
a model: one that learned from the corpus at hand would carry its secrets into the mask, unaccounted. Nobody can tell
from a model what it learned from, so a person must say it: `public` text, or data `disjoint` from the corpus. And where
a context begins depends on what the secret says, as far as the model expects one secret more than another: `tacit scan`
measures how often (mask stability).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.common.serialize import read_json
from tacit.data.corpus import read
from tacit.data.records import Record, Span, resolve_overlaps
from tacit.errors import ConfigError, PolicyError
from tacit.policies.detectors.detector import TextDigest
from tacit.policies.policy import Policy

ALPHA_CONTEXT = "alpha-context"
TRAINED_ON = ("public", "disjoint")


@dataclass(frozen=True)
class WithAlphaContext(Policy):
    """What `policy` finds, each with its alpha-context under the model of a folder (`tacit.papers.alpha_context`).

    G1. Every character that `policy` finds is found, and all between it and the first word of its alpha-context.
    G2. Nothing else is found; a secret that is too long for the model has no context. Overlapping spans melt into one
        with the kind of the longest.
    G3. The same record gives the same spans, in float32 on the same library; a folder whose model is no longer the one
        of `model_hash` is refused.
    """

    policy: Policy
    model: Path
    alpha: float
    trained_on: str
    model_hash: str

    @classmethod
    def of(cls, policy: Policy, model: Path | None, alpha: float, trained_on: str | None) -> "WithAlphaContext":
        """With the model as it is in its folder now."""
        from tacit.papers.alpha_context import check_alpha, context_model

        if model is None:
            raise PolicyError(
                expected="the field `model` for a policy widened to the alpha-context",
                found="none",
                way_out="write `model:` with a run folder or a local Hugging Face causal model",
            )
        if trained_on is None:
            raise PolicyError(
                expected="what the model of the alpha-context learned from",
                found="nothing said of it",
                way_out="write `trained_on: public` or `trained_on: disjoint`; with a model that learned from this "
                "corpus the mask would tell of its secrets",
            )
        if trained_on not in TRAINED_ON:
            raise ConfigError.unknown_name("data that a model may have learned from", trained_on, TRAINED_ON)
        check_alpha(alpha)
        return cls(policy, model, alpha, trained_on, context_model(model.resolve()).hash)

    @property
    def id(self) -> str:
        learned = f"model {self.model_hash[:12]} trained on {self.trained_on} data"
        return f"widened({self.policy.id}, {ALPHA_CONTEXT} {self.alpha:g}, {learned})"

    def content(self) -> Any:  # noqa: ANN401
        return {
            "widened": self.policy.content(),
            "to": ALPHA_CONTEXT,
            "alpha": self.alpha,
            "model": self.model_hash,
            "trained_on": self.trained_on,
        }

    def learned_from(self) -> Iterable[tuple[str, frozenset[int]]]:
        for corpus in self.corpora():
            digest = TextDigest()
            for record in read(corpus):
                digest.add(record)
            yield digest.hexdigest(), frozenset(digest.sketch())

    def corpora(self) -> tuple[Path, ...]:
        """The corpora that the settings of a run folder name, as far as they are there; of other models none is known.

        Their paths are as they were written: relative ones are looked for from where we are.
        """
        try:
            settings = read_json(self.model / "private" / "settings.json")
            named = [settings.get("corpus"), settings.get("data", {}).get("held_out_corpus")]
        except (OSError, ValueError, AttributeError):
            return ()
        return tuple(Path(name) for name in named if isinstance(name, str) and Path(name).exists())

    def find(self, record: Record) -> tuple[Span, ...]:
        from tacit.papers.alpha_context import LeftContext, context_model

        found = self.policy.find(record)
        if not found:
            return ()
        model = context_model(self.model.resolve())
        if model.hash != self.model_hash:
            raise PolicyError(
                expected=f"the model {self.model_hash[:12]} that the policy was made with",
                found=f"{model.hash[:12]} in its folder",
                way_out="put the model back, or make the policy anew",
            )
        widened = []
        for span in found:
            if model.reads(record.text[span.start : span.end]):
                context = LeftContext(model, record.text, span.start, span.end).alpha_context(self.alpha)
                widened.append(span if context is None else span._replace(start=context.start))
            else:
                widened.append(span)
        return resolve_overlaps(widened)
