"""The command line: one typed function per command.

A package of its own: importing `keras_idea` imports Keras, which takes seconds that
`--help` and `status` do not need. Each command imports what it uses.
"""

import json
import os
import pathlib
import re
import shlex
import sys
import time
import tomllib
from collections.abc import Sequence
from typing import Annotated, Any

try:
    import typer
except ImportError:  # the core is installed alone
    needed = 'It needs typer. Install it: pip install "keras-idea[cli]"'
    print(f"keras-idea: {needed}", file=sys.stderr)
    raise SystemExit(2) from None

app = typer.Typer(
    help="Trains wide, prunes while training, and recovers, in one fit.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Option, Argument = typer.Option, typer.Argument


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status.

    0; 2 if the input is wrong, 1 if the work failed, 130 if it was interrupted.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's greetings
    try:
        given = None if arguments is None else list(arguments)
        # typer turns Ctrl-C into this status, or earlier into `Abort`.
        if app(given, prog_name="keras-idea", standalone_mode=False) == 130:
            raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        print(
            "keras-idea: interrupted. The same `train` command resumes a run.",
            file=sys.stderr,
        )
        return 130
    except Exception as error:
        show: Any = getattr(error, "show", None)  # of arguments that do not exist
        if show is not None:
            show()
            return 2
        ours = getattr(sys.modules.get("keras_idea.errors"), "KerasIdeaError", ())
        if not isinstance(error, (*([ours] if ours else []), OSError, ImportError)):
            raise
        print(f"keras-idea: {error}", file=sys.stderr)
        return int(getattr(error, "status", 1))
    return 0


def _number(text: str) -> int:
    """A whole number, which may be 90M, 1.5B or 64k."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMB]?)", re.sub("[_,]", "", str(text)))
    if not found:
        raise typer.BadParameter(f"{text!r} is no number such as 90M")
    return round(float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "B": 1e9}[found[2]])


def _size(text: str) -> Any:
    """A number of units, or a fraction."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number and no fraction") from None


def _count(says: str) -> Any:
    return Option(metavar="N", parser=_number, help=says)


def _kept(says: str) -> Any:
    return Option(metavar="SIZE", parser=_size, help=says)


_File = Annotated[
    str | None, Argument(metavar="FILE.toml", help="the run file (default: the demo)")
]
_MODEL = "a run folder, a KerasHub preset, a Hugging Face folder or a GGUF file"
_Model = Annotated[str, Argument(metavar="MODEL", help=_MODEL)]
_TEXT = "a text file or folder, or 'stdlib'"


@app.command(
    epilog="Example: keras-idea new my.toml --preset SmolLM2-135M --tokens 10M"
)
def new(
    file: Annotated[str, Argument(metavar="FILE.toml", help="the file to write")],
    tokens: Annotated[Any, _count("tokens to train on")],
    preset: Annotated[
        str | None, Option(help="the checkpoint (default: a small model from nothing)")
    ] = None,
    target_parameters: Annotated[Any, _count("the most parameters to keep")] = None,
    target_dim: Annotated[Any, _kept("neurons to keep, or a fraction")] = None,
    text: Annotated[str | None, Option(help="a text file, records or a folder")] = None,
) -> None:
    """Write a run file with the recommended settings, each with its reason."""
    from keras_idea._lm.runs.new_file import new as write

    if target_parameters is not None and target_dim is not None:
        raise typer.BadParameter("give --target-parameters or --target-dim, not both")
    kept = {"neurons": target_dim} if isinstance(target_dim, int) else target_dim
    target = kept if target_parameters is None else target_parameters
    write(file, tokens, preset, target, text)


@app.command(epilog="Example: keras-idea plan my.toml")
def plan(file: _File = None) -> None:
    """Print what a run does: steps, tokens, widths, parameters, FLOPs and bytes."""
    from keras_idea._lm.runs.config import load_config
    from keras_idea._lm.runs.plan import plan as planned

    print(planned(load_config(file)))


@app.command(epilog="Example: KERAS_BACKEND=jax keras-idea train my.toml")
def train(
    file: _File = None,
    output: Annotated[
        str | None, Option(help="the run folder, instead of run.output")
    ] = None,
    overwrite: Annotated[
        bool,
        Option("--overwrite", help="renames a finished or other run in the folder"),
    ] = False,
) -> None:
    """Train, prune and recover a model; the same command resumes a stopped run."""
    from keras_idea._lm.runs.config import load_config
    from keras_idea._lm.runs.train import train as carry_out

    config = load_config(file)
    carry_out(config if output is None else config.with_output(output), overwrite)


@app.command(epilog="Example: keras-idea status my.toml")
def status(
    run: Annotated[
        str, Argument(metavar="RUN", help="a run folder, or the run file")
    ] = "runs/demo",
) -> None:
    """Print where a run is: stage, step, loss. Imports no backend."""
    path = pathlib.Path(run)
    command = f"keras-idea train {shlex.quote(run)}"
    if path.is_file():
        try:
            output = tomllib.loads(path.read_text("utf-8-sig"))["run"]["output"]
        except (ValueError, KeyError, TypeError):
            output = f"runs/{path.stem}"
        path = pathlib.Path(output)
    else:
        own = shlex.quote(str(path / "config.toml"))
        command = f"keras-idea train {own} --output {shlex.quote(run)}"
    try:
        facts = json.loads((path / "status.json").read_text("utf-8"))
        facts["time"] = f"{time.time() - facts['time']:,.0f} s ago"
    except (OSError, ValueError, KeyError):
        facts = {"state": "no step is done yet"}
    if facts.get("state") != "finished":
        facts |= {"running now": _is_locked(path), "start or resume": command}
    for name, value in {"folder": str(path), **facts}.items():
        shown = f"{value:,.5g}" if isinstance(value, float) else value
        print(f"{name.replace('_', ' ') + ':':34}{shown}")


