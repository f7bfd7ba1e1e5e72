"""Pruning a Distiller's student inside `fit`, the teacher left alone."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import Activation
from tests.support.helpers import (
    LossRecorder,
    residual_model,
    set_random_weights,
    to_numpy,
)

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch


def distiller(**compile_arguments):
    """A wide, frozen teacher and a student of the same layers and names."""
    keras.utils.set_random_seed(0)
    teacher, student = residual_model(), residual_model()
    for model in (teacher, student):
        set_random_weights(model)
    loss = keras.distillation.LogitsDistillation(temperature=2.0)
    pair = keras.distillation.Distiller(teacher, student, loss)
    pair.compile(keras.optimizers.AdamW(0.01), loss="mse", **compile_arguments)
    return pair


def trained(method, data, compact="end", run_eagerly=False):
    pair, recorder = distiller(run_eagerly=run_eagerly), LossRecorder()
    pair.student.predict(data[0], verbose=0)  # traces it wide
    prune = ki.IdeaPruneCallback(4, 5, 8, method=method, compact=compact)
    logs = pair.fit(*data, epochs=3, callbacks=[prune, recorder], **FIT)
    return pair, recorder.losses, logs.history["width"]


@pytest.mark.parametrize("name", ["sensitivity", "activation with data"])
def test_the_student_becomes_narrow_in_fit_and_the_teacher_stays(name, data):
    method = Activation(data[0]) if "data" in name else name
    pair, losses, widths = trained(method, data)
    wide = [to_numpy(variable) for variable in distiller().teacher.variables]
    students, teachers = map(ki.find_ffns, (pair.student, pair.teacher))
    assert [(ffn.hidden_dim, ffn.width) for ffn in students] == [(4, 4)] * 2
    assert [ffn.hidden_dim for ffn in teachers] == [16, 12]
    assert not any(to_numpy(ffn.scores).any() for ffn in teachers)
    assert [ffn.layer for ffn in ki.find_ffns(pair)] == [f.layer for f in students]
    assert widths[-1] == 4 and np.isfinite(losses).all()
    for before, variable in zip(wide, pair.teacher.variables, strict=True):
        np.testing.assert_array_equal(before, to_numpy(variable))

    narrow = ki.compact(pair.student)
    assert type(narrow.get_layer("ffn_0")) is ki.GatedFFN
    np.testing.assert_allclose(
        narrow.predict(data[0], verbose=0),
        pair.student.predict(data[0], verbose=0),
        atol=2e-5,
    )


def test_a_distiller_itself_is_not_compacted():
    with pytest.raises(ValueError, match=r"Distiller.*compact\(distiller.student\)"):
        ki.compact(distiller())
