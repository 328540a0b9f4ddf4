"""How much of a cell of a Gaussian sweep is measured, and roughly what that takes."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.gaussian import SCHEMES, Cell

INTEGRATED_BINS = 16
"""From this L_max on ``mse_db`` of the paper's scheme is integrated as well; of lattices it always is."""


@dataclass(frozen=True)
class Plan:
    """How much of a cell is measured.

    Attributes:
        variances: the grid of s².
        choose_trials: messages a value of s² on which it is chosen, a repetition.
        trials: fresh messages on which the chosen one is evaluated, a repetition.
        repetitions: number of times that both are done.
        seed: of sources, side information and common randomness.
    """

    variances: tuple[float, ...]
    choose_trials: int
    trials: int
    repetitions: int
    seed: int

    def work(self, cell: Cell) -> int:
        """What the progress bar counts for a cell: roughly microseconds of processor time."""
        independent = SCHEMES[cell.scheme].independent_pool
        coded = self.trials + (len(self.variances) * self.choose_trials if independent else 0)
        return self.repetitions * coded * message_work(cell) + self.integrated_messages(cell) * integration_work(cell)

    def integrated_messages(self, cell: Cell) -> int:
        """Messages over which ``mse_db`` is integrated."""
        if SCHEMES[cell.scheme].independent_pool:
            return min(500, self.trials) if cell.bins >= INTEGRATED_BINS else 0
        return min(10_000, self.trials)


def message_work(cell: Cell) -> int:
    """Work of coding one message: races on an i.i.d. pool are long, and longest with many bins."""
    return 12 * cell.decoders + 15 if SCHEMES[cell.scheme].independent_pool else 1 + cell.decoders


def integration_work(cell: Cell) -> int:
    """Work of integrating one message: a race a value of t and decoder."""
    return (1200 if SCHEMES[cell.scheme].independent_pool else 60) * cell.decoders
