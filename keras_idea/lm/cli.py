"""The command line: `keras-idea new`, `train`, `plan`, `import`, `export`..."""

import argparse
import sys
from collections.abc import Callable, Sequence

from keras_idea.errors import (
    ArgumentError,
    ConfigError,
    ExportRefused,
    KerasIdeaError,
)
from keras_idea.validation import check_int, check_number, require
from keras_idea_cli import interrupt
from keras_idea_cli.arguments import make_parser
from keras_idea_cli.status import status


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: list of str or None. Defaults to None: those of the process.

    Returns:
        int. The exit status: 0; 2 if the input is wrong, 1 if the run failed, 130
        if it was interrupted.

    Example:
    >>> main(["plan", "run.toml"])
    Text: text.txt, ...
    0
    """
    options = make_parser().parse_args(arguments)
    if options.command == "status":
        return status(options.run)
    return carry_out(_COMMANDS[options.command], options)


def carry_out(
    command: Callable[[argparse.Namespace], None], options: argparse.Namespace
) -> int:
    """Calls a command, its errors turned into messages; the exit status."""
    interrupt.advise("The same command resumes the run." * (command is _train))
    try:
        command(options)
    except KerasIdeaError as error:
        return _fail(error.status, error)
    except OSError as error:
        return _fail(
            1,
            f"The operating system reports an error: {error}. Correct what it names, "
            "or free disk space, and give the same command again.",
        )
    except KeyboardInterrupt:
        print(interrupt.line(), file=sys.stderr)
        return interrupt.STATUS
    return 0


def _new(options: argparse.Namespace) -> None:
    from keras_idea.lm.runs.new_file import new, target_of

    target = target_of(options.target_parameters, options.target_dim)
    new(options.file, options.tokens, options.preset, target, options.text)


def _train(options: argparse.Namespace) -> None:
    # Imported where they are needed: each command loads what it uses alone.
    from keras_idea.lm.runs.config import load_config
    from keras_idea.lm.runs.places import check_file
    from keras_idea.lm.runs.train import train

    config = load_config(options.config)
    if options.output is not None:
        config = config.with_output(options.output)
    if options.config is not None:
        check_file(options.config, config)
    extended = options.extend_steps
    if extended is not None:
        if options.overwrite:
            raise ConfigError(
                "--extend-steps resumes the run in the folder, which --overwrite "
                "may replace. Leave one of them out."
            )
        check_int("--extend-steps", extended, minimum=1)
        config = config.with_extension(extended)
    train(config, overwrite=options.overwrite, extend=extended is not None)


def _plan(options: argparse.Namespace) -> None:
    from keras_idea.lm.runs.config import load_config
    from keras_idea.lm.runs.plan import plan
    from keras_idea.lm.runs.plan.table import print_plan
    from keras_idea.lm.runs.plan.target_devices import parse_mesh, parse_target

    # By 0 nothing could be divided.
    check_number("--utilisation", options.utilisation, minimum=0.01, maximum=1.0)
    if options.price is not None:
        check_number("--price", options.price)
    config = load_config(options.config)
    if options.devices is not None:
        config = config.with_mesh(parse_mesh(options.devices))
    target = None if options.target is None else parse_target(options.target)
    if target is not None and config.distribution.mesh is None:
        config = config.with_mesh({"data": target.devices})
    planned = plan(config, target, options.compile, not options.without_text)
    print_plan(planned, options.utilisation, options.price)


def _export(options: argparse.Namespace) -> None:
    from keras_idea.lm.export.gguf import export_gguf
    from keras_idea.lm.export.hf import export_hf
    from keras_idea.lm.export.load import load_run
    from keras_idea.lm.export.preset import export_preset
    from keras_idea.lm.export.target import check_target

    if options.gguf_dtype is not None and options.gguf is None:
        raise ExportRefused("`--gguf-dtype` is for --gguf only. Delete `--gguf-dtype`.")
    if options.gguf is not None:
        # Before a model is loaded, which takes longer.
        check_target(options.gguf, ".gguf")
        model = load_run(options.run)
        export = export_gguf(model, options.gguf, options.gguf_dtype or "f16")
    elif options.hf is not None:
        check_target(options.hf)
        export = export_hf(load_run(options.run), options.hf)
    else:
        check_target(options.preset)
        export = export_preset(load_run(options.run), options.preset)
    print(export, flush=True)


def _import(options: argparse.Namespace) -> None:
    from keras_idea.hub.loading import check_language_model, load, outline
    from keras_idea.lm.export.preset import export_preset
    from keras_idea.lm.export.target import check_target

    check_target(options.preset)
    check_language_model(options.source, outline(options.source, "float32"))
    print(export_preset(load(options.source, "float32"), options.preset))


def _shrink(options: argparse.Namespace) -> None:
    from keras_idea.finding.budget import Budget
    from keras_idea.lm.runs.shrink import Wanted, one_shot

    limits = ("parameters", "bytes", "flops", "dtype")
    axes = ("neurons", "kv_groups", "blocks", "hidden_dim", "vocabulary")
    given = {axis: getattr(options, axis) for axis in axes}
    wanted = Wanted(
        options.source,
        options.to,
        options.text,
        {axis: size for axis, size in given.items() if size is not None},
        Budget(*(getattr(options, f"target_{name}") for name in limits)),
        tuple(_names("--kinds", options.kinds)) if options.search else (),
        **{name: getattr(options, name) for name in _OF_SHRINK},
    )
    one_shot(wanted)


_OF_SHRINK = (
    "candidates",
    "round_to",
    "method",
    "by_weights",
    "refit",
    "tokens",
    "window",
    "export",
    "gguf_dtype",
    "length",
)


def _evaluate(options: argparse.Namespace) -> None:
    require("rich", "`keras-idea evaluate`", "cli")
    from keras_idea.lm.runs.judge.evaluate import (
        judge_text,
        print_text,
    )
    from keras_idea.lm.runs.judge.judged import load_judged

    if options.length is not None:
        check_int("--length", options.length, minimum=1)
    judged = load_judged(options.model, options.length)
    print_text(judge_text(judged, options.text, options.stride))


def _names(option: str, listed: str) -> list[str]:
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ArgumentError(
            f"`{option}` names nothing. Received: {listed!r}. Give {option} NAME,..."
        )
    return names


def _report(options: argparse.Namespace) -> None:
    for package in ("matplotlib", "rich"):
        require(package, "`keras-idea report`", "cli")
    from keras_idea.lm.report.report import report

    print(f"The page is {report(options.runs, options.output)}")


def _fail(status: int, message: object) -> int:
    print(f"keras-idea: {message}", file=sys.stderr)
    return status


_COMMANDS = {
    "new": _new,
    "train": _train,
    "plan": _plan,
    "export": _export,
    "import": _import,
    "shrink": _shrink,
    "evaluate": _evaluate,
    "report": _report,
}
