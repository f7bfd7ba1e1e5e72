"""KerasHub's tasks that put a head on an encoder: pruned, compacted and saved."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.encoders import backbone, inputs
from tests.support.hub_models import ENCODERS
from tests.support.hub_training import foreign

TARGET, SIZE = 10, 16

#: Task -> the row of its encoder. The first has the pooled output's layer in the
#: backbone, the others in the task; no config says how wide that is.
CLASSIFIERS = {
    "BertTextClassifier": "bert",
    "RobertaTextClassifier": "roberta",
    "DebertaV3TextClassifier": "deberta",
}


def classifier(name):
    import keras_hub

    core = backbone(CLASSIFIERS[name])
    cls = getattr(keras_hub.models, name)
    model = cls(backbone=core, num_classes=2, preprocessor=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    return model, (inputs(core, SIZE), np.arange(SIZE) % 2)


@pytest.mark.daily()
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_is_narrow_saved_and_compacted(name, tmp_path):
    model, data = classifier(name)
    prune = ki.IdeaPruneCallback(TARGET, 1, 2)
    model.fit(*data, batch_size=4, verbose=0, callbacks=[prune])
    (argument,) = ENCODERS[CLASSIFIERS[name]].widths
    assert model.backbone.get_config()[argument] == TARGET
    assert foreign(model) == []
    expected = model.predict(data[0], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(loaded.predict(data[0], verbose=0), expected, atol=1e-6)
    again = ki.compact(model)
    np.testing.assert_allclose(again.predict(data[0], verbose=0), expected, atol=1e-6)


@pytest.mark.daily()
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_masked_classifier_is_compacted_and_saved(name, tmp_path):
    model, data = classifier(name)
    prune = ki.IdeaPruneCallback(TARGET, 1, 2, compact="off")
    model.fit(*data, batch_size=4, verbose=0, callbacks=[prune])
    expected = model.predict(data[0], verbose=0)
    narrow = ki.compact(model)
    assert narrow.count_params() < model.count_params()
    np.testing.assert_allclose(narrow.predict(data[0], verbose=0), expected, atol=1e-6)
    narrow.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(loaded.predict(data[0], verbose=0), expected, atol=1e-6)
