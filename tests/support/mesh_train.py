"""`keras-idea train`, whose checkpoints stay, and which can die on its way.

    python -m tests.support.mesh_train CONFIG.toml [STEP]

At the end of the first epoch that has done STEP steps or more the process dies.
"""

import os
import sys

import keras_idea as ki
from keras_idea._lm.runs.folder import RunFolder
from keras_idea_cli import main


def stay(self):
    """In place of `remove_checkpoints`."""


def dying(step, write):
    """`Checkpoint.on_epoch_end`, after which a process dies."""

    def on_epoch_end(self, epoch, logs=None):
        write(self, epoch, logs)
        if int(self.model.optimizer.iterations) >= step:
            sys.stdout.flush()
            os._exit(9)

    return on_epoch_end


if __name__ == "__main__":
    RunFolder.remove_checkpoints = stay
    if len(sys.argv) > 2:
        kind = ki.Checkpoint
        kind.on_epoch_end = dying(int(sys.argv[2]), kind.on_epoch_end)
    sys.exit(main(["train", sys.argv[1]]))
