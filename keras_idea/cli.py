"""The command line: `keras-idea train`, `export`, `report` and `bench`."""

import argparse
import sys


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
    options = _parser().parse_args(arguments)
    return options.command(options)


def _parser():
    parser = argparse.ArgumentParser(
        prog="keras-idea",
        description="Pretrain wide, prune while training, recover: in one fit.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train = commands.add_parser(
        "train",
        help="train, prune and recover a model; leave a run folder",
        description="Trains a wide language model, prunes it while it trains and "
        "recovers it in one fit; leaves a folder with the narrow model, a picture "
        "and a table. KERAS_BACKEND=jax|tensorflow|torch chooses the backend.",
    )
    train.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG.toml",
        help="the run's description; default: a small model on the source text of "
        "Python's standard library, about five minutes on 2 cores",
    )
    train.add_argument(
        "--output", metavar="FOLDER", help="the run folder, instead of run.output"
    )
    train.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the run that the folder holds",
    )
    train.set_defaults(command=_train)
    _add_export(commands)
    _add_report(commands)
    _add_bench(commands)
    return parser


def _add_export(commands):
    export = commands.add_parser(
        "export",
        help="export a run's narrow model for KerasHub, Hugging Face or ONNX",
        description="Exports the narrow model of a run in float32, loads the export "
        "back and compares its logits and greedy tokens with the model's. An export "
        "that fails is not kept. KERAS_BACKEND=jax|tensorflow|torch chooses the "
        "backend, which need not be the run's.",
    )
    export.add_argument(
        "run",
        metavar="RUN",
        help="a run folder, or a KerasHub preset folder",
    )
    formats = export.add_mutually_exclusive_group(required=True)
    formats.add_argument(
        "--preset", metavar="FOLDER", help="a preset that stock KerasHub loads"
    )
    formats.add_argument(
        "--hf", metavar="FOLDER", help="a folder that Hugging Face transformers loads"
    )
    formats.add_argument(
        "--onnx", metavar="FILE.onnx", help="a graph from token ids to logits"
    )
    export.add_argument(
        "--length",
        type=int,
        metavar="TOKENS",
        help="of the sequence an ONNX file takes; on torch, which fixes it",
    )
    export.add_argument(
        "--overwrite", action="store_true", help="replace an earlier export"
    )
    export.set_defaults(command=_export)


def _add_report(commands):
    report = commands.add_parser(
        "report",
        help="one HTML page about one or several finished runs",
        description="Writes one self-contained HTML page with the pictures and tables "
        "of finished runs side by side, and prints the tables.",
    )
    report.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    report.add_argument(
        "--output",
        default="report.html",
        metavar="FILE.html",
        help="the page (default report.html); replaces an earlier report",
    )
    report.set_defaults(command=_report)


def _add_bench(commands):
    bench = commands.add_parser(
        "bench", help="carry out tables of the paper, and compare"
    )
    subjects = bench.add_subparsers(required=True, metavar="SUBJECT")
    paper = subjects.add_parser(
        "paper",
        help="the paper's tables, in kind, at a size that fits the machine",
        description="Carries out tables of the paper (1 to 6) and of what its readers "
        "missed (7 pruning frequency, 8 token split, 9 warm-up-stable-decay, "
        "10 optimizers, 11 target ratios). A finished cell is never run again: the "
        "same command goes on after a stop, and with more seeds only adds.",
    )
    paper.add_argument(
        "--table",
        type=int,
        action="append",
        required=True,
        metavar="N",
        help="1 to 11; may be given several times (tables share cells)",
    )
    paper.add_argument(
        "--scale",
        default="tiny",
        help="tiny (default): minutes a seed on 2 cores; small: a night; gpu: one "
        "large GPU",
    )
    paper.add_argument(
        "--seeds", type=int, default=3, metavar="K", help="how many (default 3)"
    )
    paper.add_argument(
        "--first-seed",
        type=int,
        default=0,
        metavar="S",
        help="the first of them (default 0); runs with other seeds may share the "
        "output folder",
    )
    paper.add_argument(
        "--output",
        default="runs/paper",
        metavar="DIR",
        help="where cells, checkpoints and tables go (default runs/paper)",
    )
    paper.add_argument(
        "--data",
        metavar="DIR",
        help="folder with train.txt and valid.txt, or with ptb/ that has them; "
        "default: the variable KERAS_IDEA_TEXT, ../shared/data/text beside the "
        "repository, or the source text of Python's standard library",
    )
    paper.set_defaults(command=_bench_paper)


def _train(options):
    # Imported here: Keras takes seconds, and --help needs none of it.
    from keras_idea.data import TextError
    from keras_idea.pipelines.config import ConfigError, load_config
    from keras_idea.pipelines.recorder import TrainingDiverged
    from keras_idea.pipelines.run_folder import RunFolderError
    from keras_idea.pipelines.train import train

    try:
        config = load_config(options.config)
        if options.output is not None:
            config = config.with_output(options.output)
        train(config, overwrite=options.overwrite)
    except (ConfigError, RunFolderError, TextError) as error:
        return _fail(2, error)
    except TrainingDiverged as error:
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
