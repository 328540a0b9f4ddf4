"""TensorBoard logs of a training run, where they are asked for."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from shared_rng import CodecError


class TrainingLog:
    """Scalars an epoch in ``out/tensorboard``; a context manager that does nothing unless enabled."""

    def __init__(self, out: Path, *, enabled: bool) -> None:
        """Open the log.

        Raises:
            CodecError: it is enabled and the tensorboard package is not installed.
        """
        self._writer: Any = None
        if not enabled:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise CodecError("--tensorboard", str(error), "pip install gumbelcast[tensorboard]") from error
        self._writer = SummaryWriter(str(out / "tensorboard"))

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, epoch: int, values: dict[str, float]) -> None:
        """Means over an epoch, by name."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, epoch)
