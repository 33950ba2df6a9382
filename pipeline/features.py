"""One path -> one checked array, as it will be stored.

Looking tells form and size from the first bytes of a file, before anything is written; reading gives the
array. A file is opened only if it is a regular one inside the feature folder.
"""

import math
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from pipeline.formats import Contents, Opened, Space, contents_of, format_of
from pipeline.formats.contents import check_shape
from pipeline.hook import hook_format
from pipeline.values import CastLoss, cast, check_finite, largest, storage_name
from shards.errors import ConfigError, DataError
from shards.schema import storage_dtype

SUFFIX: Final = ".npy"
# Six megabytes of silence shrink a thousandfold and are sound; gigabytes that do are an attack or an accident.
_BOMB_RATIO: Final = 100
_BOMB_BYTES: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How an array is taken out of its file. All of it decides what is stored."""

    key: str | None = None
    """Name of the array in files that can hold several (.npz, .pt, .safetensors, .h5). Default: the only one."""
    time_axis: int = 0
    """Axis of the arrays that is time; it is stored first."""
    dtype: Literal["float16", "bfloat16", "float32"] | None = None
    """Type to store, rounded to nearest. Default: the files' own floating-point type."""
    allow_overflow: bool = False
    """With --dtype: let values beyond the type's range become infinite, instead of stopping."""
    non_finite: Literal["refuse", "keep"] = "refuse"
    """NaN or infinity in a file: an error, or kept as it is."""
    features_from: str | None = None
    """module:function, a function path -> array of your own that reads the files, whatever their suffix."""

    def __post_init__(self) -> None:
        if self.allow_overflow and self.dtype is None:
            raise ConfigError("allow_overflow without dtype: nothing is cast, so nothing overflows; leave it out")


class Form(NamedTuple):
    """What all samples of a dataset share: storage type and the shape of one frame."""

    dtype: str
    frame_shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} (frames{''.join(f', {n}' for n in self.frame_shape)})"

    def nbytes(self, frames: int) -> int:
        """Bytes of so many frames."""
        return frames * math.prod(self.frame_shape) * storage_dtype(self.dtype).itemsize


class Feature(NamedTuple):
    """One file as it was when it was looked at; the reader refuses it if it has changed since.

    path        below the feature folder
    size        bytes of the file, `mtime_ns` its time of change
    form        as the sample will be stored, and so are its `frames` and `nbytes`; estimated for files read by a hook
    in_place    whether the file ends in the very bytes that would be stored
    """

    path: str
    size: int
    mtime_ns: int
    form: Form
    frames: int
    nbytes: int
    in_place: bool = False


