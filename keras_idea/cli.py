"""The command line: `keras-idea train`, `plan`, `export`, `evaluate`, `report`..."""

import sys

from keras_idea.arguments import make_parser


def main(arguments=None):
    """Runs the command line.

    Args:
        arguments: list of str or None: those of the process.

    Returns:
        int, the exit status: 0; 2 if the run was refused, 1 if it failed, 130 if
        it was interrupted.

    Example:
    >>> main(["train", "run.toml", "--output", "runs/mine"])
    """
    options = make_parser().parse_args(arguments)
    return _COMMANDS[options.command](options)


def _train(options):
    # Imported here: Keras takes seconds, and --help needs none of it.
    from keras_idea.callbacks import CheckpointError
    from keras_idea.data import TextError
    from keras_idea.extras import MissingPackage
    from keras_idea.pipelines.config import ConfigError, load_config
    from keras_idea.pipelines.recorder import TrainingDiverged
    from keras_idea.pipelines.run_folder import RunFolderError
    from keras_idea.pipelines.train import train

    try:
        config = load_config(options.config)
        if options.output is not None:
            config = config.with_output(options.output)
        train(config, overwrite=options.overwrite)
    except (
        CheckpointError,
        ConfigError,
        MissingPackage,
        RunFolderError,
        TextError,
    ) as error:
        return _fail(2, error)
    except TrainingDiverged as error:
        return _fail(1, error)
    except OSError as error:
        return _fail(
            1,
            f"the run cannot go on: {error}. Make room, or mend what it names; the "
            "same command goes on from its last checkpoint.",
        )
    except KeyboardInterrupt:
        return _fail(130, "interrupted; the same command goes on where it stopped.")
    return 0


def _plan(options):
    from keras_idea.data import TextError
    from keras_idea.extras import MissingPackage
    from keras_idea.pipelines.config import ConfigError, load_config
    from keras_idea.pipelines.plan import plan, print_plan

    try:
        print_plan(plan(load_config(options.config)))
    except (ConfigError, MissingPackage, TextError) as error:
        return _fail(2, error)
    except OSError as error:  # a full disk, while tokens are made
        return _fail(1, error)
    except KeyboardInterrupt:
        return _fail(130, "interrupted.")
    return 0


def _export(options):
    from keras_idea.pipelines.export import (
        ExportFailed,
        ExportRefused,
        export_hf,
        export_onnx,
        export_preset,
        load_run,
    )

    try:
        if options.length is not None and options.onnx is None:
            raise ExportRefused("`--length` is for --onnx alone. Leave it out.")
        model = load_run(options.run)
        if options.preset is not None:
            export = export_preset(model, options.preset, options.overwrite)
        elif options.hf is not None:
            export = export_hf(model, options.hf, options.overwrite)
        else:
            export = export_onnx(model, options.onnx, options.overwrite, options.length)
    except ExportRefused as error:
        return _fail(2, error)
    except ExportFailed as error:
        return _fail(1, error)
    except KeyboardInterrupt:
        return _fail(130, "interrupted.")
    print(export)
    return 0


def _evaluate(options):
    from keras_idea.data import TextError
    from keras_idea.extras import MissingPackage
    from keras_idea.pipelines import evaluate
    from keras_idea.validation import check_int

    try:
        if options.text is None and options.tasks is None:
            raise evaluate.EvaluationError(
                "Nothing to evaluate by. Give --text FILE, --tasks NAME,... or both."
            )
        for name in ("length", "limit"):
            if getattr(options, name) is not None:
                check_int(f"--{name}", getattr(options, name), minimum=1)
        names = None if options.tasks is None else _names(options.tasks)
        judged = evaluate.load_judged(options.model, options.length)
        if options.text is not None:
            text = evaluate.judge_text(judged, options.text, options.stride)
            evaluate.print_text(text)
        if names is not None:
            tasks = evaluate.judge_tasks(judged, names, options.local, options.limit)
            evaluate.print_tasks(tasks)
    except (MissingPackage, ValueError, TextError) as error:
        return _fail(2, error)
    except KeyboardInterrupt:
        return _fail(130, "interrupted.")
    return 0


def _names(listed):
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ValueError(
            f"`--tasks` names no task. Received: {listed!r}. Give --tasks NAME,..."
        )
    return names


def _report(options):
    from keras_idea.report.report import ReportRefused, report
    from keras_idea.report.run_record import RunRecordError

    try:
        path = report(options.runs, options.output)
    except (ReportRefused, RunRecordError) as error:
        return _fail(2, error)
    except KeyboardInterrupt:
        return _fail(130, "interrupted.")
    print(f"The page is {path}")
    return 0


def _bench_paper(options):
    from keras_idea.data import TextError
    from keras_idea.pipelines.paper.grid import bench_paper
    from keras_idea.pipelines.paper.scale import SCALES
    from keras_idea.pipelines.paper.text import find_text
    from keras_idea.validation import check_choice

    try:
        check_choice("scale", options.scale, tuple(SCALES))
        corpus = find_text(options.data)
        print(f"Text: {corpus.description}", flush=True)
        written = bench_paper(
            options.table,
            SCALES[options.scale],
            options.seeds,
            options.output,
            corpus,
            options.first_seed,
        )
    except (ValueError, TextError) as error:
        return _fail(2, error)
    except KeyboardInterrupt:
        return _fail(130, "interrupted; the same command goes on where it stopped.")
    for path in written:
        print(path)
    return 0


def _fail(status, message):
    print(f"keras-idea: {message}", file=sys.stderr)
    return status


_COMMANDS = {
    "train": _train,
    "plan": _plan,
    "export": _export,
    "evaluate": _evaluate,
    "report": _report,
    "bench_paper": _bench_paper,
}
