"""What comes before a backend is imported: arguments, Ctrl-C, TensorFlow's log."""

import sys
from collections.abc import Sequence


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
            raise SystemExit(interrupted()) from None
    return told == [package]


def interrupted() -> int:
    """Tells of Ctrl-C; the exit status."""
    print("keras-idea: interrupted.", file=sys.stderr)
    return 130


def refuse(error: ImportError) -> int:
    """Tells why the package cannot be imported; the exit status."""
    print(f"keras-idea: {error}", file=sys.stderr)
    return 2
