"""Where the command line begins: it reads its arguments before Keras is there.

A package of its own: to import anything of `keras_idea` is to import Keras, with which
it registers its layers. That takes seconds, which `--help` need not wait for.
"""

import sys
from collections.abc import Sequence

from keras_idea_cli.arguments import make_parser
from keras_idea_cli.quiet import quieten_tensorflow


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line from its very beginning: the program `keras-idea`.

    Args:
        arguments: list of str or None: those of the process.

    Returns:
        int, the exit status, as of `keras_idea.cli.main`.

    Raises:
        SystemExit: after `--help`, and for arguments that there are not.
    """
    begin(arguments)
    try:
        import keras_idea  # noqa: F401
    except ImportError as error:  # it says which backends there are
        return refuse(error)
    from keras_idea.cli import main

    return main(arguments)


def begin(arguments: Sequence[str] | None = None) -> None:
    """Does what must be done before a backend is imported.

    Args:
        arguments: list of str or None: those of the process.

    Raises:
        SystemExit: as `main`.
    """
    make_parser().parse_args(arguments)
    quieten_tensorflow()


def begin_as_module(package: str) -> bool:
    """`begin`, if it is the package of `python -m PACKAGE` that is being imported.

    Args:
        package: str, its name.

    Returns:
        bool, whether it is.

    Raises:
        SystemExit: as `main`.
    """
    words = sys.orig_argv
    told = words[words.index("-m") :][1:2] if "-m" in words else []
    if told == [package]:
        begin()
    return told == [package]


def refuse(error: ImportError) -> int:
    """Tells why the package cannot be imported.

    Args:
        error: what its import raised.

    Returns:
        int, the exit status: 2.
    """
    print(f"keras-idea: {error}", file=sys.stderr)
    return 2
