"""The description of a run: one TOML file, one frozen dataclass a table.

Every key has a default, so that a file names only what differs. `demo.toml`
beside this module spells all of them out with comments.
"""

import dataclasses
import difflib
import importlib.resources
import math
import os
import pathlib
import tomllib
import typing
from collections.abc import Collection, Iterable

from keras_idea.errors import ConfigError
from keras_idea.extras import require
from keras_idea.runs import tables
from keras_idea.runs.corpus_table import CorpusConfig
from keras_idea.runs.fields import Table, divisors, nearest_multiple
from keras_idea.runs.model_table import ModelConfig

# Methods that measure in the train step, a batch of which must be a step.
_MEASURING = ("activation", "learned_mask")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """A whole run: one attribute a TOML table.

    Example:
    >>> config = load_config("run.toml")
    >>> config.budget.total_steps
    12
    """

    model: ModelConfig = ModelConfig()
    data: tables.DataConfig = tables.DataConfig()
    corpus: CorpusConfig = CorpusConfig()
    budget: tables.BudgetConfig = tables.BudgetConfig()
    optimizer: tables.OptimizerConfig = tables.OptimizerConfig()
    distillation: tables.DistillationConfig = tables.DistillationConfig()
    pruning: tables.PruningConfig = tables.PruningConfig()
    distribution: tables.DistributionConfig = tables.DistributionConfig()
    sample: tables.SampleConfig = tables.SampleConfig()
    run: tables.RunSettings = tables.RunSettings()

    def __post_init__(self) -> None:
        total, enlarge = self.budget.total_steps, self.budget.enlarge_steps
        if self.optimizer.warmup_steps > total:
            raise ConfigError(
                "`optimizer.warmup_steps` must be at most the total of [budget], "
                f"{total} steps. Received: warmup_steps={self.optimizer.warmup_steps}."
            )
        if self.optimizer.rewarm and not enlarge:
            raise ConfigError(
                "`optimizer.rewarm` needs a stage before pruning, from which the rate "
                f"warms up again. Received: rewarm={self.optimizer.rewarm} with "
                "budget.enlarge_steps=0. Mend: leave it out."
            )
        self._check_steps()
        self._check_mesh()
        preset, output = self.model.preset, pathlib.Path(self.run.output).resolve()
        if preset is not None and output in pathlib.Path(preset).resolve().parents:
            raise ConfigError(
                f"`model.preset` must not lie in run.output={self.run.output!r}, which "
                f"the run may replace. Received: preset={preset!r}. Mend: another "
                "output."
            )
        if self.corpus.given and self.data.text != tables.DataConfig.text:
            raise ConfigError(
                "`data.text` and [corpus] cannot both be given: a run reads one of "
                f"them. Received: text={self.data.text!r}. Mend: delete one."
            )
        every = self.run.validate_every
        if enlarge % every or total % every:
            valid = divisors(math.gcd(enlarge, total))
            nearest = min(valid, key=lambda n: abs(n - every))
            raise ConfigError(
                "`run.validate_every` must divide budget.enlarge_steps="
                f"{enlarge} and the total of [budget], {total} steps. Received: "
                f"validate_every={every}. Mend: {nearest} is the nearest that does."
            )
        checkpoint_every = self.run.checkpoint_every
        if checkpoint_every is not None and checkpoint_every % every:
            nearest = max(1, round(checkpoint_every / every)) * every
            raise ConfigError(
                f"`run.checkpoint_every` must be a multiple of run.validate_every="
                f"{every}. Received: checkpoint_every={checkpoint_every}. Mend: "
                f"{nearest} is the nearest."
            )

    def _check_steps(self) -> None:
        parts, batch_size = self.micro_batches, self.data.batch_size
        if batch_size % parts:
            raise ConfigError(
                "`optimizer.gradient_accumulation_steps` must divide data.batch_size="
                f"{batch_size}, the sequences of a step. Received: "
                f"gradient_accumulation_steps={parts}. Mend: one of "
                f"{divisors(batch_size)}."
            )
        method = self.pruning.method
        if self.run.dtype == "mixed_float16" and method == "learned_mask":
            raise ConfigError(
                "`run.dtype` cannot be 'mixed_float16' with pruning.method="
                "'learned_mask', which weighs the loss's gradient against another, and "
                'there the loss is scaled. Mend: dtype = "mixed_bfloat16".'
            )
        if parts > 1 and method in _MEASURING:
            raise ConfigError(
                "`optimizer.gradient_accumulation_steps` must be 1 with pruning.method="
                f"{method!r}, which measures one batch a step. Received: "
                f"gradient_accumulation_steps={parts}. Mend: leave it out, or "
                'method = "sensitivity".'
            )

    def _check_mesh(self) -> None:
        rows, parts = self.distribution.size[0], self.micro_batches
        at_once = self.data.batch_size // parts
        if at_once % rows:
            mend = nearest_multiple(at_once, rows) * parts
            raise ConfigError(
                f"`distribution.mesh` has data={rows}, which must divide the sequences "
                f"computed at once: data.batch_size={self.data.batch_size} / "
                f"gradient_accumulation_steps={parts} = {at_once}. Mend: batch_size = "
                f"{mend}, or one of {divisors(at_once)} for data."
            )

    @property
    def micro_batches(self) -> int:
        """int, the parts into which the batch of an optimizer step is cut."""
        return self.optimizer.gradient_accumulation_steps

    def with_output(self, output: str) -> "RunConfig":
        """The same run, its results to another folder.

        Args:
            output: str, the run folder.

        Returns:
            `RunConfig`.
        """
        return dataclasses.replace(
            self, run=dataclasses.replace(self.run, output=output)
        )

    def with_mesh(self, mesh: dict[str, int]) -> "RunConfig":
        """The same run on other devices.

        Args:
            mesh: dict, as `[distribution] mesh`.

        Returns:
            `RunConfig`.

        Raises:
            ConfigError: if it does not divide the batch.
        """
        spread = dataclasses.replace(self.distribution, mesh=mesh)
        return dataclasses.replace(self, distribution=spread)

    def changes_from(self, other: "RunConfig") -> str:
        """What differs from another run, in words: "" if nothing does.

        Args:
            other: `RunConfig`. Where the results go does not count, nor on which
                devices they are computed.

        Returns:
            str: the first key that differs, with both values.
        """
        same_place = dataclasses.replace(
            other.with_output(self.run.output), distribution=self.distribution
        )
        here, there = map(dataclasses.asdict, (self, same_place))
        for table, values in here.items():
            for key, value in values.items():
                if value != there[table][key]:
                    was = there[table][key]
                    return f"{table}.{key} was {was!r} there and is {value!r}"
        return ""

    def to_toml(self) -> str:
        """The run as TOML text, every key spelled out.

        Returns:
            str that `load_config` reads back to an equal `RunConfig`.

        Raises:
            MissingPackage: if tomli-w is not installed.
        """
        tomli_w = require("tomli_w", "Writing a run's config", "cli")
        return tomli_w.dumps(
            {
                name: {key: value for key, value in table.items() if value is not None}
                for name, table in dataclasses.asdict(self).items()
            }
        )


