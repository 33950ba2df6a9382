"""Writing past the page cache gives the bytes that went in."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.direct import DirectWriter

SHM = Path("/dev/shm")  # a file system in memory, which may know no O_DIRECT


@given(st.lists(st.sampled_from([0, 1, 511, 4096, 10_000, (4 << 20) - 1, 4 << 20, 5_000_001]), max_size=6))
def test_pieces_of_any_size_come_out_end_to_end(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    """Whole pages directly, the tail as usual."""
    path = tmp_path_factory.mktemp("direct") / "x"
    pieces = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    with path.open("wb") as file, DirectWriter(file) as sink:
        for piece in pieces:
            assert sink.write(memoryview(piece)) == len(piece)

    assert path.read_bytes() == b"".join(pieces)
    path.unlink()


@pytest.mark.skipif(not SHM.is_dir(), reason="no /dev/shm here")
def test_a_file_system_without_o_direct_is_written_as_usual() -> None:
    """The flag is a wish."""
    path = SHM / "headrace-test-direct"
    try:
        with path.open("wb") as file, DirectWriter(file) as sink:
            sink.write(b"x" * 5_000_000)
        assert path.read_bytes() == b"x" * 5_000_000
    finally:
        path.unlink(missing_ok=True)
