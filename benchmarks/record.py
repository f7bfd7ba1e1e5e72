"""What a benchmark leaves behind: tables, and where and when it was run.

See step_cost.py.
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
RESULTS = REPOSITORY / "benchmarks" / "results"


def environment():
    """dict: date, command, commit, versions and hardware of this run of Keras."""
    import keras

    import keras_idea as ki

    packages = ["keras", "numpy", *_backend_packages(keras.backend.backend())]
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions["keras-idea"] = ki.__version__  # which need not be installed
    module = os.path.relpath(sys.argv[0], REPOSITORY).removesuffix(".py")
    module = module.replace("/", ".").removesuffix(".__main__")
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": f"{prefix()} python -m {shlex.join([module, *sys.argv[1:]])}",
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {
            "cpu": cpu_name(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": f"{_memory() / 2**30:.0f} GiB",
            "device": _device_name(keras.backend.backend()),
            "load average at the start": round(os.getloadavg()[0], 2),
        },
    }


def prefix():
    """str: the environment variables that a run of Keras depends on, as typed."""
    import keras

    variables = {"KERAS_BACKEND": keras.backend.backend()}
    for name in ("XLA_FLAGS", "JAX_DEFAULT_MATMUL_PRECISION"):
        if name in os.environ:
            variables[name] = os.environ[name]
    return " ".join(f"{name}={shlex.quote(v)}" for name, v in variables.items())


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

    for gpu in tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_device_details(gpu)["device_name"]
    return "cpu"


def write(output, stem, facts, results, tables):
    """Writes the JSON and the Markdown of a run, and prints the Markdown.

    Args:
        output: path of a folder.
        stem: str, the files' name.
        facts: dict from `environment`.
        results: JSON-serializable dict of every number measured.
        tables: list of dicts of "title", "columns", "rows" (of str) and "notes".
    """
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_markdown = folder / f"{stem}.json", folder / f"{stem}.md"
    as_json.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    text = _markdown(stem, facts, tables)
    as_markdown.write_text(text)
    print(f"{text}\nwritten: {as_json}, {as_markdown}")


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
