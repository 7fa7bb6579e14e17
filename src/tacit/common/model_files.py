"""The files of a local Hugging Face folder, checked before a library reads them: no pickles, no code, nothing outside.

Only config.json and the headers of the weights are read.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit.common.files import open_file, why
from tacit.common.serialize import read_json
from tacit.errors import ModelError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_ADAPTERS = "adapter_config.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_OTHERS = (".gguf", ".h5", ".msgpack", ".onnx", ".safetensors")
_MOST_LAYERS = 1_000
_LARGEST_SIZE = 2**31 - 1
_FLOATS = ("F64", "F32", "F16", "BF16")


def check_files(folder: Path) -> dict[str, Any]:
    """What config.json holds; refused where files are missing, damaged, or would need what tacit never does."""
    try:
        if (folder / _ADAPTERS).exists():
            raise _only_adapters(folder)
        files = _weight_files(folder)
        config = read_json(folder / "config.json")
        for file in files:
            open_file(file).close()
    except (OSError, ValueError) as error:
        raise refused(folder, f"files that cannot be read: {why(error)}") from error
    if not isinstance(config, dict):
        raise refused(folder, "a config.json that is not a JSON object")
    for name, value in _numbers(config):
        below = value < 0 and ("head" in name or "layer" in name)
        if below or abs(value) > (_MOST_LAYERS if "layer" in name else _LARGEST_SIZE):
            raise refused(folder, f"{name} of {value:.3g} in config.json")
    for file in files:
        _check_header(folder, file)
    return config


def refused(folder: Path, found: str) -> ModelError:
    """The error for a folder that is not whole."""
    return ModelError(
        expected=f"a whole model with config.json and safetensors weights in {folder}",
        found=found,
        way_out="save it anew with save_pretrained(folder)",
    )


def _weight_files(folder: Path) -> list[Path]:
    """The files that the weights are in: one, or those that the index names."""
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if not (folder / INDEX).exists():
        raise _no_weights(folder)
    index = read_json(folder / INDEX)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise refused(folder, f"no weight_map in {INDEX}")
    names = sorted(set(places.values()))
    outside = [name for name in names if Path(name).name != name or not name.endswith(".safetensors")]
    if outside:
        raise refused(folder, f"{outside[0]!r} in {INDEX}, which is no safetensors file of this folder")
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise refused(folder, f"{len(missing)} of {len(names)} files of {INDEX} missing, such as {missing[0]}")
    return [folder / name for name in names]


def _check_header(folder: Path, file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as opened:
            kinds = {name: opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise refused(folder, f"a damaged or incomplete {file.name} ({str(error)[:120]})") from error
    odd = [f"{name} ({kind})" for name, kind in kinds.items() if name.endswith(".weight") and kind not in _FLOATS]
    if odd:
        raise ModelError(
            expected=f"weights in float32, bfloat16 or float16 in {folder}",
            found=f"{odd[0]} and {len(odd) - 1} more" if len(odd) > 1 else odd[0],
            way_out="use the model that was not quantized",
        )


def _no_weights(folder: Path) -> ModelError:
    """The error for a folder without safetensors of a model: what it has instead is named."""
    names = sorted(path.name for path in folder.iterdir())
    pickled = [name for name in names if name.endswith(_PICKLES)]
    if pickled:
        return ModelError(
            expected=f"weights in {WEIGHTS} in {folder}",
            found=f"{pickled[0]}, a pickle, which can run any code when it is read",
            way_out="convert it where you trust it: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new)",
        )
    others = [name for name in names if name.endswith(_OTHERS)]
    return refused(folder, f"no safetensors named {WEIGHTS}{f', but {others[0]}' if others else ''}")


def _only_adapters(folder: Path) -> ModelError:
    return ModelError(
        expected=f"a whole model in {folder}",
        found="adapters (adapter_config.json), which change a base model that is elsewhere",
        way_out="merge them into their base first (merge_and_unload, then save_pretrained), and use that folder",
    )


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every whole number of a configuration, also of configurations inside it."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int):
            yield name, value
