"""`prepare`: a corpus, prepared once for many runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tacit.api.inputs import FieldNames, inputs_of
from tacit.api.settings import config
from tacit.common.progress import logged, unwatched

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tacit.common.progress import Observer
    from tacit.config.schema import Config
    from tacit.data.corpus import CorpusSource
    from tacit.policies.policy import Policy
    from tacit.training.prepared import Prepared


def prepare(
    corpus: "CorpusSource",
    *,
    policy: "str | Path | Mapping[str, Any] | Policy" = "pii",
    mechanism: str = "plain",
    model: str | Path = "lstm",
    tokenizer: "str | Path | PreTrainedTokenizerBase | None" = None,
    task: str = "language",
    mode: str = "release",
    seed: int | None = None,
    out: str | Path = "prepared",
    settings: Mapping[str, Any] | None = None,
    observe: "Observer" = unwatched,
    **field_names: Unpack[FieldNames],
) -> "Prepared":
    """Mark, tokenize and split a corpus, and draw its canaries, once for all runs that `train(prepared=...)` makes.

    Args:
        corpus, policy, tokenizer, task, settings, **field_names: as those of `tacit.train`.
        mechanism: where it matters: crt leaves duplicates out, and uedp lists entities.
        model: where the tokenizer is the model's own.
        mode, seed: of the canaries.
        out: the folder of the store. It contains the corpus: keep it private.
        observe: called with progress events.

    Examples:
        >>> import tacit
        >>> settings = {"held_out": 0.3, "max_tokens": 64}
        >>> store = tacit.prepare("corpus.jsonl", policy="pii", out="prepared", settings=settings)
        >>> store.records + store.held_out > 80  # 80 of the corpus; planted canaries are records, too
        True
        >>> size = {"model_config": {"hidden_size": 8, "embedding_size": 8}, "max_full_tokens": 64}
        >>> private = {"mechanism": "dpsgd", "epsilon": 8, "epochs": 1, "expected_batch_size": 16}
        >>> run = tacit.train(prepared=store, out="first", settings=size, **private)
        >>> run.guarantee.figures[0].epsilon <= 8
        True
    """
    folder = Path(out)
    with inputs_of(folder) as inputs:
        named, tokens = inputs.model(model, tokenizer)
        words: dict[str, Any] = {"mechanism": mechanism, "task": task, "mode": mode, "seed": seed}
        words |= {"model": named, "tokenizer": tokens, "policy": inputs.policy(policy, "policy")}
        file, names = inputs.corpus(corpus, field_names)
        return prepare_config(config(file, **words, **names, settings=settings), folder, observe=observe)


def prepare_config(config: "Config", out: str | Path, *, observe: "Observer" = unwatched) -> "Prepared":
    """As `prepare`, with all settings at hand."""
    from tacit.training.prepared import prepare as begin

    return begin(config, Path(out), logged(observe))
