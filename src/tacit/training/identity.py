"""What a run is made of, known by keyed hashes: written when the run begins, compared before it is resumed.

G1 (all that marks). Policies, with the files and versions of their models, and every file that a setting names are
   among them: a resumed run reads what the run began with, or is refused before anything is done.
G2 (all that shapes). So are the tokenizer, Faker's version where secrets are invented, and the settings, except those
   about speed and watching.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from tacit.common.files import digest, keyed, new_key
from tacit.config.load import to_flat
from tacit.config.schema import Config
from tacit.data.corpus import read
from tacit.data.fields import DEFAULT_FIELDS, fields_of
from tacit.data.tokenizer import Tokenizer
from tacit.errors import ConfigError, RunError
from tacit.policies.marking import Policies
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.training.checks import invents

_PUBLIC_CORPUS = "data.vocabulary_corpus"
_CORPORA = ("corpus", "data.held_out_corpus", _PUBLIC_CORPUS)
_OTHER_FILES = ("marking.aliases", "marking.coverage")
_TOKENIZER = "tokenizer"
_MOVES_NO_NUMBER = (
    *("execution.device", "execution.microbatch_tokens", "execution.checkpoint_steps", "execution.checkpoint_minutes"),
    *("training.save_steps", "training.report_to"),
)


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Hashes under `key` (hexadecimal) by the name of what they are of."""

    key: str
    parts: dict[str, str]


def identity_of(experiment: Config, policies: Policies) -> RunIdentity:
    """What a new run is made of, to be kept in `private/`; its tokenizer may come later."""
    key = new_key()
    return RunIdentity(key.hex(), _keyed(key, _parts(experiment, policies)))


def check_identity(run: RunFolder, experiment: Config, policies: Policies) -> None:
    """Refuse to resume a run with anything else than it began with."""
    began = run.read_json(RunIdentity, PrivateFile.IDENTITY)
    now = _keyed(bytes.fromhex(began.key), _parts(experiment, policies))
    _check_same({name: known for name, known in began.parts.items() if name != _TOKENIZER}, now)


def check_tokenizer(run: RunFolder, tokenizer: Tokenizer) -> None:
    """Note the tokenizer of a run, or refuse another one than was noted."""
    began = run.read_json(RunIdentity, PrivateFile.IDENTITY)
    learned_from = tokenizer.depends_on  # its hash of the policy is keyed once the run has a key
    now = {_TOKENIZER: f"{tokenizer.hash} {learned_from.source} {learned_from.corpus}"}
    now = _keyed(bytes.fromhex(began.key), now)
    if _TOKENIZER in began.parts:
        _check_same({_TOKENIZER: began.parts[_TOKENIZER]}, now)
    else:
        run.write_json(PrivateFile.IDENTITY, replace(began, parts=began.parts | now))


def _check_same(began: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = sorted(name for name in began.keys() | now.keys() if began.get(name) != now.get(name))
    if changed:
        raise RunError(
            expected="all that the run began with, unchanged: its claim is about that",
            found=f"changed since: {', '.join(changed)}",
            way_out="put it back as it was and resume, or train a new run",
        )


def _keyed(key: bytes, parts: Mapping[str, str]) -> dict[str, str]:
    return {name: keyed(key, name, value) for name, value in parts.items()}


def _parts(experiment: Config, policies: Policies) -> dict[str, str]:
    words = to_flat(experiment)
    files = {name: words[name] for name in (*_CORPORA, *_OTHER_FILES) if words[name] is not None}
    if not experiment.is_new:
        files["model"] = experiment.model
    if experiment.training.eval_steps is not None and experiment.training.eval_on not in ("redacted", "full"):
        files["training.eval_on"] = experiment.training.eval_on
    hashed = {"policy", "marking.conservative_policy", "tokenizer", *files, *_MOVES_NO_NUMBER}
    fields = fields_of(asdict(experiment.data))
    for name in _CORPORA:
        if name in files:
            read(files[name], DEFAULT_FIELDS if name == _PUBLIC_CORPUS else fields)  # says why a file is no corpus
    parts = {name: _digest(name, Path(file)) for name, file in files.items()}
    parts["policy"] = policies.marking.hash
    if policies.conservative is not None:
        parts["conservative policy"] = policies.conservative.hash
    if invents(experiment):
        parts["version of Faker"] = version("faker")
    parts["settings"] = json.dumps({name: words[name] for name in words.keys() - hashed}, sort_keys=True)
    return parts


def _digest(name: str, path: Path) -> str:
    try:
        return digest(path)
    except OSError as error:
        raise ConfigError(
            expected=f"the file of `{name}`, at {path}",
            found=error.strerror or type(error).__name__,
            way_out="check the path",
        ) from error
