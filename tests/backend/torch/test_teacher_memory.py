"""What following a teacher keeps for its gradient, counted by torch itself."""

import torch

from keras_idea.lm.runs.config import load_config
from keras_idea.lm.runs.models.compiling import compiled
from keras_idea.lm.runs.models.footprint import teacher_footprint
from keras_idea.lm.runs.train.teacher import taught
from keras_idea.models import DecoderConfig, decoder

BATCH, LENGTH, VOCABULARY, HIDDEN = 4, 16, 300, 512


def model():
    shape = DecoderConfig(
        vocabulary_size=VOCABULARY,
        model_dim=8,
        num_layers=1,
        num_heads=1,
        hidden_dim=HIDDEN,
        sequence_length=LENGTH,
    )
    return decoder(shape)


def test_the_plan_counts_what_the_divergence_keeps(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        f"[model]\nsequence_length = {LENGTH}\n[data]\nbatch_size = {BATCH}\n"
        '[distillation]\nteacher = "anywhere"\n'
    )
    config, teacher = load_config(path), model()
    distiller = taught(config, compiled(config, model()), teacher)
    (loss,) = distiller.distillation_losses
    student, theirs = (torch.randn(BATCH, LENGTH, VOCABULARY) for _ in range(2))
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        value = loss.compute_loss(theirs, student.requires_grad_())
    counted = sum(size for size, _ in kept.values()) + theirs.nbytes
    planned = teacher_footprint(config, teacher).activations
    assert value.requires_grad and abs(planned / counted - 1) < 0.01
