"""The rules of the house, each held by a test: who imports whom, how large things get, what import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("pipeline", "shards", "train")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TORCH_FILES = {"shards/loader.py", "shards/transfer.py", "pipeline/formats/pt.py"}


def imports_of(path: Path) -> set[str]:
    """Top-level names of every module that a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def modules_after(code: str) -> set[str]:
    """Names in sys.modules of a fresh interpreter that has run `code`."""
    script = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["pipeline", "pipeline.build", "pipeline.verify", "shards", "shards.reader"])
def test_preprocessing_and_the_format_run_without_torch(package: str) -> None:
    """A host without torch can build and read shards, and starts fast."""
    assert "torch" not in modules_after(f"import {package}")


def test_torch_is_imported_in_its_rooms_only() -> None:
    """`train`, what `shards.loader` is made of, and the reader of torch's own files."""
    found = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(name.split(".")[0] == "torch" for name in imports_of(path)) and path.parts[-2] != "train"
    }

    assert {name for name in found if not name.startswith("train/")} == TORCH_FILES


def test_only_the_index_reads_workbooks() -> None:
    """Calamine is imported by one file of `pipeline`, and nobody else knows Excel's reader."""
    readers = [path for path in SOURCES if "python_calamine" in imports_of(path)]

    assert len(readers) == 1
    assert readers[0].parent.name == "pipeline"


def test_only_the_world_reads_the_environment_of_torchrun() -> None:
    """RANK, WORLD_SIZE and LOCAL_RANK are read in train/world.py and nowhere else."""
    words = ('"RANK"', '"WORLD_SIZE"', '"LOCAL_RANK"')
    found = {str(path.relative_to(ROOT)) for path in SOURCES if any(word in path.read_text() for word in words)}

    assert found == {"train/world.py"}


def test_only_main_files_parse_arguments() -> None:
    """Arguments are parsed by the `__main__.py` files alone."""
    found = {path.name for path in SOURCES if "jsonargparse" in imports_of(path)}

    assert found == {"__main__.py"}


def test_files_and_functions_stay_small() -> None:
    """No file above 300 lines, no function above 50; the median file at most 150."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    functions = {
        f"{path.relative_to(ROOT)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }

    assert {name: lines for name, lines in lengths.items() if lines > 300} == {}
    assert {name: lines for name, lines in functions.items() if lines > 50} == {}
    assert sorted(lengths.values())[len(lengths) // 2] <= 150


def test_no_file_has_a_name_that_says_nothing() -> None:
    """A room called `utils` collects everything."""
    assert not {path.stem for path in SOURCES} & {"utils", "util", "common", "helpers", "helper", "base", "manager"}


def test_every_test_states_a_fact() -> None:
    """Each test function of the project has a docstring."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]

    assert silent == []
