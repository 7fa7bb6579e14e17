"""Which package may import from which; and that docs/architecture.md lists them."""

import ast
import re
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest
from hypothesis import settings

import tacit

PACKAGE = Path(tacit.__file__).parent
ROOT = PACKAGE.parent.parent

LAYERS: dict[str, str] = {  # a package imports from its own row only, itself included
    "errors": "",
    "common": "errors",
    "privacy": "errors common",
    "config": "errors common privacy",
    "mechanisms": "errors common privacy config",
    "data": "errors common privacy config",
    "simulation": "errors common data",
    "policies": "errors common privacy config data",
    "runs": "errors common privacy config mechanisms data policies",
    "models": "errors common privacy config data runs",
    "training": "errors common privacy config mechanisms data policies models runs",
    "audits": "errors common privacy config data policies models runs",
    "reports": "errors common privacy config mechanisms policies runs audits",
    "papers": "errors common privacy config mechanisms data policies models training audits runs reports",
    "sweeps": "errors common privacy config data policies training audits reports runs simulation",
    "__main__": "cli",
    "cli": "errors common config api __version__",  # but for types of results
}
EXCEPTIONS: set[tuple[str, str]] = set()  # to be cut
THEORY = ("privacy", "mechanisms")
THEORY_LIBRARIES = {"numpy", "scipy", "dp_accounting", "pydantic", "yaml"}
HEAVY = {"torch", "transformers", "peft", "safetensors"}
WITH_TORCH = ("models", "training", "audits", "papers", "sweeps", "cli", "api")
WITH_TORCH_TOO = {"data/batches.py", "data/labels.py", "data/ownership.py", "runs/weights.py"}
LATE = {  # when first asked
    "common/libraries.py",
    "common/model_files.py",
    "policies/detectors/encoder.py",
    "policies/detectors/paraphrase.py",
    "policies/drafts.py",
    "policies/gliner.py",
    "policies/token_classifier.py",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(module: Path) -> str:
    """The top-level name under `tacit` that a file belongs to."""
    first = module.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


class _WithoutTypes(ast.NodeTransformer):
    """Leaves out what only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def imports_of(module: Path, types: bool = True) -> set[str]:
    """Full dotted names of everything the file imports, wherever in the file."""
    found: set[str] = set()
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in ast.walk(tree if types else _WithoutTypes().visit(tree)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def name_of(module: Path) -> str:
    return str(module.relative_to(PACKAGE))


@pytest.mark.parametrize("module", modules(), ids=name_of)
def test_packages_import_from_the_layers_below(module: Path) -> None:
    part = part_of(module)
    if part not in LAYERS:
        assert part in ("", "api"), f"give {part} a row in LAYERS"
        return
    imported = imports_of(module, types=part != "cli")
    ours = {name.split(".")[1] for name in imported if name.startswith("tacit.")}
    excepted = {name.split(".")[1] for file, name in EXCEPTIONS if file == name_of(module)}
    assert ours - {part} - set(LAYERS[part].split()) == excepted


@pytest.mark.parametrize("module", modules(), ids=name_of)
def test_libraries_keep_to_the_list(module: Path) -> None:
    libraries = {name.split(".")[0] for name in imports_of(module)}
    if name_of(module) in LATE:
        text = module.read_text(encoding="utf-8")
        assert not re.search(r"^(import|from) (torch|transformers)", text, flags=re.MULTILINE)
    elif not name_of(module).startswith(WITH_TORCH) and name_of(module) not in WITH_TORCH_TOO:
        assert not libraries & HEAVY
    if part_of(module) in THEORY:
        assert libraries - set(sys.stdlib_module_names) - {"tacit"} <= THEORY_LIBRARIES


def test_every_error_is_in_the_tree() -> None:
    text = (PACKAGE / "errors.py").read_text(encoding="utf-8")
    drawn = set(re.findall(r"[├└]── (\w+)", text))
    assert drawn == set(re.findall(r"^class (\w+)\(TacitError\)", text, flags=re.MULTILINE))
    elsewhere = [module for module in modules() if module.name != "errors.py" and "(TacitError)" in module.read_text()]
    assert elsewhere == []


def test_modules_fit_in_a_sitting() -> None:
    long = {
        str(module.relative_to(PACKAGE)): n for module in modules() if (n := len(module.read_text().splitlines())) > 400
    }
    assert long == {}


def test_architecture_page_lists_every_package_with_a_line() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^([a-z_/]+/) +\S", page.split("```")[1], flags=re.MULTILINE))
    packages = {str(module.parent.relative_to(PACKAGE)) + "/" for module in modules() if module.name == "__init__.py"}
    assert listed == packages - {"./"}


def test_architecture_page_names_what_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+(?:\.\w+)+)`", page)
    named = [name for name in named if (PACKAGE / name.split(".")[0]).is_dir()]
    assert len(named) > 20
    for name in named:
        resolve_name(f"tacit.{name}")
    for file in re.findall(r"`([a-z]+/[\w/]+\.py)`", page):
        assert (PACKAGE / file).is_file() or (ROOT / file).is_file(), file


def test_few_modules_are_outside_a_package() -> None:
    assert len([module for module in modules() if module.parent == PACKAGE]) <= 8


def test_exports_are_what_init_says() -> None:
    assert sorted(tacit.__all__) == list(tacit.__all__)
    for name in tacit.__all__:
        assert hasattr(tacit, name), name
    public = {name for name in vars(tacit) if not name.startswith("_")}
    submodules = {part_of(module) for module in modules()}
    assert public - submodules <= set(tacit.__all__)


def test_nothing_names_this_machine_or_where_packages_come_from() -> None:
    for name in ("requirements.lock", "pyproject.toml", "Makefile"):
        assert "://" not in (ROOT / name).read_text(encoding="utf-8"), name
    here = (str(ROOT), str(Path.home()))
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("benchmarks/*.py")]:
        text = file.read_text(encoding="utf-8")
        assert not any(place in text for place in here if len(place) > 4), file


def test_hypothesis_repeats_itself_unless_asked_to_explore() -> None:
    """Catches a `make test` that fails by luck, and a `make test-all` whose failures cannot be repeated."""
    assert settings.get_profile("fixed").derandomize
    assert not settings.get_profile("explore").derandomize
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest-all:")
    assert "explore" not in recipes[0]
    assert "SEED=$$seed" in recipes[2]
    assert "--hypothesis-profile=explore --hypothesis-seed=$$seed" in recipes[2]
