"""From what a person writes to a policy: names and one-key definitions, each a row of a table.

    policy: pii
    policy: {any: [pii, {dictionary: names.txt, kind: NAME}]}
    policy: {widened: {policy: digits, to: sentence}}

The argument of a key is a mapping of its fields, or its main field alone with the other fields beside the key.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from tacit.common.serialize import read_yaml
from tacit.errors import ConfigError, PolicyError
from tacit.policies.conservative import conservative
from tacit.policies.detectors.detector import Detected
from tacit.policies.entities import LEVELS, Grammar, Presidio, SpacyEntities, names
from tacit.policies.gliner import Gliner
from tacit.policies.patterns import Capitals, Dictionary, Digits, Everything, Gold, RareWords, Regex
from tacit.policies.pii.policy import KINDS, Pii
from tacit.policies.policy import PIECES, Both, Definition, Either, Forgetful, InRoles, Policy, Widened, Without
from tacit.policies.tagging import BALANCED, default_pipeline, pipeline_of_language
from tacit.policies.token_classifier import TokenClassifier

ALPHA_CONTEXT = "alpha-context"
_WITH_ALPHA_CONTEXT = "tacit.papers.alpha_context:WithAlphaContext"
Value = Any
"""What YAML gives for a field, or what it was turned into."""


def build_policy(definition: Definition, folder: Path | None = None) -> Policy:
    """The policy a definition describes; paths in it are relative to `folder` (by default, where the program runs)."""
    return _build(definition, folder or Path())


def parse_policy(words: str) -> Policy:
    """What `--policy` accepts: a name, names with commas between them (any of them), or a YAML file with `policy:`.

    Of names, the last one decides the kind of what several find. Files that a YAML file names are looked for beside it,
    or in the folder that it calls `beside`.
    """
    if Path(words).suffix in (".yaml", ".yml"):
        path, document = Path(words), read_yaml(Path(words))
        if not isinstance(document, Mapping) or "policy" not in document:
            raise PolicyError(
                expected="a YAML file with the key `policy`",
                found=f"{words!r}, which has no such key at its top",
                way_out="write `policy: pii`, or a definition in place of `pii`",
            )
        return _build(document["policy"], path.parent / str(document.get("beside", "")))
    return reduce(Either, (build_policy(name.strip()) for name in words.split(",")))


def register_policy(name: str, make: Callable[[], Policy]) -> None:
    """From now on, in this process, `policy: name` means what `make` returns: a policy of one's own."""
    if name in {*_NAMED, *_KEYED} or "," in name or Path(name).suffix in (".yaml", ".yml"):
        raise ConfigError("a name for an own policy that is not taken, without a comma", name, "choose another name")
    _OWN[name] = make


@dataclass(frozen=True)
class _Field:
    """One field of a definition: how its value is read, and its value when it is not given."""

    read: Callable[[Value, Path], Value]
    default: Value = ...


@dataclass(frozen=True)
class _Row:
    """One key: its fields, the main one first, and the policy they make."""

    fields: dict[str, _Field]
    build: Callable[..., Policy]


def _build(definition: Value, folder: Path) -> Policy:
    if isinstance(definition, str):
        if definition in _KEYED and definition not in _NAMED:
            raise PolicyError(
                expected=f"`{definition}` with its fields: {', '.join(_KEYED[definition].fields)}",
                found="its name alone",
                way_out=f"write `policy: {{{definition}: ...}}` in a YAML file, and name the file",
            )
        named = _NAMED | _OWN
        if definition not in named:
            raise ConfigError.unknown_name("policy", definition, {*named, *_KEYED})
        return named[definition]()
    if not isinstance(definition, Mapping) or not definition:
        raise _wrong("a policy: a name, or a mapping with the key of a policy", definition)
    keys = [key for key in definition if key in _KEYED]
    if not keys:
        raise ConfigError.unknown_name("policy", str(next(iter(definition))), {*_NAMED, *_KEYED})
    if len(keys) > 1:
        raise PolicyError(
            expected="one policy per mapping",
            found=f"the keys {' and '.join(keys)} side by side",
            way_out="put them in a list under `any` or `all`",
        )
    row = _KEYED[keys[0]]
    return row.build(*_read_fields(keys[0], row, _given(keys[0], row, definition), folder))


