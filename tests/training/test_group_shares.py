"""A base model that ranks share (`execution.fsdp: base`) trains as one that every rank has whole; what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from forked_ranks import run_in_ranks
from rank_shares import CASES, QUICK, RUNS, make_bases
from runs import experiment, quiet, write_corpus
from tacit.common.machine import let_go, mapped_files
from tacit.config.model_schema import LoRAConfig
from tacit.errors import ConfigError
from tacit.models.causal_lm import CausalLM
from tacit.models.shards import blocks_of, cut_on_arrival, share_of
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.utility import Utility
from tacit.runs.verify import verify
from tacit.runs.weights import read_adapters
from tacit.training.stages import train

SIZES = (2, 3)


def read(folder: Path, size: int, rank: int, kind: str, case: str) -> dict[str, Tensor]:
    return load_file(folder / f"{size}-{rank}-{kind}-{case}.safetensors")


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor], of_numbers: float = 1e-6) -> None:
    """What moves within 1e-6; sums of losses and norms, which are large, within a share of them."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        relative = of_numbers if name in ("facts", "measured") else 0
        torch.testing.assert_close(found[name], value, rtol=relative, atol=1e-6)


def assert_shared_as_whole(folder: Path, size: int, case: str) -> None:
    first, *others = (read(folder, size, rank, "shared", case) for rank in range(size))
    for other in others:
        assert all(torch.equal(value, other[name]) for name, value in first.items())
    assert_near(first, read(folder, size, 0, "whole", case))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    run_in_ranks("rank_shares:quick_cases", folder, 2)
    return folder


@pytest.mark.parametrize("case", QUICK)
def test_shares_train_as_the_whole_model_does(case: str, quick: Path) -> None:
    """Users, an empty draw, a rank without rows, and one huge record; catches ranks that wait for each other."""
    assert_shared_as_whole(quick, 2, case)


def test_cases_differ(quick: Path) -> None:
    """Control of the test above: adapters that never moved would be equal, too."""
    name = "model.layers.1.mlp.down_proj.lora_A.default.weight"
    found = [read(quick, 2, 0, "shared", case)[name] for case in QUICK]
    assert all(not torch.equal(one, other) for number, one in enumerate(found) for other in found[:number])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    run_in_ranks("rank_shares:every_case", folder, 1, *SIZES)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_shares_of_two_and_three_ranks_agree_with_one_process(case: str, results: Path) -> None:
    for size in SIZES:
        assert_shared_as_whole(results, size, case)
        assert_near(read(results, size, 0, "shared", case), read(results, 1, 0, "whole", case), 1e-5)


@pytest.mark.slow
def test_ranks_with_other_files_of_the_base_stop(tmp_path: Path) -> None:
    run_in_ranks("rank_shares:other_bases", tmp_path, 2)
    assert all((tmp_path / f"stopped {rank}").exists() for rank in range(2))


@pytest.mark.slow
def test_a_rank_that_does_not_join_the_passes_of_others_is_noticed(tmp_path: Path) -> None:
    """Control of the draws with nothing for a rank: they need what makes it join."""
    with pytest.raises(AssertionError, match="ranks failed"):
        run_in_ranks("rank_shares:without_the_others", tmp_path, 2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run_in_ranks("rank_shares:every_run", folder, 2)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_whole_runs_with_shares_end_with_the_same_release(name: str, runs: Path) -> None:
    """Choosing, an encoder, checkpointed activations; evaluation, resuming and the release are part of each run."""
    whole, shared = (RunFolder.view(runs / f"{name}-{fsdp}") for fsdp in ("none", "base"))
    assert verify(shared.folder).holds
    assert shared.path(ReleaseFile.PLAN).read_text() == whole.path(ReleaseFile.PLAN).read_text()
    first, second = (read_adapters(run) for run in (whole, shared))
    assert_near(second, first)
    described = [run.read_json(dict, ReleaseFile.ARCHITECTURE)["base"]["sha256"] for run in (whole, shared)]
    assert described[0] == described[1]
    worth, other = (run.read_json(Utility, PrivateFile.UTILITY) for run in (whole, shared))
    assert worth.labels == other.labels
    assert worth.overall.nats == pytest.approx(other.overall.nats, rel=1e-6)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases")
    make_bases(folder)
    return folder


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"lora": {"rank": 2}}, "several processes"),
        ({}, "adapters"),
        ({"model": "lstm", "tokenizer": "bytes"}, "a model from a folder"),
        ({"model": "gpt", "tokenizer": "bytes", "lora": {"rank": 2}}, "a model from a folder"),
        ({"lora": {"rank": 2, "layers_to_transform": [1]}, "cache_activations_gb": 1}, "kept activations"),
        ({"lora": {"rank": 2}, "minutes": 1}, "minutes"),
    ],
)
def test_shares_are_refused_where_they_make_no_sense(
    more: dict[str, Any], expected: str, bases: Path, tmp_path: Path
) -> None:
    words = {"epochs": None} if "minutes" in more else {}
    settings = {"model": str(bases / "llama"), "tokenizer": "bytes", "fsdp": "base", **more}
    with pytest.raises(ConfigError, match=expected):
        train(experiment(write_corpus(tmp_path, 20), "plain", words, **settings), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 10])
def test_a_share_is_what_fsdp_gives_a_rank(rows: int, size: int) -> None:
    weight = torch.arange(rows * 2.0).view(rows, 2)
    chunks = [*torch.chunk(weight, size), *[weight[:0]] * size][:size]
    assert all(torch.equal(share_of(weight, rank, size), chunk) for rank, chunk in enumerate(chunks))


def test_weights_are_cut_as_they_arrive(bases: Path) -> None:
    """Layers have shapes alone until they are shared; everything else is as it was loaded."""
    plain = CausalLM.from_folder(bases / "llama", LoRAConfig(2)).module
    with cut_on_arrival(1, 2) as kept:
        cut = CausalLM.from_folder(bases / "llama", LoRAConfig(2)).module
    inside = {id(value) for block in blocks_of(cut) for value in block.parameters()}
    expected = dict(plain.named_parameters())
    seen = 0
    for path, layer in cut.named_modules():
        for name, value in layer.named_parameters(recurse=False):
            whole, share = expected[f"{path}.{name}"], kept.take((layer, name))
            assert value.shape == whole.shape
            if share is not None:
                assert id(value) in inside
                assert value.untyped_storage().nbytes() == value.element_size()
                assert torch.equal(share, whole[-(-len(whole) // 2) :])
                seen += 1
            elif "lora_" not in path:
                assert torch.equal(value, whole)
    assert seen == 2 * 9
    assert not [value for value in nn.Linear(2, 2).parameters() if value.stride() == (0, 0)]  # no hook is left


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_pages_of_a_mapped_file_are_given_back_and_read_again(tmp_path: Path) -> None:
    file, before = tmp_path / "some.numbers", mapped_files(".numbers")
    size = 1 << 22
    torch.arange(size, dtype=torch.float32).numpy().tofile(file)
    mapped = torch.from_file(str(file), shared=False, size=size)
    total = float(mapped.double().sum())
    (where,) = mapped_files(".numbers") - before
    full = _resident(where)
    let_go([where])
    assert _resident(where) < full / 10
    assert float(mapped.double().sum()) == total


def _resident(where: tuple[int, int]) -> int:
    """Kilobytes of a mapping that are in memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"{where[0]:x}-"))
    return int(next(line for line in lines[start:] if line.startswith("Rss:")).split()[1])