def _is_locked(path: pathlib.Path) -> str:
    """Whether a live process holds the lock of a run folder."""
    from filelock import FileLock, Timeout

    lock = path.resolve().with_name(f".{path.resolve().name}.lock")
    if not lock.exists():
        return "no"
    try:
        with FileLock(lock, timeout=0):
            return "no"
    except Timeout:
        return "yes"
    except OSError:
        return "unknown"


@app.command(
    epilog="Example: keras-idea shrink SmolLM2 --to s --text my.txt --neurons 0.67"
)
def shrink(
    source: _Model,
    to: Annotated[str, Option(metavar="FOLDER", help="where the preset is saved")],
    text: Annotated[str, Option(help=f"{_TEXT}, to measure on")],
    neurons: Annotated[Any, _kept("of each FFN, or a fraction")] = None,
    kv_groups: Annotated[Any, _kept("key/value heads, likewise")] = None,
    blocks: Annotated[Any, _kept("blocks, likewise")] = None,
    features: Annotated[Any, _kept("features of the residual stream")] = None,
    vocabulary: Annotated[Any, _kept("the tokens used most")] = None,
    target_parameters: Annotated[Any, _count("instead: most parameters")] = None,
    method: Annotated[
        str, Option(help="activation, sensitivity, magnitude or random")
    ] = "activation",
    by_weights: Annotated[
        bool, Option("--by-weights", help="weighs activations by the weights")
    ] = False,
    refit: Annotated[
        bool, Option("--refit", help="fits what reads the units, by least squares")
    ] = False,
    round_to: Annotated[
        int, Option(help="a fraction or a budget becomes a multiple of it")
    ] = 1,
    tokens: Annotated[Any, _count("most tokens to measure on")] = 32_768,
    window: Annotated[int, Option(help="tokens of a row")] = 512,
) -> None:
    """Make a checkpoint smaller in one step, without training, and save a preset."""
    from keras_idea._lm.runs.shrink import shrink_checkpoint

    given = {
        "neurons": neurons,
        "kv_groups": kv_groups,
        "blocks": blocks,
        "features": features,
        "vocabulary": vocabulary,
    }
    targets = {axis: size for axis, size in given.items() if size is not None}
    how = (method, by_weights, refit, round_to, tokens, window)
    shrink_checkpoint(source, to, text, targets, target_parameters, *how)


@app.command(
    "import", epilog="Example: keras-idea import SmolLM2-135M --preset smollm2"
)
def import_(
    source: Annotated[
        str,
        Argument(metavar="SOURCE", help="a Hugging Face folder or handle, or a GGUF"),
    ],
    preset: Annotated[str, Option(metavar="FOLDER", help="where it is saved")],
) -> None:
    """Load a released checkpoint, check it, and save it as a KerasHub preset."""
    from keras_idea._lm.export.preset import export_preset
    from keras_idea._lm.export.target import check_target
    from keras_idea.hub import load

    check_target(preset)
    print(export_preset(load(source, "float32"), preset))


@app.command(
    epilog="Example: keras-idea export runs/mine --gguf m.gguf --gguf-dtype q8_0"
)
def export(
    model: _Model,
    hf: Annotated[
        str | None, Option(metavar="FOLDER", help="for Hugging Face transformers")
    ] = None,
    gguf: Annotated[str | None, Option(metavar="FILE", help="for llama.cpp")] = None,
    preset: Annotated[str | None, Option(metavar="FOLDER", help="for KerasHub")] = None,
    gguf_dtype: Annotated[str, Option(help="f32, f16, bf16, q8_0, q4_k_m...")] = "f16",
) -> None:
    """Export a narrow model in one format, and compare the export with the model."""
    from keras_idea._lm.export.gguf import export_gguf
    from keras_idea._lm.export.hf import export_hf
    from keras_idea._lm.export.load import load_run
    from keras_idea._lm.export.preset import export_preset
    from keras_idea._lm.export.target import check_target

    path = hf or gguf or preset
    if path is None or [hf, gguf, preset].count(None) != 2:
        raise typer.BadParameter("give one of --hf, --gguf and --preset")
    check_target(path, ".gguf" if gguf else "")  # before a model is loaded
    if gguf is not None:
        print(export_gguf(load_run(model), path, gguf_dtype))
    else:
        write = export_preset if hf is None else export_hf
        print(write(load_run(model), path))


@app.command(epilog="Example: keras-idea evaluate runs/mine --text held_out.txt")
def evaluate(
    model: _Model,
    text: Annotated[str, Option(help=_TEXT)],
    length: Annotated[
        int | None, Option(help="tokens seen at once (default: the run's, or 1024)")
    ] = None,
    stride: Annotated[
        int | None, Option(help="tokens between windows (default: half a window)")
    ] = None,
) -> None:
    """Print bits per byte and perplexity per token of a text.

    For benchmarks: `lm_eval --model hf --model_args pretrained=FOLDER`, of `export`.
    """
    from keras_idea._lm.runs.judge import judge_text, load_judged, shown

    print(shown(judge_text(load_judged(model, length), text, stride)))


@app.command(epilog="Example: keras-idea report runs/a runs/b --output runs.html")
def report(
    runs: Annotated[list[str], Argument(metavar="RUN...", help="run folders")],
    output: Annotated[str, Option(metavar="FILE.html")] = "report.html",
) -> None:
    """Write one HTML page about finished runs, and print their tables."""
    from keras_idea._lm.report.page import report as write

    print(f"The page is {write(runs, output)}")
