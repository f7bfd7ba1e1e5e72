"""A refit's products are in float32, also where a GPU would take TF32."""

import numpy as np


def test_the_gram_matrix_asks_for_float32():
    import jax

    from keras_idea._surgery.refit import Products

    products = Products()
    hidden = np.ones((8, 3, 4), "float32")
    traced = jax.make_jaxpr(lambda values: products(values, None)[0])(hidden)
    asked = [
        equation.params["precision"]
        for equation in traced.jaxpr.eqns
        if equation.primitive.name == "dot_general"
    ]
    # One of the samples to fit on, one of those held out; each of both operands.
    assert asked == 2 * [2 * (jax.lax.Precision.HIGHEST,)]
    assert jax.config.jax_default_matmul_precision is None
