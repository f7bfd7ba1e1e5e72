"""How many lines a peer's user adds to the plain script: counted, not estimated."""

import pathlib

BEGIN, END = "# user", "# end"


def count_lines(path, label):
    """Lines of a script that a user of the peer writes and a plain script has not.

    They stand between `# user` and `# end`, or end in `# user`. Where a script has
    several ways, `# user: LABEL, LABEL` belongs to those alone. Blank lines and
    comments do not count.

    Args:
        path: the script.
        label: str, the way that is counted.
    """
    counted, inside = 0, False
    for line in pathlib.Path(path).read_text().splitlines():
        code, _, comment = line.partition(BEGIN)
        code = code.strip()
        if line.strip() == END:
            inside = False
        elif line.strip().startswith(BEGIN):
            inside = _belongs(comment, label)
        elif BEGIN in line:
            counted += _belongs(comment, label)
        elif inside and code and not code.startswith("#"):
            counted += 1
    return counted


def _belongs(comment, label):
    names = [name.strip() for name in comment.removeprefix(":").split(",")]
    return names == [""] or label in names
