"""What a grid shows meanwhile."""

import time

import rich.console
import rich.progress


class GridProgress:
    """A line for each finished cell, and bars that move where there is a terminal.

    Args:
        cells: int, how many cells there are.
        console: `rich.console.Console` or None: the standard output.

    Attributes:
        bars: a context manager, in which the bars are shown.
    """

    def __init__(self, cells: int, console=None):
        self.bars = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TimeRemainingColumn(),
            console=console or rich.console.Console(),
        )
        self._cells = self.bars.add_task("cells", total=cells)
        self._steps = self.bars.add_task("steps", total=None)

    def begin(self, name: str, steps: int) -> None:
        """Names the cell that comes now; after a checkpoint it takes fewer steps."""
        self._name, self._began = name, time.perf_counter()
        self.bars.reset(self._steps, total=steps, description=name)

    def tick(self, steps: int) -> None:
        """Moves the bar by the steps just done."""
        self.bars.advance(self._steps, steps)

    def end(self, result: dict, found: bool) -> None:
        """Tells of a finished cell, unless it was `found` finished."""
        self.bars.advance(self._cells)
        if found:
            return
        bits = result["bits_per_byte"]
        seconds = time.perf_counter() - self._began
        self.bars.console.print(
            f"{self._name}: {'diverged' if bits is None else f'{bits:.4f} bits'} "
            f"({seconds:.0f} s)",
            highlight=False,
            soft_wrap=True,
        )
