"""An Arrow shard: an IPC file whose payloads lie on 4096-byte boundaries, read by whatever reads Arrow.

    features    large_list<fixed_size_list<dtype, D>>, one fixed_size_list for every axis of a frame
    label       int32
    class, item, id, source    large_string

A record batch is one sample, or as many small ones as fit in a MiB: the payloads of a batch are its one buffer
of values, so the first lies on the boundary and the others behind it. Space before the buffer comes from
`custom_metadata` of the batch's message, which readers skip.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from shards.sample import PAGE, Book, Sample, Sink, Stored

BATCH_BYTES: Final = 1 << 20  # a batch's message costs 1 to 5 KB, so small samples share one
_PADDING: Final = "padding"
_MAGIC: Final = 8  # ARROW1 and two zeros, before the schema
_PREFIX: Final = 8  # before the metadata of every message: a marker, and their length
_NAMES: Final = ("class", "item", "id", "source")


def arrow_schema(dtype: np.dtype[Any], frame_shape: Sequence[int]) -> pa.Schema:
    """The columns of a shard. Arrow has no bfloat16: its bits are stored as uint16, and the schema says so."""
    values = pa.uint16() if dtype.name == "bfloat16" else pa.from_numpy_dtype(dtype)
    for length in reversed(frame_shape):
        values = pa.list_(pa.field("item", values, nullable=False), length)
    features = pa.large_list(pa.field("item", values, nullable=False))
    names = [pa.field(name, pa.large_string(), nullable=False) for name in _NAMES]
    return pa.schema(
        [pa.field("features", features, nullable=False), pa.field("label", pa.int32(), nullable=False), *names],
        {"dtype": dtype.name},
    )


@final
class ArrowWriter:
    """Append samples to a sink as record batches, then `close` it with the file's footer.

    Holds at most a MiB of small samples. The file stays the caller's.
    """

    def __init__(self, file: Sink) -> None:
        self._book = Book(file)
        self._waiting: list[Sample] = []
        self._waiting_bytes = 0
        self._file: _ArrowFile | None = None

    def add(self, sample: Sample) -> None:
        """Take one sample; a batch is written when enough have come together."""
        if self._file is None:
            self._file = _ArrowFile(self._book, arrow_schema(sample.array.dtype, sample.array.shape[1:]))
        nbytes = sample.array.nbytes
        if self._waiting and self._waiting_bytes + nbytes > BATCH_BYTES:
            self._write_waiting()
        if nbytes > BATCH_BYTES:
            self._file.write_batch([sample])
            return
        self._waiting.append(replace(sample, array=sample.array.copy()))
        self._waiting_bytes += nbytes

    def close(self) -> tuple[Stored, ...]:
        """Write the last batch and the footer; returns where the samples lie."""
        self._write_waiting()
        if self._file is not None:
            self._file.close()
        return self._book.close()

    def _write_waiting(self) -> None:
        if self._waiting and self._file is not None:
            self._file.write_batch(self._waiting)
        self._waiting, self._waiting_bytes = [], 0


@final
class _ArrowFile:
    """What pyarrow writes to, and the one who makes it write: knows which of the buffers are payloads."""

    def __init__(self, book: Book, schema: pa.Schema) -> None:
        self._book = book
        self._schema = schema
        self._payloads: tuple[int, Sequence[Sample]] = (-1, ())  # where the next ones begin, and whose they are
        self._start = _MAGIC + schema.serialize().size  # both are written with the first batch
        self._message = _message_bytes(schema)
        self._writer = pa.ipc.new_file(pa.PythonFile(self, "w"), schema)

    def write_batch(self, samples: Sequence[Sample]) -> None:
        """Write one record batch so that its payloads begin on a boundary."""
        values = samples[0].array if len(samples) == 1 else np.concatenate([sample.array for sample in samples])
        bounds = np.cumsum([0, *(len(sample.array) for sample in samples)], dtype=np.int64)
        begin = (self._book.position or self._start) + self._message + bounds.nbytes
        padding = -begin % PAGE
        self._payloads = (begin + padding, samples)
        batch = _record_batch(self._schema, values, bounds, samples)
        self._writer.write_batch(batch, custom_metadata={_PADDING: " " * padding})
        if self._payloads[1]:
            raise RuntimeError(f"pyarrow {pa.__version__} has written no buffer of values at byte {begin + padding}")

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()

    @property
    def closed(self) -> bool:
        """What pyarrow asks before it writes."""
        return False

    def tell(self) -> int:
        """Bytes so far."""
        return self._book.position

    def flush(self) -> None:
        """Do nothing: the sink decides when bytes are written."""

    def write(self, data: Any) -> int:
        """Take one buffer of pyarrow's."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        begin, samples = self._payloads
        if self._book.position == begin and view.nbytes == sum(sample.array.nbytes for sample in samples):
            self._payloads = (-1, ())
            for sample in samples:
                self._book.write_payload(view[: sample.array.nbytes], len(sample.array))
                view = view[sample.array.nbytes :]
        else:
            self._book.write(view)
        return len(data)


def _record_batch(
    schema: pa.Schema, values: np.ndarray[Any, Any], bounds: np.ndarray[Any, Any], samples: Sequence[Sample]
) -> pa.RecordBatch:
    """One record batch over the memory of `values`."""
    kind = schema.field("features").type
    columns = [
        pa.LargeListArray.from_arrays(pa.array(bounds), _nested(values, kind.value_type), type=kind),
        pa.array([sample.label for sample in samples], pa.int32()),
        *(
            pa.array([getattr(sample, name) for sample in samples], pa.large_string())
            for name in ("class_name", "item", "id", "source")
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _nested(values: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    """The values as fixed_size_lists as deep as `kind` is, without a copy."""
    if not pa.types.is_fixed_size_list(kind):
        flat = values.reshape(-1)
        return pa.Array.from_buffers(kind, flat.size, [None, pa.py_buffer(flat.view(np.uint8).data)])
    inner = _nested(values, kind.value_type)
    return pa.FixedSizeListArray.from_arrays(inner, type=kind)


def _message_bytes(schema: pa.Schema) -> int:
    """Bytes of a batch's message from its first to its body, with an empty padding: the same for every batch, since
    counts, lengths and offsets are all of fixed size.
    """
    row = {"features": [], "label": 0} | dict.fromkeys(_NAMES, "")
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([row], schema=schema), custom_metadata={_PADDING: ""})
    messages = pa.ipc.MessageReader.open_stream(stream.getvalue())
    messages.read_next_message()  # the schema
    return _PREFIX + messages.read_next_message().metadata.size
