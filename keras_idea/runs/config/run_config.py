"""The description of a run: one TOML file, one frozen dataclass a table.

Every key has a default, so that a file names only what differs. `demo.toml` in
`keras_idea/runs` spells all of them out with comments.
"""

import dataclasses
import importlib.resources
import os
import pathlib
import tomllib
import typing
from collections.abc import Collection, Iterable

from keras_idea.errors import ConfigError
from keras_idea.extras import require
from keras_idea.runs.config import table_conflicts, tables
from keras_idea.runs.config.corpus_table import CorpusConfig
from keras_idea.runs.config.fields import Table
from keras_idea.runs.config.model_table import ModelConfig
from keras_idea.validation import did_you_mean


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
        optimizer, data, run = self.optimizer, self.data, self.run
        table_conflicts.check_schedule(self.budget, optimizer)
        table_conflicts.check_heads(self.model, self.pruning)
        table_conflicts.check_accumulation(data, optimizer, self.pruning, run)
        table_conflicts.check_sequences(data, optimizer, self.distribution)
        table_conflicts.check_paths(self.model, data, self.corpus, run)
        table_conflicts.check_validations(self.budget, run)
        table_conflicts.check_checkpoints(run)

    @property
    def micro_batches(self) -> int:
        """int, the parts into which the batch of an optimizer step is cut."""
        return self.optimizer.gradient_accumulation_steps

    @property
    def tokens_at_once(self) -> int:
        """int, the tokens of a part on one device."""
        rows = self.data.batch_size // self.micro_batches // self.distribution.size[0]
        return rows * self.model.sequence_length

    @property
    def teacher_dtype(self) -> str:
        """str, the dtype that the teacher computes in."""
        return self.distillation.teacher_dtype or self.run.dtype

    def with_output(self, output: str) -> "RunConfig":
        """The same run, its results to another folder."""
        return dataclasses.replace(
            self, run=dataclasses.replace(self.run, output=output)
        )

    def with_mesh(self, mesh: dict[str, int]) -> "RunConfig":
        """The same run on other devices; `mesh` is that of `[distribution]`."""
        spread = dataclasses.replace(self.distribution, mesh=mesh)
        return dataclasses.replace(self, distribution=spread)

    def changes_from(self, other: "RunConfig") -> str:
        """The first key that differs from another run, with both values, or "".

        Where the results go does not count, nor on which devices they are computed.
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
        """TOML that `load_config` reads back to an equal run, every key spelled out."""
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
        text = path.read_text(encoding="utf-8-sig")  # some editors write a mark first
    except (OSError, ValueError) as error:  # a NUL in the path, or no UTF-8
        raise ConfigError(
            f"Cannot read the config {str(path)!r}: {error}. Give a TOML file in UTF-8."
        ) from None
    try:
        return parse_config(text, name=path.stem)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_config(text: str, name: str = "run") -> RunConfig:
    """Reads and checks TOML text; a run without an output goes to `runs/<name>`."""
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
                f"`{table}` must be a table. Received: {table}={values!r}. Write "
                f"[{table}] on a line of its own, with its keys below."
            )
        _refuse_unknown(f"key in [{table}]", values, _keys(kind))
        parsed[table] = kind(**values)
    parsed["run"] = parsed["run"].with_defaults(output=f"runs/{name}")
    return RunConfig(**parsed)


def _keys(kind: type[Table]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _refuse_unknown(what: str, received: Iterable[str], known: Collection[str]) -> None:
    for name in received:
        if name in known:
            continue
        kinds = typing.get_type_hints(RunConfig)
        homes = [table for table, kind in kinds.items() if name in _keys(kind)]
        hint = did_you_mean(name, known)
        if homes:
            hint = f" Move it under [{homes[0]}]."
        raise ConfigError(f"Unknown {what}: {name!r}.{hint} Valid: {', '.join(known)}.")
