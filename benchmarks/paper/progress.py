"""What a grid shows meanwhile."""

import time


class GridProgress:
    """A line for each finished cell, and bars that move where there is a terminal.

    Args:
        cells: int, how many cells there are.
        console: `rich.console.Console` or None: the standard output.
    """

    def __init__(self, cells, console=None):
        import rich.console
        import rich.progress

        self._bars = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TimeRemainingColumn(),
            console=console or rich.console.Console(),
        )
        self._cells = self._bars.add_task("cells", total=cells)
        self._steps = self._bars.add_task("steps", total=None)

    def __enter__(self):
        self._bars.__enter__()
        return self

    def __exit__(self, *error):
        self._bars.__exit__(*error)

    def begin(self, name, steps):
        """Names the cell that comes now.

        Args:
            name: str.
            steps: int, its optimizer steps; fewer are done if it begins with a
                checkpoint.
        """
        self._name, self._began = name, time.perf_counter()
        self._bars.reset(self._steps, total=steps, description=name)

    def tick(self, steps):
        """Moves the bar.

        Args:
            steps: int, steps just done.
        """
        self._bars.advance(self._steps, steps)

    def end(self, result, found):
        """Tells of the cell that is finished.

        Args:
            result: dict, as `carry_out` returns.
            found: bool, whether it was finished before.
        """
        self._bars.advance(self._cells)
        if found:
            return
        bits = result["bits_per_byte"]
        seconds = time.perf_counter() - self._began
        self._bars.console.print(
            f"{self._name}: {'diverged' if bits is None else f'{bits:.4f} bits'} "
            f"({seconds:.0f} s)",
            highlight=False,
            soft_wrap=True,
        )
