"""The arguments of the command line."""

import argparse
import difflib
import re
from typing import Any, NoReturn, TypeAlias

from keras_idea_cli.shrink_arguments import add_shrink, whole_number

_Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"


class _Parser(argparse.ArgumentParser):
    """Suggests the name that was meant; a command rejects what it does not know."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:  # here, not in the parser above: it knows the options
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        words = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        hint = ""
        if words:
            hint = _nearest(words[1], re.findall(r"--[\w-]+", self.format_help()))
        if choice:
            hint = _nearest(choice[1], re.findall(r"[\w-]+", choice[2]))
            if choice[1] == "resume":
                hint = " The same `keras-idea train` command resumes a run."
        super().error(f"{message}.{hint}" if hint else message)


def _nearest(word: str, known: list[str]) -> str:
    """As `keras_idea.validation.did_you_mean`, which lies behind Keras's import."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def make_parser() -> argparse.ArgumentParser:
    """The `argparse` parser; `command` in its result names what is to be done."""
    parser = _Parser(
        prog="keras-idea",
        description="Trains wide, prunes while training, and recovers, in one fit.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_new(commands)
    _add_train(commands)
    _add_plan(commands)
    _add_status(commands)
    _add_import(commands)
    add_shrink(commands)
    _add_export(commands)
    _add_evaluate(commands)
    _add_report(commands)
    return parser


def _add_new(commands: _Commands) -> None:
    new = commands.add_parser(
        "new",
        help="write a run file with the recommended settings",
        description="Writes a TOML file for `train`: the recommended settings for a "
        "checkpoint and a number of tokens, each with its reason and whether it is "
        "measured or an estimate. Then prints its plan. Trains nothing.",
    )
    new.add_argument("file", metavar="FILE.toml", help="the file to write")
    new.add_argument(
        "--preset",
        metavar="PRESET",
        help="the checkpoint: a KerasHub preset, a Hugging Face folder, a handle or a "
        "GGUF file; default: a small model from nothing",
    )
    new.add_argument(
        "--tokens",
        type=whole_number,
        required=True,
        metavar="N",
        help="how many tokens the run trains on",
    )
    targets = new.add_mutually_exclusive_group()
    targets.add_argument(
        "--target-parameters",
        type=whole_number,
        metavar="M",
        help="the most parameters of the narrow model",
    )
    targets.add_argument(
        "--target-dim",
        metavar="F",
        help="the fraction of the neurons to keep, or their number in each FFN "
        "(default 0.67)",
    )
    new.add_argument(
        "--text",
        metavar="PATH",
        help="a text file, JSON lines or a folder to train on; default: the source "
        "text of Python's standard library",
    )


def _add_train(commands: _Commands) -> None:
    train = commands.add_parser(
        "train",
        help="train, prune and recover a model",
        description="Trains a wide language model, prunes it while it trains, and "
        "recovers it, in one fit. Writes a run folder with the narrow model, a plot "
        "and a table. The same command resumes a stopped run from its last "
        "checkpoint. KERAS_BACKEND=jax|tensorflow|torch chooses the backend.",
    )
    train.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG.toml",
        help="the TOML file of the run; default: a small model on the source text of "
        "Python's standard library, about five minutes on 2 cores",
    )
    train.add_argument(
        "--output", metavar="FOLDER", help="the run folder, instead of run.output"
    )
    train.add_argument(
        "--overwrite",
        action="store_true",
        help="replaces a finished run in the folder, or another run; if this run is "
        "there and is not finished, it resumes",
    )
    train.add_argument(
        "--extend-steps",
        type=int,
        metavar="N",
        help="resumes an unfinished run, which becomes N steps longer than planned; "
        "in these the learning rate stays as at the planned end",
    )


def _add_plan(commands: _Commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="show what a run does and costs, without training",
        description="Prints the stages of a run: steps, tokens, widths, learning rates "
        "and operations. Estimates memory per device: wide, at each narrowing, and "
        "narrow. Trains and creates nothing.",
    )
    plan.add_argument("config", nargs="?", metavar="CONFIG.toml", help="as for `train`")
    plan.add_argument(
        "--devices", metavar="DATAxMODEL", help="a mesh, instead of distribution.mesh"
    )
    plan.add_argument(
        "--target",
        metavar="KIND",
        help="estimates the time on v5e, v5p, v6e (with a topology: v5e:4x4), a100, "
        "h100 or h200",
    )
    plan.add_argument(
        "--compile",
        action="store_true",
        help="asks a compiler for the bytes of a step (on JAX): for a TPU that you "
        "need not have (extra `tpu`), or for this machine",
    )
    plan.add_argument(
        "--without-text",
        action="store_true",
        help="reads no text and trains no tokenizer; assumes that the text has the "
        "tokens that the run needs",
    )
    plan.add_argument(
        "--utilisation",
        type=float,
        default=0.4,
        metavar="SHARE",
        help="the share of the devices' peak rate that the run uses (default 0.4)",
    )
    plan.add_argument(
        "--price", type=float, metavar="AMOUNT", help="the price of one device per hour"
    )


