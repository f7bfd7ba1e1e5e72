"""The description of a run: one TOML file, one frozen dataclass a table.

Every key has a default, so that a file names only what differs. `demo.toml` in
`keras_idea/lm/runs` spells all of them out with comments.
"""

import dataclasses

from keras_idea.lm.runs.config import elastic_conflicts, table_conflicts, tables
from keras_idea.lm.runs.config.chat_table import ChatConfig
from keras_idea.lm.runs.config.corpus_table import CorpusConfig
from keras_idea.lm.runs.config.elastic_table import ElasticConfig, without_pruning
from keras_idea.lm.runs.config.model_table import ModelConfig
from keras_idea.validation import require

#: Tables and keys that a run may continue with other values of.
_MAY_CHANGE = {
    "budget.extend_steps",
    "chat.cache",
    "corpus.cache",
    "distillation.compare_without",
    "distribution",
    "optimizer.gradient_accumulation_steps",
    "run.checkpoint_every",
    "run.compare_from_scratch",
    "run.keep_checkpoints",
    "run.measure",
    "run.output",
    "run.rematerialize",
    "run.tensorboard",
    "sample",
}


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """A whole run: one attribute a TOML table.

    Example:
    >>> from keras_idea.lm.runs.config import load_config
    >>> config = load_config("run.toml")
    >>> config.budget.total_steps
    12
    """

    model: ModelConfig = ModelConfig()
    data: tables.DataConfig = tables.DataConfig()
    corpus: CorpusConfig = CorpusConfig()
    chat: ChatConfig = ChatConfig()
    budget: tables.BudgetConfig = tables.BudgetConfig()
    optimizer: tables.OptimizerConfig = tables.OptimizerConfig()
    distillation: tables.DistillationConfig = tables.DistillationConfig()
    pruning: tables.PruningConfig = tables.PruningConfig()
    elastic: ElasticConfig = ElasticConfig()
    distribution: tables.DistributionConfig = tables.DistributionConfig()
    sample: tables.SampleConfig = tables.SampleConfig()
    run: tables.RunSettings = tables.RunSettings()

    def __post_init__(self) -> None:
        optimizer, data, run = self.optimizer, self.data, self.run
        elastic_conflicts.check_elastic(
            self.elastic,
            self.budget,
            optimizer,
            self.distillation,
            self.distribution,
            run,
        )
        table_conflicts.check_schedule(self.budget, optimizer)
        table_conflicts.check_heads(self.model, self.pruning)
        table_conflicts.check_accumulation(data, optimizer, self.pruning, run)
        table_conflicts.check_sequences(data, optimizer, self.distribution)
        table_conflicts.check_text(self.model, data, self.corpus, self.chat)
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

    def with_extension(self, steps: int) -> "RunConfig":
        """The same run, longer by so many steps than planned."""
        budget = dataclasses.replace(self.budget, extend_steps=steps)
        return dataclasses.replace(self, budget=budget)

    def changes_from(self, other: "RunConfig") -> str:
        """The first key that differs from another run, with both values, or "".

        Where results and caches go does not count, nor on which devices, and in how
        many parts of a step, they are computed; nor which checkpoints and logs are
        kept, by how many steps they are trained longer than planned, and what is done
        once they are trained.
        """
        here, there = map(dataclasses.asdict, (self, other))
        for table, values in here.items():
            for key, value in values.items():
                was, name = there[table][key], f"{table}.{key}"
                if value != was and not {table, name} & _MAY_CHANGE:
                    return f"{name} was {was!r} there and is {value!r}"
        return ""

    def to_toml(self) -> str:
        """TOML that `load_config` reads back to an equal run, every key spelled out."""
        tomli_w = require("tomli_w", "Writing a run's config", "cli")
        said = {
            name: {key: value for key, value in table.items() if value is not None}
            for name, table in dataclasses.asdict(self).items()
        }
        return tomli_w.dumps(without_pruning(said) if self.elastic.given else said)
