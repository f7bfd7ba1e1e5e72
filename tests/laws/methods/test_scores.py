"""One importance: what a method measures, in a callback, `shrink` and `search`."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_idea as ki
from keras_idea.functional.width import CubicWidth, WidthSchedule
from keras_idea.groups.state import Scoring
from keras_idea.methods import Decision, Magnitude, Method
from tests.support.helpers import to_numpy

F, BATCH = 12, 4
BUDGET = {"target_parameters": 70, "kinds": ["neurons"], "verbose": 0}


class Squares(Method):
    """The mean squared gradient of each kernel, and of the first one's bias too."""

    name = "squares"
    scoring = Scoring(ema_decay=0.5, matrix_reduce="mean")

    def score(self, ffn, gradients):
        up, down = map(gradients.of, ffn.kernels)
        bias = gradients.of(ffn.layers[0].bias)
        of_up = ops.mean(ops.square(up), axis=0) + ops.square(bias)
        return ops.stack([of_up, ops.mean(ops.square(down), axis=1)])


class Upwards(Method):
    """As many numbers as neurons; a user's method that decides once."""

    name = "upwards"

    def decision_step(self, begin_step, prune_steps):
        return begin_step

    def importance(self, model, groups, samples):
        return [ops.arange(group.hidden_dim, dtype="float32") for group in groups]


@pytest.fixture
def samples():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(10, 5)).astype("float32")
    return x, rng.normal(size=(10, 3)).astype("float32")


def network(rate=0.0, use_bias=False):
    keras.utils.set_random_seed(2)
    layers = [keras.layers.Dense(F, "relu", use_bias=use_bias)]
    layers += [keras.layers.Dense(3, use_bias=False)]
    model = keras.Sequential([keras.Input((5,)), *layers])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model


def kernels(model):
    up, down = model.layers
    return to_numpy(up.kernel).astype("float64"), to_numpy(down.kernel).astype(float)


def gradients(up, down, x, y, bias=0.0):
    """Of the mean squared error, for up, down and the bias of up, in float64."""
    z = x.astype("float64") @ up + bias
    hidden = np.maximum(z, 0)
    error = 2 * (hidden @ down - y) / y.size
    of_hidden = (error @ down.T) * (z > 0)
    return x.T @ of_hidden, hidden.T @ error, of_hidden.sum(0)


def kept_of(model, small):
    """Which neurons of a model another one still has."""
    up, narrow = kernels(model)[0], kernels(small)[0]
    return [int(np.flatnonzero((up == c[:, None]).all(0))[0]) for c in narrow.T]


def largest(values, k):
    return sorted(np.argsort(-values, kind="stable")[:k].tolist())


def test_shrink_by_sensitivity_against_numpy(samples):
    """The mean over batches, the last one smaller; the model stays as it is."""
    model = network()
    up, down = kernels(model)
    rows = []
    for at in range(0, 10, BATCH):
        g_up, g_down, _ = gradients(up, down, *(a[at : at + BATCH] for a in samples))
        rows.append([abs(g_up * up).mean(0), abs(g_down * down).mean(1)])
    expected = largest(np.mean(rows, axis=0).max(0), 5)
    small = ki.shrink(model, {"neurons": 5}, samples, "sensitivity", batch_size=BATCH)
    assert kept_of(model, small) == expected
    batches = [tuple(a[i : i + BATCH] for a in samples) for i in range(0, 10, BATCH)]
    small = ki.shrink(model, {"neurons": 5}, batches, ki.methods.Sensitivity())
    assert kept_of(model, small) == expected
    np.testing.assert_array_equal(kernels(model)[0], up)
    assert ki.find_ffns(model)[0].held_state is None and "apply" not in vars(
        model.optimizer
    )
    # Some other neurons if not all samples count.
    first = ki.shrink(model, {"neurons": 5}, samples, "sensitivity", num_samples=2)
    g_up, g_down, _ = gradients(up, down, *(a[:2] for a in samples))
    rows = [abs(g_up * up).mean(0), abs(g_down * down).mean(1)]
    assert kept_of(model, first) == largest(np.max(rows, axis=0), 5) != expected


def biased(samples):
    """A model with a bias, and what `Squares` measures of a batch, in float64."""
    x, y = samples
    model, bias = network(use_bias=True), np.linspace(-1, 1, F)
    model.layers[0].bias.assign(bias)
    up, down = kernels(model)

    def measured(at, alive=1.0):
        batch = x[at : at + BATCH], y[at : at + BATCH]
        weights = up * alive, (down.T * alive).T
        g_up, g_down, g_bias = gradients(*weights, *batch, bias * alive)
        return np.array([(g_up**2).mean(0) + g_bias**2, (g_down**2).mean(1)])

    return model, measured


