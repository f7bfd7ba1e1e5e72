"""An extra brings the packages that the messages say it brings."""

import ast
import pathlib
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
#: Import name -> the requirement that brings it, where the two differ.
BROUGHT_BY = {"PIL": "pillow", "libtpu": "jax[tpu]"}


def asked_for():
    """(file, package, extra) of each call of `require` with its names written out."""
    for path in sorted((ROOT / "keras_idea").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if not named or node.func.id not in ("require", "require_installed"):
                continue
            extra = node.args[2].value if len(node.args) > 2 else "data"
            first = node.args[0]
            for package in first.elts if isinstance(first, ast.List) else [first]:
                if isinstance(package, ast.Constant):
                    yield path.name, package.value.split(".")[0], extra


def test_each_package_is_in_the_extra_that_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    always = " ".join(project["dependencies"])
    extras = project["optional-dependencies"]
    calls = list(asked_for())
    assert len(calls) > 20
    wrong = [
        (file, package, extra)
        for file, package, extra in calls
        if not any(
            line.startswith(BROUGHT_BY.get(package, package.replace("_", "-")))
            for line in [*extras[extra], *always.split()]
        )
    ]
    assert wrong == []
