"""Where the command line begins: it reads its arguments before Keras is there.

A package of its own: to import anything of `keras_idea` is to import Keras, with which
it registers its layers. That takes seconds, which `--help` need not wait for, nor
`status`. What it needs is imported in `main`, where Ctrl-C is answered already.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line from its very beginning; as `keras_idea.lm.cli.main`.

    Raises:
        SystemExit: after `--help` and `status`, and for arguments that do not exist.
    """
    try:
        from keras_idea_cli import interrupt

        with interrupt.answered():
            return _carry_out(arguments)
    except KeyboardInterrupt:
        print("keras-idea: interrupted.", file=sys.stderr)
        return 130


def _carry_out(arguments: Sequence[str] | None) -> int:
    from keras_idea_cli import interrupt
    from keras_idea_cli.arguments import make_parser
    from keras_idea_cli.quiet import quieten_tensorflow

    options = make_parser().parse_args(arguments)
    if options.command == "status":
        from keras_idea_cli.status import status

        raise SystemExit(status(options.run))
    quieten_tensorflow()
    try:
        import keras_idea  # noqa: F401
    except ImportError as error:  # it says which backends there are
        print(f"keras-idea: {error}", file=sys.stderr)
        return 2
    from keras_idea.lm.cli import main

    try:
        return main(arguments)
    except Exception:
        if interrupt.came():  # a library has made another error of it
            raise KeyboardInterrupt from None
        raise
