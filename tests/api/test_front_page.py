"""`import tacit`: light, complete, and every example in a docstring runs."""

import doctest
import inspect
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import tacit
from tacit.api import simulate
from tacit.api.inputs import FieldNames
from tacit.data.fields import DEFAULT_FIELDS
from tacit.errors import RunError

PACKAGE = Path(tacit.__file__).parent
IN_ORDER = ("scan", "plan", "prepare", "train", "load", "Run", "audit", "report", "verify", "PrivateStep")
"""Functions and classes with examples, each with what those before it made."""


def in_a_new_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_tacit_loads_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "numpy", "scipy", "pydantic", "yaml", "rich", "typer")
    assert in_a_new_process(f"import sys, tacit; print([name for name in {heavy!r} if name in sys.modules])") == "[]"


def test_no_name_of_the_front_page_loads_torch() -> None:
    program = "import sys, tacit; [getattr(tacit, name) for name in tacit.__all__]; print('torch' in sys.modules)"
    assert in_a_new_process(program) == "False"


def test_no_api_name_is_a_submodule() -> None:
    """Importing a submodule of that name would replace the function on the package."""
    submodules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(tacit.__all__) & submodules == set()


def test_keywords_of_train_are_the_settings_with_a_flag() -> None:
    """Declared in the schema, spelled out in the signature: neither may drift from the other."""
    from tacit.config.schema import Config
    from tacit.config.setting import every_setting

    flags = {one.flag: one.default for one in every_setting(Config) if one.flag} | {"lora_rank": None}  # no adapters
    known = inspect.signature(tacit.train).parameters
    assert known.keys() - flags == {"corpus", "prepared", "out", "settings", "observe", "field_names"}
    assert {name: flags.pop(name) for name in FieldNames.__annotations__} == {
        f"{part}_field": name for part, name in asdict(DEFAULT_FIELDS).items()
    }
    of_store = dict.fromkeys(("policy", "task", "mode"))  # those of a prepared store, if there is one
    given = {name: known[name].default for name in flags if name != "mechanism"}
    assert given == {name: value for name, value in {**flags, **of_store}.items() if name != "mechanism"}
    assert known["mechanism"].default is inspect.Parameter.empty


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="trian"):
        getattr(tacit, "trian")  # noqa: B009
    assert set(tacit.__all__) <= set(dir(tacit))


def test_python_m_tacit_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "tacit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == tacit.__version__


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every example was run, in order."""
    folder = tmp_path_factory.mktemp("examples")
    simulate("customersim", dialogs=80, out=folder / "corpus.jsonl")
    runner, finder = doctest.DocTestRunner(), doctest.DocTestFinder(recurse=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in IN_ORDER:
            (test,) = finder.find(getattr(tacit, name), name, globs={})
            assert test.examples, f"no example in the docstring of {name}"
            assert runner.run(test).failed == 0, name
    return folder


def test_every_example_of_the_front_page_runs(examples: Path) -> None:
    functions = {name for name in tacit.__all__ if name[0].islower()}
    assert functions | {"PrivateStep", "Run"} == set(IN_ORDER)
    assert (examples / "run" / "release" / "tacit" / "report.html").exists()


def test_a_run_tells_its_parts(examples: Path) -> None:
    run = tacit.load(examples / "run")
    assert run.plan.executions()
    assert run.model.module.training in (True, False)
    assert run.tokenizer.decode(run.tokenizer.encode("abc")) == "abc"
    assert run.generate("Hello", tokens=3, seed=1) == run.generate("Hello", tokens=3, seed=1)
    assert run.to_json()["sentence"] == run.guarantee.sentence()
    assert json.dumps(run.to_json())
    assert run.verify().holds


def test_a_release_that_was_sent_needs_no_private_part(examples: Path, tmp_path: Path) -> None:
    import shutil

    inside = tacit.load(examples / "run")
    shutil.copytree(examples / "run" / "release", tmp_path / "sent")
    run = tacit.load(str(tmp_path / "sent"))
    assert run.verify().holds
    assert run.generate("Hello", tokens=3) == inside.generate("Hello", tokens=3)
    assert run.guarantee.figures == inside.guarantee.figures
    assert run.released_utility == inside.released_utility
    assert run.config["plan"] == {name: value for name, value in inside.config["plan"].items() if value is not None}
    assert "sums" in run.to_json()["utility"]
    with pytest.raises(RunError, match="released_utility"):
        run.utility  # noqa: B018
    with pytest.raises(RunError):
        run.audit()
    with pytest.raises(RunError):
        run.resume()
