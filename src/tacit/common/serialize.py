"""YAML and JSON that people write or that come from elsewhere, read strictly: what could be misread is refused.

Every key is text and is given once; a date is text; documents are bounded in size and depth, also once their aliases
are written out; no string has a NUL character or half a surrogate pair.

Frozen dataclasses as JSON, both ways, and settings from a person's words: strictly, what is not known is refused.
"""

import json
import re
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from tacit.common.files import read_bytes, read_text, why
from tacit.errors import ConfigError

LARGEST_SEED = 2**63 - 1
LARGEST_YAML = 1_000_000
DEEPEST = 100
MOST_NODES = 100_000
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_OLD_NUMBER = re.compile(r"[-+]?(?:0[0-7_]+$|[0-9_]+:)")
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")


def read_yaml(path: Path) -> Any:  # noqa: ANN401
    """What a YAML file of a person holds."""
    try:
        return parse_yaml(read_text(path, LARGEST_YAML))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"a YAML file at {path}", why(error), "check the path, and save it as UTF-8") from error
    except NotStrict as error:
        raise _refused(path, str(error)) from error


class NotStrict(ValueError):
    """A document that could be misread, or cannot be read; the message is for people and quotes keys at most."""


def parse_yaml(text: str) -> Any:  # noqa: ANN401
    """What YAML in `text` holds; NotStrict when it could be misread."""
    loader = None
    try:
        loader = _Strict(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotStrict(f"{error.problem or error.context}{'' if mark is None else _line(mark)}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise NotStrict("a character that YAML does not allow") from error
    finally:
        if loader is not None:
            loader.dispose()


def read_json(path: Path) -> Any:  # noqa: ANN401
    """What a JSON file holds; OSError or ValueError when it cannot be read."""
    return parse_json(read_bytes(path))


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401
    """What JSON in `text` holds; ValueError when it is broken, too deep, has a number without end or a key twice."""
    try:
        return _JSON.decode(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except RecursionError:
        raise NotStrict("JSON nested too deeply") from None


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotStrict("a key twice in one JSON object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise NotStrict(f"{name}, which JSON does not have")


_JSON = json.JSONDecoder(object_pairs_hook=_each_key_once, parse_constant=_no_constant)


class _Strict(yaml.SafeLoader):
    """PyYAML's safe loader, with everything refused that it would quietly make something else of."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (overrides an attribute of PyYAML)
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise _problem(f"more than {DEEPEST} levels of nesting", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        is_alias = self.check_event(yaml.AliasEvent)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            self._size(node) if is_alias else self._check(node)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        return super().construct_mapping(node, deep=True)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401
        try:
            value = super().construct_object(node, deep=True)
        except (ValueError, OverflowError) as error:
            if isinstance(error, yaml.YAMLError):
                raise
            raise _problem("a number that cannot be read, such as one with thousands of digits", node) from error
        if node.tag in _NUMBERS and _OLD_NUMBER.match(node.value):
            raise _problem(f"{node.value}, which YAML reads in base 8 or 60: write it in quotes, or in base 10", node)
        if isinstance(value, float) and value != value:
            raise _problem("a number that is none (.nan)", node)
        if isinstance(value, int) and abs(value) > LARGEST_SEED:
            raise _problem("a whole number of more than 64 bits", node)
        return value

    def _check(self, node: yaml.Node) -> None:
        """Looks at one node whose children were looked at before."""
        size = 1
        if node.tag not in _TAGS:
            raise _problem(f"the tag {node.tag!r}", node)
        if isinstance(node, yaml.ScalarNode) and _IMPOSSIBLE.search(node.value):
            raise _problem("a NUL character or half a surrogate pair", node)
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            size += sum(self._size(key) + self._size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(self._size(item) for item in node.value)
        if size > MOST_NODES:
            raise _problem(f"more than {MOST_NODES:,} values, its aliases written out", node)
        self._sizes[id(node)] = size

    def _size(self, node: yaml.Node) -> int:
        if id(node) not in self._sizes:
            raise _problem("an alias to what it is part of", node)
        return self._sizes[id(node)]


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            continue
        if key.tag != "tag:yaml.org,2002:str":
            raise _problem("a key that is not text: write it in quotes if it is meant", key)
        if key.value in seen:
            raise _problem(f"the key {key.value!r} twice", key)
        seen.add(key.value)


def _problem(problem: str, where: Any) -> yaml.MarkedYAMLError:  # noqa: ANN401  (a node, or a mark of PyYAML)
    return yaml.MarkedYAMLError(problem=problem, problem_mark=getattr(where, "start_mark", where))


def _line(mark: Any) -> str:  # noqa: ANN401
    return f" in line {mark.line + 1}"


def _refused(path: Path, found: str) -> ConfigError:
    return ConfigError(
        expected=f"YAML in {path} that can be read in one way only",
        found=found,
        way_out="correct it there: every key once and as text, no characters or tags of other programs",
    )


T = TypeVar("T")
Settings = TypeVar("Settings", bound=BaseModel)


class Fault(NamedTuple):
    """What is wrong with a value that pydantic refused: where it is, why, and what was found there."""

    name: str
    message: str
    found: str


def first_fault(error: ValidationError) -> Fault:
    """The first fault, in words for an error of ours."""
    fault = error.errors(include_url=False)[0]
    message = f"{fault['msg'][0].lower()}{fault['msg'][1:]}"
    found = "nothing" if fault["type"] == "missing" else repr(fault["input"])
    return Fault(".".join(map(str, fault["loc"])), message, found)


def to_json(value: object) -> str:
    """`value` as indented JSON."""
    return TypeAdapter(type(value)).dump_json(value, indent=2).decode()


def json_values(value: object) -> Any:  # noqa: ANN401
    """`value` as what JSON has: dictionaries, lists, texts and numbers."""
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def from_json(kind: type[T], text: str | bytes) -> T:
    """The value of type `kind` that `to_json` wrote."""
    try:
        value = TypeAdapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        fault = first_fault(error)
        found = f"{fault.message} at {fault.name or 'the top'}"  # not the value: it may be protected
        way_out = "use a file that tacit wrote, unchanged"
        raise ConfigError(f"a {kind.__name__} as JSON", found, way_out) from None
    return value


def from_words(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """`given` as settings; an unknown name is answered with the nearest one, an impossible value with its meaning."""
    for name, value in given.items():
        if name not in kind.model_fields:
            raise ConfigError.unknown_name("setting", str(name), kind.model_fields)
        if isinstance(value, bool):
            raise ConfigError(f"{name}: a number or a text", str(value).lower(), "no setting here takes a boolean")
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        fault = first_fault(error)
        way_out = kind.model_fields[fault.name.split(".")[0]].description or "correct it"
        raise ConfigError(f"{fault.name}: {fault.message}", fault.found, way_out) from None


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `under`, setting by setting inside sections such as `plan`."""
    result = dict(under)
    for name, value in over.items():
        below = result.get(name)
        result[name] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def dotted(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Groups as dotted names: {"plan": {"epsilon": 2}} is {"plan.epsilon": 2}."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= dotted(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {f"{prefix}{name}": value}
    return found


def map_strings(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401
    """`value` with every string inside its mappings and lists changed."""
    if isinstance(value, dict):
        return {name: map_strings(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [map_strings(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value