def test_a_users_score_in_the_compiled_step(samples):
    """Its moving average over two steps, against NumPy."""
    x, y = samples
    model, measured = biased(samples)
    # By the first step's scores some neurons go, and so the second one's are others.
    before = 0.5 * measured(0)
    first = largest(before.mean(0), CubicWidth(F, 5, 0, 2)(1))
    alive = np.isin(np.arange(F), first)
    score = 0.5 * measured(BATCH, alive) + 0.5 * before
    prune = ki.IdeaPruneCallback(5, 0, 2, method=Squares(), compact="off")
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    model.fit(x[:8], y[:8], callbacks=[prune], **fit)
    [ffn] = ki.find_ffns(model)
    np.testing.assert_allclose(to_numpy(ffn.scores)[:, first], score[:, first], 1e-4)
    left = np.where(alive, score.mean(0), -1.0)
    assert np.flatnonzero(to_numpy(ffn.mask)).tolist() == largest(left, 5)


def test_shrink_takes_the_mean_of_a_users_score(samples):
    model, measured = biased(samples)
    eight = tuple(a[:8] for a in samples)
    small = ki.shrink(model, {"neurons": 5}, eight, Squares(), batch_size=BATCH)
    mean = (measured(0) + measured(BATCH)) / 2
    assert kept_of(model, small) == largest(mean.mean(0), 5)


def test_magnitude_follows_the_weights_as_they_change(samples):
    """In the callback each step by the weights before it; in `shrink` by the same."""
    x, y = samples
    model = network(rate=0.3)
    up, down = kernels(model)
    assert kept_of(model, ki.shrink(model, {"neurons": 5}, method="magnitude")) == (
        largest((up**2).sum(0) + (down**2).sum(1), 5)
    )
    schedule, alive = CubicWidth(F, 5, 0, 4), np.ones(F, bool)
    for step in range(1, 5):
        norms = np.where(alive, (up**2).sum(0) + (down**2).sum(1), -1.0)
        g_up, g_down, _ = gradients(up, down, x, y)
        up, down = up - 0.3 * alive * g_up, down - 0.3 * (alive * g_down.T).T
        alive = np.isin(np.arange(F), largest(norms, schedule(step)))
        up, down = up * alive, (down.T * alive).T
    prune = ki.IdeaPruneCallback(5, 0, 4, method=Magnitude(), compact="off")
    model.fit(x, y, batch_size=10, epochs=4, callbacks=[prune], verbose=0)
    [ffn] = ki.find_ffns(model)
    np.testing.assert_array_equal(to_numpy(ffn.mask), alive)
    np.testing.assert_allclose(kernels(model)[1], down, atol=1e-5)


class LinearWidth(WidthSchedule):
    def at(self, elapsed):
        going = self.full_dim - self.target_dim
        return self.full_dim - going * elapsed // self.prune_steps


class PowerWidth(WidthSchedule):
    def __init__(self, *sizes, power):
        self.power = power
        super().__init__(*sizes)

    def at(self, elapsed):
        left = (1 - elapsed / self.prune_steps) ** self.power
        return self.target_dim + round((self.full_dim - self.target_dim) * left)


def test_schedules_that_differ_in_an_attribute_of_their_own():
    """A traced step looks up what was worked out of an equal schedule."""
    slow, fast = (PowerWidth(12, 4, 0, 4, power=power) for power in (1, 3))
    assert slow != fast and slow == PowerWidth(12, 4, 0, 4, power=1)
    step = keras.ops.convert_to_tensor(1, "int32")
    assert [int(slow(step)), int(fast(step))] == [slow(1), fast(1)] == [10, 7]


class Linear(Magnitude):
    def width_schedule(self, *arguments):
        return LinearWidth(*arguments)


def test_a_width_schedule_of_a_users(samples):
    """The widths of the logs are the layers', and the masks follow it in a step."""
    model = network()
    prune = ki.IdeaPruneCallback(4, 1, 4, method=Linear(), compact="off")
    fit = {"batch_size": 10, "epochs": 6, "verbose": 0}
    logs = model.fit(*samples, callbacks=[prune], **fit).history
    assert logs["width"] == [12, 10, 8, 6, 4, 4]

    class Wrong(LinearWidth):
        def at(self, elapsed):
            return self.full_dim - elapsed

    with pytest.raises(ValueError, match="must return 12 for 0, and 4 for 2. Received"):
        Wrong(12, 4, 0, 2)

    class Rising(LinearWidth):
        def at(self, elapsed):
            return super().at(elapsed) if elapsed != 2 else 11

    with pytest.raises(ValueError, match=r"never rise. Received: \[12, 10, 11, 6, 4\]"):
        Rising(12, 4, 0, 4)


def test_a_method_of_ones_own_in_each_use(samples):
    """One function ranks for the callback, `shrink` and `search`."""
    model = network()
    small = ki.shrink(model, {"neurons": 5}, method=Upwards())
    assert kept_of(model, small) == list(range(7, F))
    found = ki.search(model, samples, method=Upwards(), **BUDGET)
    assert found[0].loss == pytest.approx(
        ki.shrink(model, found[0].targets, method=Upwards()).evaluate(
            *samples, verbose=0
        )
    )
    prune = ki.IdeaPruneCallback(5, 2, 1, method=Upwards(), compact="off")
    model.fit(*samples, batch_size=4, callbacks=[prune], verbose=0)
    [ffn] = ki.find_ffns(model)
    assert ffn.kept_neurons().tolist() == list(range(7, F))


