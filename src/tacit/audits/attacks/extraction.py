"""Extraction: prompt a model with what stood before a secret, and see whether the secret comes out word for word.

| count | what it is | from |
|---|---|---|
| greedy | the most probable continuation begins with the secret | Carlini et al. 2023, 2202.07646 |
| sampled | one of `tries` sampled continuations does | |
| discoverable (n, p) | with probability at least p one of n samples does | Hayes et al. 2024, 2410.19482 |

The last is computed, not sampled: a secret of probability z after its prompt comes out among n samples with probability
1 - (1 - z)^n. Here z is that of the secret's own tokens; other spellings of it make the true chance larger.
Secrets that the model never saw come out too, when they are easy to guess: a count means something beside theirs.
Results hold ids and numbers, never a secret.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from tacit.audits.attacks.membership import Passage, log_probabilities
from tacit.audits.findings import Discoverable, ExtractedShare, Extraction
from tacit.audits.scoring import AttackProgress
from tacit.config.audit_schema import ExtractionConfig
from tacit.errors import AttackError
from tacit.models.language_model import Speaker, generate

_ROWS = 256


@dataclass(frozen=True, slots=True)
class Hidden:
    """A secret to be brought out: what stood before it as tokens (at least one), and itself."""

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


def extract(
    speaker: Speaker,
    secrets: Sequence[Hidden],
    said: Callable[[Sequence[int]], str],
    generator: torch.Generator,
    settings: ExtractionConfig | None = None,
    progress: AttackProgress = lambda done, total: None,
) -> Extraction:
    """Try to bring each secret out; `said` is the text of tokens."""
    settings = settings or ExtractionConfig()
    greedy: set[str] = set()
    sampled: set[str] = set()
    rounds = [(0.0, greedy), *[(settings.temperature, sampled)] * settings.tries]
    for number, (temperature, found) in enumerate(rounds):
        for part in _parts([secret for secret in secrets if secret.id not in found]):
            found |= _brought_out(speaker, part, said, generator, temperature)
        progress(number + 1, len(rounds))
    chances = secret_log_probabilities(speaker, secrets).values()
    discoverable = (
        Discoverable(
            tries,
            least,
            ExtractedShare.among(sum(_comes_out(chance, tries) >= least for chance in chances), len(chances)),
        )
        for tries, least in settings.discoverable
    )
    greedily, by_sampling = (ExtractedShare.among(len(found), len(secrets)) for found in (greedy, sampled))
    return Extraction(greedily, settings.tries, by_sampling, tuple(discoverable))


def secret_log_probabilities(speaker: Speaker, secrets: Sequence[Hidden]) -> dict[str, float]:
    """By id, the total log-probability of each secret's tokens after its prompt."""
    passages = [Passage(one.id, [*one.prompt, *one.tokens], len(one.prompt)) for one in secrets]
    return {passages[place].id: float(said.sum()) for place, said in log_probabilities(speaker, passages)}


def _comes_out(log_probability: float, tries: int) -> float:
    """1 - (1 - z)^n without losing small z."""
    if log_probability >= 0:
        return 1.0
    return -math.expm1(tries * math.log1p(-math.exp(log_probability)))


def _parts(secrets: Sequence[Hidden]) -> Iterator[list[Hidden]]:
    """Secrets whose prompts are equally long, some at a time."""
    by_length = defaultdict(list)
    for secret in secrets:
        by_length[len(secret.prompt)].append(secret)
    for group in by_length.values():
        for start in range(0, len(group), _ROWS):
            yield group[start : start + _ROWS]


def _brought_out(
    speaker: Speaker,
    secrets: Sequence[Hidden],
    said: Callable[[Sequence[int]], str],
    generator: torch.Generator,
    temperature: float,
) -> set[str]:
    prompts = torch.tensor([list(secret.prompt) for secret in secrets])
    length = max(len(secret.tokens) for secret in secrets)
    continued = generate(speaker, prompts, length, generator, temperature).tolist()
    return {one.id for one, tokens in zip(secrets, continued, strict=True) if said(tokens).startswith(one.text)}
