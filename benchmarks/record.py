"""What a benchmark leaves behind: tables, and where and when it was run.

Not run by itself; see step_cost.py.
"""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def environment():
    """dict: date, command, commit, versions and hardware of this run of Keras."""
    import keras

    import keras_idea as ki

    packages = ["keras", "numpy", *_backend_packages(keras.backend.backend())]
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions["keras-idea"] = ki.__version__  # which need not be installed
    script = os.path.relpath(sys.argv[0], REPOSITORY)
    command = f"{prefix()} python {shlex.join([script, *sys.argv[1:]])}"
    return facts(command, versions, _device_name(keras.backend.backend()))


def prefix():
    """str: the environment variables that a run of Keras depends on, as typed."""
    import keras

    variables = {"KERAS_BACKEND": keras.backend.backend()}
    for name in ("XLA_FLAGS", "JAX_DEFAULT_MATMUL_PRECISION"):
        if name in os.environ:
            variables[name] = os.environ[name]
    return " ".join(f"{name}={shlex.quote(v)}" for name, v in variables.items())


def facts(command, versions, device):
    """dict: date, command, commit, versions and hardware; it needs no Keras.

    Args:
        command: str, what was typed.
        versions: dict of package to version, without Python's.
        device: str, what the tensors were on.
    """
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command,
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {
            "cpu": cpu_name(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": f"{_memory() / 2**30:.0f} GiB",
            "device": device,
            "load average at the start": round(os.getloadavg()[0], 2),
        },
    }


def _memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _backend_packages(backend):
    names = {"jax": ["jax", "jaxlib"], "tensorflow": ["tensorflow", "tensorflow-cpu"]}
    installed = {d.name.lower() for d in importlib.metadata.distributions()}
    wanted = [*names.get(backend, [backend]), "keras-hub"]
    return [n for n in wanted if n in installed]


def _commit():
    def git(*arguments):
        command = ["git", "-C", str(REPOSITORY), *arguments]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "keras_idea", "benchmarks/*.py")
    return (git("rev-parse", "HEAD") or "unknown") + (" (changed)" if changed else "")


def cpu_name(path="/proc/cpuinfo") -> str:
    """What the processor calls itself; on Linux with its family and model.

    A virtual machine may say "AMD EPYC" on several generations, whose bits differ.
    """
    file = pathlib.Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    facts = {name.strip(): value.strip() for name, value in pairs}
    name = facts.get("model name") or platform.processor() or platform.machine()
    known = [f"{k} {facts[k]}" for k in ("cpu family", "model") if k in facts]
    return f"{name} ({', '.join(known)})" if known else name


def _device_name(backend):
    if backend == "jax":
        import jax

        return jax.devices()[0].device_kind
    if backend == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return (
        tf.config.experimental.get_device_details(gpus[0])["device_name"]
        if (gpus)
        else "cpu"
    )


def print_tables(tables, width=None):
    """Prints tables, each a dict of "title", "columns", "rows" (of str), "notes".

    Args:
        tables: list of these dicts.
        width: int, columns of the terminal; None: as many as it has.
    """
    import rich.box
    import rich.console
    import rich.table

    console = rich.console.Console(width=width)
    for content in tables:
        table = rich.table.Table(
            title=content["title"], box=rich.box.SIMPLE_HEAD, title_justify="left"
        )
        for index, column in enumerate(content["columns"]):
            table.add_column(column, justify="right" if index else "left")
        for row in content["rows"]:
            table.add_row(*row)
        console.print(table)


def write(output, stem, facts, results, tables):
    """Writes the JSON and the Markdown of a run.

    Args:
        output: path of a folder, or of a file ending in .json or .md; the other
            file lies beside it.
        stem: str, the files' name if `output` is a folder.
        facts: dict from `environment`.
        results: JSON-serializable dict of every number measured.
        tables: list of dicts, see `print_tables`.

    Returns:
        list of the two paths.
    """
    path = pathlib.Path(output)
    if path.suffix not in (".json", ".md"):
        path = path / f"{stem}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    as_json, as_markdown = path.with_suffix(".json"), path.with_suffix(".md")
    as_json.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    as_markdown.write_text(_markdown(path.stem, facts, tables))
    return [as_json, as_markdown]


def _markdown(title, facts, tables):
    versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
    hardware = ", ".join(f"{k}: {v}" for k, v in facts["hardware"].items())
    parts = [
        f"# {title}\n\n{facts['date']}, commit {facts['commit']}\n\n"
        f"    {facts['command']}\n\n{versions}\n\n{hardware}\n"
    ]
    for table in tables:
        columns = table["columns"]
        lines = [f"## {table['title']}\n", "| " + " | ".join(columns) + " |"]
        lines.append("|---" + "|---:" * (len(columns) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in table["rows"]]
        lines += ["", table["notes"], ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)
