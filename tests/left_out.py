"""What `make test` leaves to `make endurance`: `python -m tests.left_out`.

A line for each test function that runs with all its rows on no backend: on which how
many stay. First those of which none stays anywhere: a fault that they alone would find
shows in endurance.
"""

import collections
import re
import sys

from docs.building.collected import collect
from tests.support.selection import EACH


def left_out(tests):
    """(function, {backend: (rows that stay, all rows)}) of those whole nowhere.

    Args:
        tests: dict of a backend to a dict of a test's id to whether `make test` runs
            it, as `collect` returns.
    """
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for backend, of_backend in tests.items():
        for name, stays in of_backend.items():
            rows[re.sub(r"\[.*", "", name)][backend].append(stays)
    for name, by_backend in sorted(rows.items()):
        counts = {b: (sum(stay), len(stay)) for b, stay in by_backend.items()}
        if all(stay < every for stay, every in counts.values()):
            yield name, counts


def main():
    found = list(left_out(collect(EACH)))
    nowhere = [row for row in found if not any(stay for stay, _ in row[1].values())]
    for title, listed in (
        (f"{len(nowhere)} functions run in endurance alone:", nowhere),
        (f"{len(found) - len(nowhere)} keep some of their rows:", found),
    ):
        print(f"\n{title}\n")
        for name, counts in listed:
            if listed is nowhere or (name, counts) not in nowhere:
                told = [f"{b} {stay}/{every}" for b, (stay, every) in counts.items()]
                print(f"{name}  {', '.join(told)}")


if __name__ == "__main__":
    sys.exit(main())