def _given(key: str, row: _Row, definition: Mapping[str, Value]) -> dict[str, Value]:
    """The fields as the person gave them, whichever of the two ways they wrote them."""
    beside = {str(name): value for name, value in definition.items() if name != key}
    argument = definition[key]
    main = next(iter(row.fields))
    if isinstance(argument, Mapping) and set(argument) & set(row.fields):
        both = sorted(set(argument) & set(beside))
        if both:
            raise PolicyError(
                expected=f"each field of `{key}` once",
                found=f"`{both[0]}` both under and beside it",
                way_out=f"keep the one under `{key}:`",
            )
        return beside | {str(name): value for name, value in argument.items()}
    return {main: argument} | beside


def _read_fields(key: str, row: _Row, given: dict[str, Value], folder: Path) -> list[Value]:
    for name in given:
        if name not in row.fields:
            raise ConfigError.unknown_name(f"field of the policy `{key}`", name, row.fields)
    values = []
    for name, field in row.fields.items():
        if name in given:
            values.append(field.read(given[name], folder))
        elif field.default is ...:
            raise PolicyError(
                expected=f"the field `{name}` of the policy `{key}`",
                found=f"only {', '.join(given)}" if given else "nothing",
                way_out=f"write `{name}:` under `{key}:`",
            )
        else:
            values.append(field.default)
    return values


def _wrong(expected: str, found: Value) -> PolicyError:
    return PolicyError(
        expected=expected,
        found="nothing" if found is None else f"{type(found).__name__} {found!r}",
        way_out="correct the definition of the policy",
    )


def _one(expected: str, *kinds: type) -> Callable[[Value, Path], Value]:
    """Reads a value of these types, and no text that is empty."""

    def read(value: Value, _: Path) -> Value:
        if type(value) not in kinds or value == "":
            raise _wrong(expected, value)
        return value

    return read


_text = _one("text that is not empty", str)
_flag = _one("true or false", bool)
_whole = _one("a whole number", int)


def _texts(value: Value, _: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong("a list of texts", value)
    return tuple(value)


def _texts_by_text(value: Value, _: Path) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) and text for text in (*value, *value.values())):
        raise _wrong("a mapping of texts to texts, such as `{GIVENNAME: PERSON}`", value)
    return dict(value)


def _labels(value: Value, folder: Path) -> dict[str, str]:
    """Labels in a list, or each with its kind."""
    if isinstance(value, list):
        return dict.fromkeys(_texts(value, folder), "")
    return _texts_by_text(value, folder)


def _pipeline(pipeline: str | None, language: str | None) -> str:
    if pipeline is not None and language is not None:
        raise PolicyError("`pipeline` or `language`", "both", "leave out `language`: a pipeline has its own")
    return pipeline or (default_pipeline() if language is None else pipeline_of_language(language))


def _gliner(folder: str, labels: dict[str, str], threshold: float) -> Policy:
    return Gliner(folder, tuple(labels), threshold, {label: kind for label, kind in labels.items() if kind})


def _path(value: Value, folder: Path) -> Path:
    return folder / str(_text(value, folder))


def _name_or_folder(value: Value, folder: Path) -> str:
    path = _path(value, folder)
    return str(path) if path.is_dir() else str(value)


def _folder(value: Value, folder: Path) -> str:
    return str(_path(value, folder))


def _number(value: Value, folder: Path) -> float:
    return float(_one("a number", int, float)(value, folder))


def _policies(value: Value, folder: Path) -> list[Policy]:
    if not isinstance(value, list) or not value:
        raise _wrong("a list of policies", value)
    return [_build(item, folder) for item in value]


def _two_policies(value: Value, folder: Path) -> list[Policy]:
    policies = _policies(value, folder)
    if len(policies) != 2:
        raise _wrong("a list of two policies, the second to be taken from the first", f"{len(policies)} policies")
    return policies


