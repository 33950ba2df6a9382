"""The commands as a person types them."""

import subprocess
import sys
from pathlib import Path

from tests.pipeline.corpus import write_corpus

ROOT = Path(__file__).parents[2]


def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def pipeline(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return run("-m", "pipeline", *arguments)


def test_preprocessing_imports_neither_torch_nor_the_loader_nor_pandas() -> None:
    """It starts fast and runs on hosts that have no torch; `import pipeline` alone does not even import numpy."""
    code = "import sys, {}; print([m for m in {} if m in sys.modules])"
    heavy = ["torch", "shards.loader", "train", "pandas", "openpyxl"]

    assert run("-c", code.format("pipeline", [*heavy, "numpy", "pyarrow"])).stdout == "[]\n"
    assert run("-c", code.format("pipeline.__main__", heavy)).stdout == "[]\n"


def test_every_public_name_can_be_imported() -> None:
    """They are looked up when asked for; another name is an AttributeError."""
    code = "import pipeline; print(all(getattr(pipeline, name) for name in pipeline.__all__), hasattr(pipeline, 'x'))"

    assert run("-c", code).stdout == "True False\n"


def test_demo_build_and_verify_follow_one_another(tmp_path: Path) -> None:
    """Three commands from nothing to a dataset that is known to be whole."""
    demo = pipeline("demo", "--out", tmp_path, "--classes", "3", "--items", "3")
    options = ("--index", tmp_path / "index.xlsx", "--features", tmp_path / "features", "--shards", tmp_path / "s")
    build = pipeline("build", *options)
    verify = pipeline("verify", "--shards", tmp_path / "s")

    assert [demo.returncode, build.returncode, verify.returncode] == [0, 0, 0]
    assert "18 files of 3 classes" in demo.stdout
    assert "18 rows read, 18 kept, 0 rejected" in build.stdout
    assert "3 classes, 2 shards" in build.stdout
    assert "18 samples in 2 files" in verify.stdout
    assert "all is well" in verify.stdout


def test_options_come_from_a_file_as_well(tmp_path: Path) -> None:
    """--config reads them; an unknown one is refused."""
    write_corpus(tmp_path)
    config = tmp_path / "build.yaml"
    config.write_text(f"index: {tmp_path}/index.xlsx\nfeatures: {tmp_path}/features\nshards: {tmp_path}/s\n")

    dry = pipeline("build", "--config", config, "--dry-run", "--split.val", "0.4")
    assert dry.returncode == 0
    assert "train-00000.tar" in dry.stdout
    assert not (tmp_path / "s").exists()

    config.write_text(config.read_text() + "shard_size: 3\n")
    refused = pipeline("build", "--config", config)
    assert refused.returncode == 2
    assert "shard_size" in refused.stderr


def test_an_error_is_a_sentence_and_not_a_traceback(tmp_path: Path) -> None:
    """Exit status 2; faults found by verify are status 1."""
    write_corpus(tmp_path)
    options = ("--index", tmp_path / "index.xlsx", "--features", tmp_path / "features", "--shards", tmp_path / "s")
    for arguments, says in (
        (("build", *options, "--split.val", "1.5"), "val 1.5"),
        (("build", *options, "--columns.cls", "class"), "no visible sheet has the columns 'class'"),
        (("verify", "--shards", tmp_path / "nowhere"), "no dataset is there"),
    ):
        found = pipeline(*arguments)
        assert found.returncode == 2
        assert says in found.stderr
        assert "Traceback" not in found.stderr

    assert pipeline("build", *options).returncode == 0
    (tmp_path / "s" / "train-00000.tar").unlink()
    verify = pipeline("verify", "--shards", tmp_path / "s")
    assert verify.returncode == 1
    assert "train-00000.tar: the file is missing" in verify.stdout
