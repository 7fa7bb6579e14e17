"""Every setting of a run, from a YAML file, from flags or from Python; what would be ignored is refused."""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from tacit.common.serialize import from_words, merged, read_yaml
from tacit.config.schema import Experiment, check_used
from tacit.errors import ConfigError
from tacit.runs.release import TABLE


def read_experiment(path: Path, over: dict[str, Any]) -> Experiment:
    """Settings of a YAML file, with `over` laid over them."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"settings in {path}", type(content).__name__, "write `corpus: ...` and `plan: {...}`")
    return from_words(Experiment, merged(content, over))


NAMES_OF_FILES = (
    "policy",
    "conservative",
    "coverage",
    "aliases",
    "tokenizer",
    "vocabulary_corpus",
    "model",
    "choose_on",
)


def for_release(experiment: Experiment) -> dict[str, Any]:
    """The settings that have a row in the table of what may leave; of a path its last part."""
    released = {path.split(".")[0].removesuffix("[]") for path in TABLE["config.json"]}
    words = experiment.model_dump(mode="json", include=released)
    words["canaries"] = [one | {"words": []} for one in words["canaries"]]  # a person's list, which may name people
    return words | {word: PurePath(words[word]).name for word in NAMES_OF_FILES if words[word] is not None}


WORDS_OF_PLAN = ("mechanism", "epsilon", "epochs", "batch")


def asked_for(source: Path, words: Mapping[str, Any], settings: Mapping[str, Any]) -> Experiment:
    """What a corpus file, or a YAML file with settings, gives with `words` over it (None: not given), `settings` last.

    What would be ignored is refused.
    """
    over: dict[str, Any] = {}
    for word, value in words.items():
        if value is not None:
            over = merged(over, {"plan": {word: value}} if word in WORDS_OF_PLAN else {word: value})
    over = merged(over, dict(settings))
    if source.suffix in (".yaml", ".yml"):
        experiment = read_experiment(source, over)
    else:
        experiment = from_words(Experiment, merged({"corpus": str(source), "plan": {}}, over))
    check_used(experiment)
    return experiment
