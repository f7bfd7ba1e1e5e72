"""The table `[chat]` of a run's description: prompts with responses."""

import dataclasses

from keras_idea.lm.runs.config import fields
from keras_idea.lm.runs.config.corpus_table import check_paths


@dataclasses.dataclass(frozen=True)
class ChatConfig(fields.Table):
    """`[chat]`: conversations, instead of `data.text` and `[corpus]`.

    A row of `model.sequence_length` tokens holds whole conversations, one after
    another. `data.validation_fraction` is the share of the prompts that is held out.
    `template` is a folder with a chat template, or its text; without it, that of
    `model.preset`. The loss counts responses only.
    """

    table = "chat"
    paths: tuple[str, ...] | None = fields.checked(None, check_paths)
    validation_paths: tuple[str, ...] | None = fields.checked(None, check_paths)
    template: str | None = fields.optional(fields.check_text)
    cache: str = fields.checked("runs/token-cache", fields.check_text)

    @property
    def given(self) -> bool:
        """bool, whether the run reads conversations."""
        return self.paths is not None

    def _check_together(self) -> None:
        set_ = [n for n in ("validation_paths", "template") if getattr(self, n)]
        if not self.given and set_:
            raise fields.ConfigError(
                "[chat] needs `paths`, the conversations to train on. Received: "
                f"{self.describe(*set_)}. Set `chat.paths`, or delete the table."
            )