@final
class FeatureFolder:
    """Looks at the files of one folder, and reads them.

    Looking is safe to share by threads. Reading is not, as it uses the same memory again: an array is good until
    the next `read`.
    """

    def __init__(self, folder: Path, reading: Reading) -> None:
        self._folder = folder
        self._reading = reading
        self._inside = f"{os.path.realpath(folder).rstrip('/')}/"
        self._memory = {"read": np.empty(0, np.uint8), "stored": np.empty(0, np.uint8)}
        self.loss = CastLoss()  # of all that was read

    def look_at(self, path: str) -> Feature:
        """Form, size and time of one file, reading little more than a page of it; raises DataError."""
        with self._open(path) as file:
            contents = self._contents(file)
            axis = self._axis(contents.shape)
            form, frames = self._form(contents), contents.shape[axis]
            nbytes = form.nbytes(frames)
            in_place = contents.in_place and axis == 0 and contents.dtype == storage_dtype(form.dtype)
            if nbytes > _BOMB_BYTES and nbytes > _BOMB_RATIO * file.size and self._reading.features_from is None:
                raise DataError(
                    f"unpacks to {nbytes:,} bytes from {file.size:,}; save it uncompressed if that is meant"
                )
            return Feature(path, file.size, file.mtime_ns, form, frames, nbytes, in_place)

    def estimate(self, path: str, form: Form, growth: float) -> Feature:
        """One file that is not looked into: of `form`, and `growth` times its size once it is stored."""
        with self._open(path) as file:
            frames = max(1, round(file.size * growth / form.nbytes(1)))
            return Feature(path, file.size, file.mtime_ns, form, frames, form.nbytes(frames))

    def read(self, feature: Feature) -> NDArray[Any]:
        """The checked array of one file: (frames, *frame_shape), C order, little-endian.

        Raises DataError if the file is no longer the one that was looked at, or not of the form that was found.
        """
        with self._open(feature.path) as file:
            if (file.size, file.mtime_ns) != (feature.size, feature.mtime_ns):
                raise DataError("changed while the shards were being built; run the same build again")
            contents = self._contents(file)
            check_form(self._form(contents), feature.form)
            array = contents.load(lambda nbytes: self._space("read", nbytes))
            return self._stored(np.moveaxis(array, self._axis(array.shape), 0), feature.form)

    @contextmanager
    def _open(self, path: str) -> Generator[Opened]:
        """The file; raises DataError for what may not or cannot be read."""
        whole = f"{self._folder}/{path}"
        try:
            # Opening a pipe would wait for someone to write to it, reading a device might never end.
            descriptor = os.open(whole, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise DataError("not a regular file but a folder, a pipe or a device; put the feature file there")
                # Asked of the open file, so that no link can be put in its place in between.
                target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - hot
                if not target.startswith(self._inside):
                    raise DataError(f"a link that leads out of the feature folder, to {target}; copy the file there")
                yield Opened(whole, descriptor, status.st_size, status.st_mtime_ns)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror}); check the disk and the permissions") from error

    def _contents(self, file: Opened) -> Contents:
        hook = self._reading.features_from
        look = format_of(os.path.splitext(file.path)[1]) if hook is None else hook_format(hook)  # noqa: PTH122 - hot
        contents = contents_of(file, look, self._reading.key)
        if contents.dtype.kind == "V" and contents.dtype.itemsize == 2 and self._reading.dtype == "bfloat16":
            # numpy.save writes bfloat16 under no name of its own; whoever asks for bfloat16 has declared it.
            bits, load = storage_dtype("bfloat16"), contents.load

            def load_bits(space: Space) -> NDArray[Any]:
                return load(space).view(bits)

            contents = contents._replace(dtype=bits, load=load_bits)
        return contents

    def _form(self, contents: Contents) -> Form:
        """Storage type and frame shape; raises DataError for types that cannot be stored."""
        check_shape(contents.shape)
        axis = self._axis(contents.shape)
        dtype = storage_name(contents.dtype, self._reading.dtype)
        return Form(dtype, contents.shape[:axis] + contents.shape[axis + 1 :])

    def _axis(self, shape: tuple[int, ...]) -> int:
        axis = self._reading.time_axis
        if not -len(shape) <= axis < len(shape):
            raise DataError(f"shape {shape} has no axis {axis}; give the axis of time as --time-axis")
        return axis % len(shape)

    def _stored(self, array: NDArray[Any], form: Form) -> NDArray[Any]:
        """The array as it is stored; the same memory if it is so already."""
        if self._reading.non_finite == "refuse":
            check_finite(array)
        stored = storage_dtype(form.dtype)
        if array.dtype == stored and array.flags.c_contiguous:
            return array
        out = self._space("stored", array.size * stored.itemsize).view(stored).reshape(array.shape)
        if array.dtype.newbyteorder("=") == stored.newbyteorder("="):
            out[...] = array
            return out
        loss = cast(array, out)
        if loss.overflowed and not self._reading.allow_overflow:
            raise DataError(
                f"{loss.overflowed:,} values do not fit in {form.dtype}, the largest is {largest(array):.6g}; "
                "choose a wider --dtype, or let them become infinite with --allow-overflow"
            )
        self.loss = self.loss.and_also(loss)
        return out

    def _space(self, use: str, nbytes: int) -> NDArray[np.uint8]:
        if len(self._memory[use]) < nbytes:
            self._memory[use] = np.empty(nbytes + nbytes // 8, np.uint8)
        return self._memory[use][:nbytes]


def check_form(found: Form, form: Form) -> None:
    """Raise DataError if a file is not like the rest of the dataset."""
    if found != form:
        raise DataError(f"expected {form} as in most files, found {found}; export it again or leave it out")
