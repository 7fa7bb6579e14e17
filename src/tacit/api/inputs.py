"""Python objects that a run is given, as files of its private folder: known by their content, there when it is resumed.

G1. What a run reads is a file or a folder. A corpus in memory, a policy's definition and a model of transformers are
    written to `private/inputs/` first, and a start that is refused removes them again.
G2. A policy object cannot be written: it is registered in this process under a name, its hash is part of the run's
    identity, and in another process a run is resumed only with an equal policy.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from tacit.errors import ConfigError, RunError

if TYPE_CHECKING:
    from tacit.data.corpus import CorpusSource
    from tacit.data.fields import Fields
    from tacit.mechanisms.build import EarlierRun
    from tacit.policies.policy import Policy
    from tacit.training.prepared import Prepared

_OBJECT = "object-"
_OBJECTS: dict[str, "Policy"] = {}


class FieldNames(TypedDict, total=False):
    """What a corpus calls the parts of a record, where it is not the usual name."""

    text_field: str
    id_field: str
    user_field: str
    label_field: str
    spans_field: str
    turns_field: str
    messages_field: str


def fields_of(names: FieldNames) -> "Fields":
    """The names as `tacit.data.fields` has them."""
    from tacit.data import fields

    unknown = names.keys() - FieldNames.__annotations__.keys()
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    return fields.fields_of(names)


@dataclass
class Inputs:
    """What a run in `folder` is given, each as the word that settings have for it."""

    folder: Path
    set_aside: int = 0
    """Records that could not be written for the run to read; `quarantine.jsonl` beside the corpus has the reasons."""
    _place: Path | None = field(default=None, init=False)

    def corpus(self, corpus: "CorpusSource", names: FieldNames) -> tuple[str, FieldNames]:
        """The corpus file, and what it calls its fields: one in memory is written with the usual names."""
        fields = fields_of(names)
        if isinstance(corpus, str | Path):
            return str(corpus), names
        from tacit.data.corpus import open_corpus, write_jsonl

        place = self._inputs()
        reader = open_corpus(corpus, fields, place / "quarantine.jsonl")
        write_jsonl(reader, place / "corpus.jsonl.zst")
        self.set_aside = reader.tally.quarantined
        return str(place / "corpus.jsonl.zst"), {}

    def policy(self, policy: "str | Path | Mapping[str, Any] | Policy", name: str) -> str:
        """The name or the YAML file of a policy."""
        if isinstance(policy, str | Path):
            return str(policy)
        if not isinstance(policy, Mapping):
            return _registered(policy)
        import yaml

        from tacit.common.files import write_private

        file = self._inputs() / f"{name}.yaml"
        content = {"policy": dict(policy), "beside": str(Path.cwd())}
        write_private(file, yaml.safe_dump(content, sort_keys=False).encode())
        return str(file)

    def model(self, model: object, tokenizer: object) -> tuple[str, str | None]:
        """The name or the folder of a model, and the name of its tokenizer."""
        if isinstance(model, str | Path):
            return str(model), _tokenizer_name(tokenizer)
        folder = self._inputs() / "model"
        _saver(model, "a model of transformers")(folder)
        if tokenizer is None or isinstance(tokenizer, str | Path):
            return str(folder), _tokenizer_name(tokenizer)
        _saver(tokenizer, "the tokenizer of a model")(folder)
        if not (folder / "tokenizer.json").is_file():
            raise ConfigError(
                expected="a fast tokenizer, which is saved as tokenizer.json",
                found=f"a {type(tokenizer).__name__}",
                way_out="load it with AutoTokenizer.from_pretrained(folder), or use tokenizer: bytes",
            )
        return str(folder), None

    def _inputs(self) -> Path:
        from tacit.runs.folder import stage_inputs

        if self._place is None:
            self._place = stage_inputs(self.folder)
        return self._place


@contextmanager
def inputs_of(folder: Path) -> Iterator[Inputs]:
    """The inputs of a run that is about to begin in `folder`; nothing is left of them if it does not."""
    from tacit.runs.folder import unstage_inputs

    inputs = Inputs(folder)
    try:
        yield inputs
    except BaseException:
        if inputs._place is not None:
            unstage_inputs(folder)
        raise


def policy_of(policy: "str | Path | Mapping[str, Any] | Policy") -> "Policy":
    """The policy given as a name, comma-separated names, a YAML file, a definition or an object."""
    from tacit.policies.registry import build_policy, parse_policy

    if isinstance(policy, str | Path):
        return parse_policy(str(policy))
    return build_policy(dict(policy)) if isinstance(policy, Mapping) else policy


def store_of(prepared: "str | Path | Prepared") -> Path:
    """The folder of a prepared store."""
    return Path(prepared) if isinstance(prepared, str | Path) else prepared.folder


def earlier_of(model: str | Path | None) -> "EarlierRun | None":
    """The run that `model` is; None where training begins with a new model, or one from elsewhere."""
    from tacit.config.schema import BUILT_IN, is_custom
    from tacit.runs.earlier import read_earlier

    if model is None or str(model) in BUILT_IN or is_custom(str(model)):
        return None
    if not Path(model).is_dir():
        raise ConfigError("a model's name, its folder, or the folder of a run", repr(str(model)), "check the path")
    return read_earlier(Path(model))


def check_policy_object(name: str, policy: "Policy | None") -> None:
    """Have the policy object of a run that is resumed; refuse a process that does not know it."""
    from tacit.policies.registry import register_policy

    if policy is not None and name.startswith(_OBJECT):
        _OBJECTS[name] = policy
        register_policy(name, lambda: policy)
    elif policy is not None:
        raise ConfigError("a policy with a run that was given a policy object", f"policy: {name}", "leave it out")
    elif name.startswith(_OBJECT) and name not in _OBJECTS:
        raise RunError(
            expected="the policy object that the run was trained with",
            found="none in this process",
            way_out="give it again: tacit.load(RUN).resume(policy=...)",
        )


def _registered(policy: "Policy") -> str:
    """The name of a policy object; equal policies have one name in this process."""
    from tacit.policies.policy import Policy
    from tacit.policies.registry import register_policy

    if not isinstance(policy, Policy):
        raise ConfigError("a policy: a name, a definition or a Policy", f"a {type(policy).__name__}", "such as pii")
    known = next((name for name, other in _OBJECTS.items() if other.hash == policy.hash), None)
    name = known or f"{_OBJECT}{len(_OBJECTS) + 1}"
    _OBJECTS[name] = policy
    register_policy(name, lambda: policy)
    return name


def _tokenizer_name(tokenizer: object) -> str | None:
    if tokenizer is None or isinstance(tokenizer, str | Path):
        return None if tokenizer is None else str(tokenizer)
    way_out = "give both model and tokenizer as objects, or the path of a tokenizer.json"
    raise ConfigError("the name of a tokenizer", f"a {type(tokenizer).__name__}", way_out)


def _saver(given: object, noun: str) -> Callable[[Path], object]:
    save: Callable[[Path], object] | None = getattr(given, "save_pretrained", None)
    if save is None:
        raise ConfigError(f"a name, a folder or {noun}", f"a {type(given).__name__}", "such as lstm or gpt")
    return save
