"""From a batch in host memory to the device of the training."""

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ON_DEVICE: Final = ("features", "lengths", "labels")


@final
@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch on the device; B is samples times crops of each.

    features    (B, T, *frame_shape) in the storage dtype, zeros beyond each length
    lengths     (B,) int64 frames that are data
    labels      (B,) int64
    rows        (B,) int64 on the CPU: positions in the manifest
    """

    features: Tensor
    lengths: Tensor
    labels: Tensor
    rows: Tensor

    def to(self, device: str | torch.device, *, non_blocking: bool = False) -> "Batch":
        """The batch on another device, as Lightning and Accelerate ask for it; `rows` stay where they are."""
        moved = {name: getattr(self, name).to(device, non_blocking=non_blocking) for name in _ON_DEVICE}
        return replace(self, **moved)


@final
@dataclass(frozen=True, kw_only=True)
class Sent:
    """A batch on the device, or on its way there until `event` has happened."""

    tensors: list[Tensor]
    event: torch.cuda.Event | None = None


class Transfer(Protocol):
    """Where batches go. `send` may run in any thread, the rest in the training thread."""

    def prepare(self, address: int, nbytes: int) -> None:
        """Make new batch memory ready to be sent from."""
        ...

    def forget(self, address: int) -> None:
        """Undo `prepare`: the memory is about to go."""
        ...

    def send(self, tensors: list[Tensor]) -> Sent:
        """Begin to move `tensors` (contiguous, in prepared memory or small)."""
        ...

    def receive(self, sent: Sent) -> list[Tensor]:
        """What was sent, safe to use on the current stream."""
        ...

    def reclaim(self, *, wait: bool) -> None:
        """Let go of host memory whose copy is done; with `wait`, of at least one if any is under way."""
        ...


@final
class ToHost:
    """Training on the CPU: a batch is used where it was read."""

    def prepare(self, address: int, nbytes: int) -> None:
        """Nothing to do."""

    def forget(self, address: int) -> None:
        """Nothing to do."""

    def send(self, tensors: list[Tensor]) -> Sent:
        """The same tensors."""
        return Sent(tensors=tensors)

    def receive(self, sent: Sent) -> list[Tensor]:
        """The same tensors."""
        return sent.tensors

    def reclaim(self, *, wait: bool) -> None:
        """Nothing to do: a slot is free when the caller lets it go."""


@final
class ToCuda:
    """Pinned slots, one side stream, one event a batch.

    A slot is kept until the event of its copy is done; the consumer's stream waits for the event,
    never the host. Slots are registered (cudaHostRegister) rather than allocated by CUDA: exact
    size, and no cudaHostAlloc, which would stall the device, once training runs.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        # Host side of copies under way, in order; threads append, the training thread takes off.
        self._under_way: deque[tuple[torch.cuda.Event, list[Tensor]]] = deque()

    def prepare(self, address: int, nbytes: int) -> None:
        """Page-lock the slot, so that its copy needs neither the CPU nor a bounce buffer."""
        code = self._runtime("cudaHostRegister", address, nbytes, 0)
        if code:
            raise RuntimeError(
                f"cudaHostRegister of {nbytes / 1e6:.1f} MB failed with code {code}: too little lockable memory "
                "(ulimit -l); use a smaller prefetch or batch"
            )

    def forget(self, address: int) -> None:
        """Release the page-lock, or the next memory at this address could not be locked."""
        self._runtime("cudaHostUnregister", address)

    def send(self, tensors: list[Tensor]) -> Sent:
        """Queue the copies on the side stream."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            moved = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
            event = torch.cuda.Event()
            event.record(self._stream)
        self._under_way.append((event, tensors))
        return Sent(tensors=moved, event=event)

    def receive(self, sent: Sent) -> list[Tensor]:
        """Order the current stream behind the copy, and the memory's reuse behind the current stream."""
        stream = torch.cuda.current_stream(self._device)
        if sent.event is not None:
            stream.wait_event(sent.event)
        for tensor in sent.tensors:
            tensor.record_stream(stream)
        return sent.tensors

    def reclaim(self, *, wait: bool) -> None:
        """Drop the host side of every finished copy."""
        if wait and self._under_way:
            self._under_way[0][0].synchronize()
        while self._under_way and self._under_way[0][0].query():
            self._under_way.popleft()

    def _runtime(self, function: str, *arguments: int) -> int:
        with torch.cuda.device(self._device):
            runtime: Any = torch.cuda.cudart()
            return int(getattr(runtime, function)(*arguments))


def transfer_to(device: torch.device) -> Transfer:
    """The way to `device`."""
    return ToCuda(device) if device.type == "cuda" else ToHost()


def as_tensor(array: NDArray[Any]) -> Tensor:
    """A tensor over the same memory; numpy has no bfloat16 of its own, so it comes as its bits."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