def _widened(policy: Policy, to: str, model: Path | None, alpha: float | None, trained_on: str | None) -> Policy:
    if to == ALPHA_CONTEXT:
        found: Policy = resolve_name(_WITH_ALPHA_CONTEXT).of(
            policy, model, 0.01 if alpha is None else alpha, trained_on
        )
        return found
    if to not in PIECES:
        raise ConfigError.unknown_name("piece of text to widen to", to, {*PIECES, ALPHA_CONTEXT})
    if (model, alpha, trained_on) != (None, None, None):
        raise PolicyError(
            expected=f"`model`, `alpha` and `trained_on` with `to: {ALPHA_CONTEXT}` alone",
            found=f"one of them with `to: {to}`",
            way_out="leave it out",
        )
    return Widened(policy, to)


_NAMED: dict[str, Callable[[], Policy]] = {
    "any-capital": Capitals,
    "any-digit": Digits,
    "conservative": lambda: conservative(None),
    "digits": Digits,
    "entities": lambda: SpacyEntities(default_pipeline()),
    "everything": Everything,
    "gold": Gold,
    "grammar": lambda: Grammar(default_pipeline()),
    "names": names,
    "pii": Pii,
}

_OWN: dict[str, Callable[[], Policy]] = {}

_KEYED: dict[str, _Row] = {
    "all": _Row({"policies": _Field(_policies)}, lambda policies: reduce(Both, policies)),
    "any": _Row({"policies": _Field(_policies)}, lambda policies: reduce(Either, policies)),
    "conservative": _Row({"common_words": _Field(_path)}, conservative),
    "detector": _Row(
        {"folder": _Field(_path), "level": _Field(_text, "sentence"), "kind": _Field(_text, "SENSITIVE")},
        Detected.from_folder,
    ),
    "dictionary": _Row(
        {"file": _Field(_path), "kind": _Field(_text, "LISTED"), "ignore_case": _Field(_flag, True)},
        Dictionary.from_file,
    ),
    "forgetful": _Row({"policy": _Field(_build), "miss_rate": _Field(_number), "seed": _Field(_whole, 0)}, Forgetful),
    "gliner": _Row(
        {"folder": _Field(_folder), "labels": _Field(_labels), "threshold": _Field(_number, BALANCED)}, _gliner
    ),
    "grammar": _Row(
        {"pipeline": _Field(_name_or_folder, None), "levels": _Field(_texts, LEVELS), "language": _Field(_text, None)},
        lambda pipeline, levels, language: Grammar(_pipeline(pipeline, language), levels),
    ),
    "names": _Row(
        {"pipeline": _Field(_name_or_folder, None), "language": _Field(_text, None)},
        lambda pipeline, language: names(_pipeline(pipeline, language)),
    ),
    "pii": _Row({"kinds": _Field(_texts, KINDS)}, Pii),
    "presidio": _Row(
        {
            "pipeline": _Field(_name_or_folder, None),
            "kinds": _Field(_texts, None),
            "threshold": _Field(_number, BALANCED),
        },
        lambda pipeline, kinds, threshold: Presidio(pipeline or default_pipeline(), kinds, threshold),
    ),
    "rare-words": _Row({"common_words": _Field(_path)}, RareWords.from_file),
    "regex": _Row({"pattern": _Field(_text), "kind": _Field(_text, "PATTERN")}, Regex),
    "roles": _Row({"of": _Field(_texts), "policy": _Field(_build)}, InRoles),
    "spacy": _Row(
        {"pipeline": _Field(_name_or_folder, None), "kinds": _Field(_texts, None), "language": _Field(_text, None)},
        lambda pipeline, kinds, language: SpacyEntities(_pipeline(pipeline, language), kinds),
    ),
    "token-classifier": _Row(
        {
            "folder": _Field(_folder),
            "kinds": _Field(_texts, None),
            "threshold": _Field(_number, BALANCED),
            "plain_below": _Field(_number, 0.0),
            "labels": _Field(_texts_by_text, {}),
        },
        TokenClassifier,
    ),
    "widened": _Row(
        {
            "policy": _Field(_build),
            "to": _Field(_text),
            "model": _Field(_path, None),
            "alpha": _Field(_number, None),
            "trained_on": _Field(_text, None),
        },
        _widened,
    ),
    "without": _Row({"policies": _Field(_two_policies)}, lambda policies: Without(*policies)),
}