def test_every_name_ranks_or_is_refused(samples):
    model = network()
    for name in ki.methods.METHODS:
        if name == "learned_mask":
            with pytest.raises(ValueError, match="'learned_mask' decides during train"):
                ki.shrink(model, {"neurons": 5}, samples, name)
            continue
        small = ki.shrink(model, {"neurons": 5}, samples, name)
        assert len(set(kept_of(model, small))) == 5
        found = ki.search(model, samples, method=name, **BUDGET)
        assert found[0].parameters <= 70
    by_seed = [
        kept_of(model, ki.shrink(model, {"neurons": 5}, method=ki.methods.Random(seed)))
        for seed in (0, 0, 1)
    ]
    assert by_seed[0] == by_seed[1] != by_seed[2]
    own = ki.methods.Activation(samples[0][:3])
    small = ki.shrink(model, {"neurons": 5}, samples, own)
    assert kept_of(model, small) == kept_of(
        model, ki.shrink(model, {"neurons": 5}, samples[0][:3])
    )
    # A refit that the object asks for is not forgotten.
    fitted = ki.methods.Activation(samples[0], refit=True)
    by_object = ki.shrink(model, {"neurons": 2}, method=fitted)
    by_name = ki.shrink(model, {"neurons": 2}, samples[0], refit=True)
    np.testing.assert_array_equal(kernels(by_object)[1], kernels(by_name)[1])
    assert not np.isin(kernels(by_object)[1], kernels(model)[1]).any()


class OwnStep(keras.Sequential):
    """Whose train step calls its loss something else."""

    def train_step(self, *arguments):
        logs = super().train_step(*arguments)
        found, state = (logs, ()) if isinstance(logs, dict) else (logs[0], logs[1:])
        found = {"error": found["loss"]}
        return (found, *state) if state else found


def test_a_train_step_of_a_users(samples):
    """It is the one that scores; and what it returns need not be called a loss."""
    plain = network()
    model = OwnStep([keras.Input((5,)), *plain.layers])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    found = [
        ki.shrink(each, {"neurons": 5}, samples, "sensitivity")
        for each in (plain, model)
    ]
    assert kept_of(plain, found[0]) == kept_of(model, found[1])


class TestRefused:
    def shrunk(self, model, data, method):
        return ki.shrink(model, {"neurons": 5}, data, method)

    def test_what_has_no_loss_or_no_data(self, samples):
        model = network()
        bare = keras.Model(model.inputs, model.outputs)
        with pytest.raises(ValueError, match="'sensitivity' judges by the model's own"):
            self.shrunk(bare, samples, "sensitivity")
        with pytest.raises(ValueError, match="needs `data` with targets"):
            self.shrunk(model, None, "sensitivity")
        with pytest.raises(ValueError, match="The loss needs targets"):
            self.shrunk(model, samples[0], "sensitivity")
        with pytest.raises(ValueError, match="batches of ndarray"):
            self.shrunk(model, [samples[0]], "sensitivity")
        with pytest.raises(ValueError, match="hold no sample"):
            self.shrunk(model, [], "sensitivity")
        with pytest.raises(ValueError, match="'activation' needs `data`"):
            self.shrunk(model, None, "activation")

    def test_what_nothing_can_be_ranked_by(self, samples):
        model = network()
        x, y = samples
        with pytest.raises(ValueError, match="is not finite on these data"):
            self.shrunk(model, (x, y * np.nan), "sensitivity")
        for layer in model.layers:
            layer.trainable = False
        with pytest.raises(ValueError, match="Nothing was measured of"):
            self.shrunk(model, samples, "sensitivity")

    def test_shapes_that_are_not_its_neurons(self, samples):
        model = network()
        wrong = Upwards()
        wrong.importance = lambda *_: [ops.ones((F + 1,))]
        with pytest.raises(ValueError, match=r"one number for each.*\(12,\).*\(13,\)"):
            self.shrunk(model, None, wrong)
        wrong.importance = lambda *_: []
        with pytest.raises(
            ValueError, match=r"shapes \[\(12,\)\]. Received: shapes \[\]"
        ):
            self.shrunk(model, None, wrong)
        wrong.importance = lambda *_: [ops.full((F,), np.nan)]
        with pytest.raises(ValueError, match="must be finite. Received: NaN"):
            self.shrunk(model, None, wrong)

        class Wrong(Squares):
            def score(self, ffn, gradients):
                return ops.ones((3, F))

        prune = ki.IdeaPruneCallback(5, 0, 1, method=Wrong())
        with pytest.raises(ValueError, match=r"\(12,\) or \(2, 12\). Received.*3, 12"):
            model.fit(*samples, callbacks=[prune], verbose=0)

    def test_one_that_only_decides(self, samples):
        class Decides(Method):
            name = "decides"

            def decision_step(self, begin_step, prune_steps):
                return begin_step

            def decide(self, model, jobs):
                return [Decision(np.ones(F, "float32")) for _ in jobs]

        with pytest.raises(ValueError, match="of your own needs `importance`"):
            self.shrunk(network(), samples, Decides())
