"""Where the command line begins: it reads its arguments before Keras is there.

A package of its own: to import anything of `keras_idea` is to import Keras, with which
it registers its layers. That takes seconds, which `--help` need not wait for, nor
`status`. What it needs is imported in `main`, where Ctrl-C is answered already.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line from its very beginning; as `keras_idea.cli.main`.

    Raises:
        SystemExit: after `--help` and `status`, and for arguments that do not exist.
    """
    try:
        from keras_idea_cli import interrupt

        with interrupt.answered():
            return _carry_out(arguments)
    except KeyboardInterrupt:
        return _interrupted()


def _carry_out(arguments: Sequence[str] | None) -> int:
    from keras_idea_cli import interrupt

    begin(arguments)
    try:
        import keras_idea  # noqa: F401
    except ImportError as error:  # it says which backends there are
        return refuse(error)
    from keras_idea.cli import main

    try:
        return main(arguments)
    except Exception:
        if interrupt.came():  # a library has made another error of it
            raise KeyboardInterrupt from None
        raise


def begin(arguments: Sequence[str] | None = None) -> None:
    """Does what must be done before a backend is imported; raises as `main`."""
    from keras_idea_cli.arguments import make_parser
    from keras_idea_cli.quiet import quieten_tensorflow

    options = make_parser().parse_args(arguments)
    if options.command == "status":
        from keras_idea_cli.status import status

        raise SystemExit(status(options.run))
    quieten_tensorflow()


def begin_as_module(package: str) -> bool:
    """`begin`, and True, if it is `package` that `python -m` is importing."""
    words = sys.orig_argv
    told = words[words.index("-m") :][1:2] if "-m" in words else []
    if told == [package]:
        try:
            from keras_idea_cli import interrupt

            interrupt.install()  # until the end of `main`, which `__main__` calls
            begin()
        except KeyboardInterrupt:
            raise SystemExit(_interrupted()) from None
    return told == [package]


def _interrupted() -> int:
    print("keras-idea: interrupted.", file=sys.stderr)
    return 130


def refuse(error: ImportError) -> int:
    """Tells why the package cannot be imported; the exit status."""
    print(f"keras-idea: {error}", file=sys.stderr)
    return 2
