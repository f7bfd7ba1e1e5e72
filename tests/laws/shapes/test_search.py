"""Shapes that a search finds: what they cost and lose, by the models themselves."""

import keras
import pytest

import keras_idea as ki
from tests.support.block_chains import WIDTH, chain


class TestSearch:
    @pytest.mark.parametrize(
        ("blocks", "target"), [(["blocks"], 2300), ([], 3200)], ids=["depth", "widths"]
    )
    def test_candidates_cost_and_lose_what_the_shrunk_models_do(
        self, samples, blocks, target
    ):
        """Of one depth, they are judged in one copy of the model, one after another."""
        model = chain()
        found = ki.search(
            model,
            samples,
            target_parameters=target,
            kinds=["neurons", "kv_groups", *blocks],
            candidates=3,
            verbose=0,
        )
        assert len({str(c.targets) for c in found}) == len(found) >= 2
        if blocks:
            assert len(found) == 3
        assert [c.loss for c in found] == sorted(c.loss for c in found)
        for candidate in found:
            small = ki.shrink(model, candidate.targets, samples)
            assert small.count_params() == candidate.parameters <= target
            assert small.evaluate(*samples, verbose=0) == pytest.approx(
                candidate.loss, rel=1e-5
            )

    def test_ffns_that_are_not_equally_wide(self, samples):
        x = inputs = keras.Input((6, WIDTH))
        for width in (20, 12):
            hidden = keras.layers.Dense(width, activation="relu")(x)
            x = x + keras.layers.Dense(WIDTH)(hidden)
        model = keras.Model(inputs, keras.layers.Dense(5)(x))
        model.compile("sgd", loss="mse")
        (found,) = ki.search(
            model, samples, target_parameters=600, kinds=["neurons"], verbose=0
        )
        small = ki.shrink(model, found.targets, samples)
        assert small.count_params() == found.parameters <= 600
        widths = [ffn.hidden_dim for ffn in ki.find_ffns(small)]
        assert widths == [round(found.targets["neurons"] * n) for n in (20, 12)]

    def test_the_table_and_the_picture(self, samples, tmp_path, capsys):
        plot = tmp_path / "search.png"
        found = ki.search(
            chain(2),
            samples,
            target_flops=2900,
            kinds=["neurons"],
            round_to=4,
            plot=plot,
        )
        (best,) = found
        assert best.targets["neurons"] % 4 == 0 and best.flops <= 2900
        lines = capsys.readouterr().out.splitlines()
        assert any("as it is" in line for line in lines)
        assert lines[-1].split() == [
            "1",
            f"{best.loss:.4f}",
            f"{best.parameters:,}",
            str(best.targets["neurons"]),
        ]
        assert plot.read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        "arguments, match",
        [
            ({}, "needs a budget"),
            ({"target_parameters": 9, "target_flops": 9}, "Give one of"),
            ({"target_parameters": 10**9}, "itself is within"),
            ({"target_parameters": 9}, "cannot be met: .* `limits` allow"),
            ({"target_parameters": 2000, "kinds": ["depth"]}, "`kinds` must be one of"),
            (
                {"target_parameters": 2000, "limits": {"blocks": 2}},
                r"float in \(0, 1\]",
            ),
        ],
    )
    def test_refused(self, samples, arguments, match):
        with pytest.raises(ValueError, match=match):
            ki.search(chain(2), samples, verbose=0, **arguments)