def load_config(path: str | os.PathLike | None = None) -> RunConfig:
    """Reads and checks a run's description.

    Args:
        path: path of a TOML file; None: the demo that comes with the package.

    Returns:
        `RunConfig`.

    Raises:
        ConfigError: if the file cannot be read, is no TOML, or holds an unknown
            key or a value that cannot be: which one, and how to mend it.

    Example:
    >>> load_config().model.hidden_dim
    512
    """
    if path is None:
        demo = importlib.resources.files("keras_idea.runs") / "demo.toml"
        return parse_config(demo.read_text(encoding="utf-8"), name="demo")
    path = pathlib.Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"Cannot read the config {str(path)!r}: {error}. Give a TOML file in UTF-8."
        ) from None
    try:
        return parse_config(text, name=path.stem)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_config(text: str, name: str = "run") -> RunConfig:
    """Reads and checks TOML text; `name` makes the default output folder.

    Args:
        text: str, TOML.
        name: str; a run without an output goes to `runs/<name>`.

    Returns:
        `RunConfig`.

    Raises:
        ConfigError: as `load_config`.
    """
    try:
        received = tomllib.loads(text)
    # Besides its own error: an integer of too many digits, brackets in brackets.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"This is not valid TOML: {error}.") from None
    kinds = typing.get_type_hints(RunConfig)
    _refuse_unknown("table", received, kinds)
    parsed = {}
    for table, kind in kinds.items():
        values = received.get(table, {})
        if not isinstance(values, dict):
            raise ConfigError(
                f"`{table}` must be a table. Received: {table} = {values!r}. Mend: "
                f"write [{table}] on a line of its own, its keys below."
            )
        _refuse_unknown(f"key in [{table}]", values, _keys(kind))
        if table == "run":
            values = {"output": f"runs/{name}", **values}
        parsed[table] = kind(**values)
    return RunConfig(**parsed)


def _keys(kind: type[Table]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _refuse_unknown(what: str, received: Iterable[str], known: Collection[str]) -> None:
    for name in received:
        if name in known:
            continue
        kinds = typing.get_type_hints(RunConfig)
        homes = [table for table, kind in kinds.items() if name in _keys(kind)]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = ""
        if homes:
            hint = f"Mend: it belongs under [{homes[0]}]. "
        elif near:
            hint = f"Did you mean {near[0]!r}? "
        raise ConfigError(f"Unknown {what}: {name!r}. {hint}Valid: {', '.join(known)}.")
