"""Where the command line begins: it reads its arguments before Keras is there.

A package of its own: to import anything of `keras_idea` is to import Keras, with which
it registers its layers. That takes seconds, which `--help` need not wait for, nor
`status`. What it needs is imported in `main`, where Ctrl-C is answered already.
"""

from collections.abc import Sequence

from keras_idea_cli.beginning import begin, interrupted, refuse


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
        return interrupted()


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
