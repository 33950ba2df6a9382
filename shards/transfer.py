"""From a batch in host memory to the device of the training."""

from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Transfer(Protocol):
    """Where batches go. `send` may run in any thread, the rest in the training thread."""

    def prepare(self, address: int, nbytes: int) -> None:
        """Make new batch memory ready to be sent from."""
        ...

    def send(self, tensors: list[Tensor]) -> list[Tensor]:
        """Begin to move `tensors` (contiguous, in prepared memory or small)."""
        ...

    def receive(self, tensors: list[Tensor]) -> None:
        """Make what `send` returned safe to use on the current stream."""
        ...

    def reclaim(self, *, wait: bool) -> None:
        """Let go of host memory whose copy is done; with `wait`, of at least one if any is under way."""
        ...


@final
class ToHost:
    """Training on the CPU: a batch is used where it was read."""

    def prepare(self, address: int, nbytes: int) -> None:
        """Nothing to do."""

    def send(self, tensors: list[Tensor]) -> list[Tensor]:
        """The same tensors."""
        return tensors

    def receive(self, tensors: list[Tensor]) -> None:
        """Nothing to do."""

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
        self._sent: list[tuple[torch.cuda.Event, list[Tensor]]] = []
        self._events: dict[int, torch.cuda.Event] = {}

    def prepare(self, address: int, nbytes: int) -> None:
        """Page-lock the slot, so that its copy needs neither the CPU nor a bounce buffer."""
        with torch.cuda.device(self._device):
            runtime: Any = torch.cuda.cudart()
            code = int(runtime.cudaHostRegister(address, nbytes, 0))
        if code:
            raise RuntimeError(
                f"cudaHostRegister of {nbytes / 1e6:.1f} MB failed with code {code}: too little lockable memory "
                "(ulimit -l); use a smaller prefetch or batch"
            )

    def send(self, tensors: list[Tensor]) -> list[Tensor]:
        """Queue the copies on the side stream."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            moved = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
            event = torch.cuda.Event()
            event.record(self._stream)
        self._events[id(moved[0])] = event
        self._sent.append((event, tensors))
        return moved

    def receive(self, tensors: list[Tensor]) -> None:
        """Order the current stream behind the copy, and the memory's reuse behind the current stream."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(self._events.pop(id(tensors[0])))
        for tensor in tensors:
            tensor.record_stream(stream)

    def reclaim(self, *, wait: bool) -> None:
        """Drop the host side of every finished copy."""
        if wait and self._sent:
            self._sent[0][0].synchronize()
        self._sent = [(event, tensors) for event, tensors in self._sent if not event.query()]


def transfer_to(device: torch.device) -> Transfer:
    """The way to `device`."""
    return ToCuda(device) if device.type == "cuda" else ToHost()


def as_tensor(array: NDArray[Any]) -> Tensor:
    """A tensor over the same memory; numpy has no bfloat16 of its own, so it comes as its bits."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
