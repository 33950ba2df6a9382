"""What values are stored as, and what a cast says it has cost."""

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.features import FeatureFolder, Reading
from pipeline.values import CastLoss, cast, check_finite
from shards.errors import ConfigError, DataError
from shards.schema import storage_dtype

TARGETS = ("float16", "bfloat16", "float32")
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=64),
    st.sampled_from([0.0, 1e-8, 1e-45, 7e4, 65519.9, 65520.0, 1e39, -3.4e38, 1 / 3]),
)


def exactly(array: NDArray[Any]) -> list[float]:
    return [float(value) for value in array.reshape(-1)]


@given(st.lists(numbers, min_size=1, max_size=40), st.sampled_from(["<f4", "<f8", ">f8"]), st.sampled_from(TARGETS))
def test_a_casts_loss_is_what_arithmetic_value_by_value_finds(values: list[float], source: str, target: str) -> None:
    """Python's own doubles are the judge."""
    with np.errstate(over="ignore"):
        array = np.array(values, source)
    array = array[np.isfinite(array)].reshape(-1, 1)
    if not len(array):
        return
    out = np.empty(array.shape, storage_dtype(target))

    loss = cast(array, out)

    pairs = list(zip(exactly(array), exactly(out), strict=True))
    stayed = [(before, after) for before, after in pairs if math.isfinite(after)]
    errors = [(abs(after - before), abs(before)) for before, after in stayed]
    assert loss.values == len(pairs)
    assert loss.overflowed == len(pairs) - len(stayed)
    assert loss.underflowed == sum(before != 0 and after == 0 for before, after in stayed)
    assert loss.absolute == pytest.approx(max((e for e, _ in errors), default=0), rel=1e-6, abs=0)
    assert loss.relative == pytest.approx(max((e / s for e, s in errors if s), default=0), rel=1e-6, abs=0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["i1", "u1", "<i2", ">i4", "<u4", "<i8", "<u8"])
def test_integers_are_cast_when_a_type_is_named(tmp_path: Path, source: str, target: Any) -> None:
    """The largest values of the type among them: an error of one in 2**63 is still an error."""
    limits = np.iinfo(source)
    array = np.array([[0, 1], [limits.min, limits.max]], source)
    np.save(tmp_path / "x.npy", array)
    files = FeatureFolder(tmp_path, Reading(dtype=target, allow_overflow=True))

    found = files.read(files.look_at("x.npy"))

    assert found.dtype == storage_dtype(target)
    assert exactly(found)[:2] == [0, 1]
    stored = float(found[1, 1])
    assert files.loss.overflowed == np.count_nonzero(~np.isfinite(found))
    if math.isfinite(stored):
        assert files.loss.absolute >= abs(int(stored) - limits.max)


def test_values_that_do_not_fit_stop_unless_that_is_allowed(tmp_path: Path) -> None:
    """How many, the largest, and both ways out are named."""
    np.save(tmp_path / "x.npy", np.array([[1, -7e4], [6e4, 6.6e4]], np.float32))
    refusing = FeatureFolder(tmp_path, Reading(dtype="float16"))
    allowing = FeatureFolder(tmp_path, Reading(dtype="float16", allow_overflow=True))

    with pytest.raises(
        DataError, match=r"2 values do not fit in float16, the largest is -70000; choose a wider --dtype"
    ):
        refusing.read(refusing.look_at("x.npy"))
    assert np.isinf(allowing.read(allowing.look_at("x.npy"))).sum() == 2
    assert allowing.loss.overflowed == 2
    with pytest.raises(ConfigError, match="allow_overflow without dtype: nothing is cast"):
        Reading(allow_overflow=True)


def test_what_is_infinite_already_does_not_overflow(tmp_path: Path) -> None:
    """Kept on request, and apart from what the cast makes infinite; NaN has no error."""
    np.save(tmp_path / "x.npy", np.array([[np.inf, np.nan], [-np.inf, 1]], np.float64))
    files = FeatureFolder(tmp_path, Reading(dtype="float16", non_finite="keep"))

    assert np.array_equal(files.read(files.look_at("x.npy")), [[np.inf, np.nan], [-np.inf, 1]], equal_nan=True)
    assert files.loss == CastLoss(values=4)


def test_files_of_several_types_are_one_form_once_a_type_is_named(tmp_path: Path) -> None:
    """A corpus that grew over the years; the loss is over all that was cast."""
    for number, dtype in enumerate(("float64", "float32", "float16", "int16")):
        np.save(tmp_path / f"{number}.npy", np.full((3, 2), 1.1, dtype))
    files = FeatureFolder(tmp_path, Reading(dtype="float32"))
    features = [files.look_at(f"{number}.npy") for number in range(4)]

    assert {(str(f.form), f.nbytes) for f in features} == {("float32 (frames, 2)", 24)}
    assert {files.read(feature).dtype for feature in features} == {np.dtype("<f4")}
    assert files.loss.values == 18  # what is float32 already is not cast
    assert 0 < files.loss.absolute < 1e-7


def test_losses_add_up() -> None:
    """Counts by sum, errors by the larger; and they read as a sentence."""
    both = CastLoss(3, 1, 0, 0.5, 0.1).and_also(CastLoss(4, 0, 2, 0.25, 0.2))

    assert both == CastLoss(7, 1, 2, 0.5, 0.2)
    assert str(both) == "largest error 0.5 (relative 0.2), 1 overflowed and 2 underflowed of 7 values"


@pytest.mark.parametrize("dtype", [np.dtype("<f2"), np.dtype(">f2"), np.dtype(ml_dtypes.bfloat16)])
def test_among_all_halves_exactly_those_with_a_full_exponent_are_not_finite(dtype: np.dtype[Any]) -> None:
    """All 65,536 patterns of bits; byte order does not matter."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(dtype.newbyteorder("<")).astype(dtype).reshape(-1, 1)
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(halves.astype(np.float64))

    check_finite(halves[finite].reshape(-1, 1))
    with pytest.raises(DataError, match=rf"^{(~finite).sum():,} values are NaN or infinite"):
        check_finite(halves)