def _add_status(commands: _Commands) -> None:
    status = commands.add_parser(
        "status",
        help="show the state of a run: stage, step, loss, last checkpoint",
        description="Prints whether a run is finished, running or stopped, its stage, "
        "its step, the last logged loss, the last checkpoint, and the command that "
        "resumes it. Reads only the run folder and imports no backend.",
    )
    status.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="a run folder, or the TOML file that describes the run; default: the demo",
    )


def _add_import(commands: _Commands) -> None:
    command = commands.add_parser(
        "import",
        help="load a released checkpoint, check it, and save it as a KerasHub preset",
        description="Loads a Hugging Face folder or a GGUF file into KerasHub, "
        "compares logits, greedy tokens and token ids with transformers, and saves a "
        "preset. Rejects a checkpoint of which KerasHub computes something else. "
        "`train`, `evaluate` and `export` also take such a folder or file directly.",
    )
    command.add_argument(
        "source",
        metavar="SOURCE",
        help="a Hugging Face folder, a GGUF file, or a handle (hf://user/name)",
    )
    command.add_argument(
        "--preset", metavar="FOLDER", required=True, help="where the preset is saved"
    )


def _add_export(commands: _Commands) -> None:
    export = commands.add_parser(
        "export",
        help="export a narrow model: KerasHub, Hugging Face, GGUF (llama.cpp)",
        description="Exports the narrow model of a run, loads the export "
        "again, and compares its logits and greedy tokens with the model's. Does not "
        "keep an export that fails. KERAS_BACKEND=jax|tensorflow|torch chooses the "
        "backend, which can differ from the run's.",
    )
    export.add_argument(
        "run",
        metavar="RUN",
        help="a run folder, a KerasHub preset, a Hugging Face folder or a GGUF file",
    )
    formats = export.add_mutually_exclusive_group(required=True)
    formats.add_argument(
        "--preset", metavar="FOLDER", help="a preset that stock KerasHub loads"
    )
    formats.add_argument(
        "--hf", metavar="FOLDER", help="a folder that Hugging Face transformers loads"
    )
    formats.add_argument(
        "--gguf", metavar="FILE.gguf", help="a file that llama.cpp loads"
    )
    export.add_argument(
        "--gguf-dtype",
        metavar="TYPE",
        help="the type of the matrices in a GGUF file: f32, f16, bf16, q8_0, or with "
        "llama-cpp-python a K-quant such as q4_k_m (default f16)",
    )


def _add_evaluate(commands: _Commands) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="evaluate a saved model on a text",
        description="Evaluates the narrow model of a run, or a KerasHub preset, by its "
        "bits per byte and perplexity per token on a text (a sliding window predicts "
        "every token but the first once; the window and the stride are printed). For "
        "benchmarks, export to Hugging Face and use lm_eval --model hf.",
    )
    evaluate.add_argument(
        "model",
        metavar="MODEL",
        help="a run folder, a KerasHub preset, a Hugging Face folder or a GGUF file",
    )
    evaluate.add_argument(
        "--text", required=True, metavar="FILE", help="a text file, folder or 'stdlib'"
    )
    evaluate.add_argument(
        "--stride",
        type=int,
        metavar="TOKENS",
        help="from one window of the text to the next window (default: half a window)",
    )
    evaluate.add_argument(
        "--length",
        type=int,
        metavar="TOKENS",
        help="the tokens that the model sees at once (default: as in its run, or 1024)",
    )


def _add_report(commands: _Commands) -> None:
    report = commands.add_parser(
        "report",
        help="write one HTML page about one or several finished runs",
        description="Writes one self-contained HTML page with the plots and tables "
        "of finished runs side by side, and prints the tables.",
    )
    report.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    report.add_argument(
        "--output",
        default="report.html",
        metavar="FILE.html",
        help="the page (default report.html); replaces an earlier report",
    )
