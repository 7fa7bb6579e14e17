"""What exact exposure costs: all candidates by their shared beginnings, against each candidate whole.

    python benchmarks/exposure.py [--work NAME ...] [--rounds N] [--sample N] [--digits N]

Both ways score the same tokens with the same model in one process. Each round runs the tree over all candidates, then
scores a random sample of whole candidates in batches of 512 rows sorted by length; the sample's time is scaled to all
candidates, and medians over rounds are compared. Spelling the candidates (tokens and tree) is the same work for both
and is printed apart; the last ratio charges it to both. The largest difference between totals of the sample is printed,
so that speed is not bought with other numbers. Peak memory is that of the whole process, imports and tokens included.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from tacit.audits.candidates import Spelling, TokenRows, TokenTree, total_log_probabilities
from tacit.config.audit_schema import Slot
from tacit.config.model_schema import CausalLMConfig, LSTMConfig
from tacit.data.batches import TextBatch
from tacit.data.tokenizer import Dependence, Tokenizer, VocabularySource, byte_tokenizer, train_bpe
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Speaker
from tacit.models.lstm import LSTM

ROWS = 512
VOCABULARY = 8_000


@dataclass(frozen=True, slots=True)
class Work:
    """One row of the table."""

    model: str
    words: str

    def speaker(self, vocabulary: int) -> Speaker:
        """A model with fresh weights: what they say does not change the work."""
        torch.manual_seed(1)
        if self.model == "gpt":
            return CausalLM.new(CausalLMConfig(vocabulary, 256, 4, 4, 64, dropout=0.0))
        return LSTM.new(LSTMConfig(vocabulary, 200, 200, dropout=0.0))


WORKS = {f"{model}-{words}": Work(model, words) for model in ("lstm", "gpt") for words in ("bytes", "bpe")}


def tokenizer(words: str) -> Tokenizer:
    """Bytes, or a BPE of 8,000 tokens that has met numbers and made-up words."""
    if words == "bytes":
        return byte_tokenizer()
    generator = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfw"))
    segments = []
    for _ in range(8_000):
        made = ["".join(generator.choice(letters, size=generator.integers(2, 9))) for _ in range(8)]
        numbers = [str(generator.integers(0, 10 ** int(generator.integers(1, 7)))) for _ in range(8)]
        segments.append(" ".join(part for pair in zip(made, numbers, strict=True) for part in pair))
    return train_bpe(segments, VOCABULARY - 2, Dependence(VocabularySource.PUBLIC_CORPUS, "made up"))


def whole(
    speaker: Speaker, rows: TokenRows, opening: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The totals of candidates, each read from its beginning to its end."""
    lengths = np.count_nonzero(rows, axis=1)
    totals = np.empty(len(rows))
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(rows), ROWS):
        part = order[start : start + ROWS]
        width = int(lengths[part].max())
        tokens = np.concatenate([np.tile(opening, (len(part), 1)), rows[part, :width].astype(np.int64) - 1], axis=1)
        scores = speaker.log_probabilities(TextBatch.of_tokens(torch.from_numpy(tokens.clip(0)))).double().numpy()
        counted = np.arange(scores.shape[1]) < (lengths[part] + len(opening) - 1)[:, None]
        totals[part] = (scores * counted)[:, len(opening) - 1 :].sum(axis=1)
    return totals


def seconds(run: Callable[[], None]) -> float:
    """Of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def report(name: str, rounds: int, sample: int, digits: int) -> None:
    """Measure one row of the table and print it."""
    work, slot = WORKS[name], Slot.of(f"My ID is {{{digits} digits}}")
    words = tokenizer(work.words)
    speaker, spelling = work.speaker(words.vocabulary_size), Spelling.as_trained(words, marked=False)
    start = time.perf_counter()
    rows = spelling.of_space(slot)
    tree = TokenTree.of(rows, spelling.opening)
    spelled = time.perf_counter() - start
    chosen = np.random.default_rng(2).choice(len(rows), size=min(sample, len(rows)), replace=False)
    found: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}

    def by_tree() -> None:
        found["tree"] = total_log_probabilities(speaker, tree)

    def by_candidate() -> None:
        found["whole"] = whole(speaker, rows[chosen], spelling.opening)

    times = [(seconds(by_tree), seconds(by_candidate) * len(rows) / len(chosen)) for _ in range(rounds)]
    tree_time, whole_time = (statistics.median(column) for column in zip(*times, strict=True))
    off = float(np.abs(found["tree"][chosen] - found["whole"]).max())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{name:11} {len(rows):>9,} candidates | spelling {spelled:5.1f} s | tree {tree_time:6.1f} s | whole "
        f"{whole_time:7.0f} s (from {len(chosen):,}) | ratio {whole_time / tree_time:4.0f}, with spelling "
        f"{(whole_time + spelled) / (tree_time + spelled):4.0f} | differ by {off:.0e} | peak {memory:.2f} GB",
        flush=True,
    )


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=10_000)
    parser.add_argument("--digits", type=int, default=6)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in arguments.work:
        report(name, arguments.rounds, arguments.sample, arguments.digits)


if __name__ == "__main__":
    main()
