"""What a gated FFN costs: parameters and FLOPs, as plain integers."""

from keras_idea.validation import check_int


def ffn_parameters(input_dim, hidden_dim, use_bias=False):
    """Parameters of one gated FFN: three kernels, and biases if it has them.

    Args:
        input_dim: int, the width `d` of the model.
        hidden_dim: int, the number of neurons `h`.
        use_bias: bool, whether up, gate and down have biases.

    Returns:
        int, `3 d h` (`+ 2 h + d` with biases).

    Example:
    >>> ffn_parameters(2048, 6528) - ffn_parameters(2048, 6527)  # 6144 = 3 * 2048
    """
    input_dim = check_int("input_dim", input_dim, minimum=1)
    hidden_dim = check_int("hidden_dim", hidden_dim, minimum=1)
    biases = 2 * hidden_dim + input_dim if use_bias else 0
    return 3 * input_dim * hidden_dim + biases


def ffn_flops(input_dim, hidden_dim, tokens=1, training=False):
    """Floating point operations of the three products of one gated FFN.

    A multiply-add counts two; the backward pass costs twice the forward one.

    Args:
        input_dim: int, the width `d` of the model.
        hidden_dim: int, the number of neurons `h`.
        tokens: int, how many tokens go through.
        training: bool, whether the backward pass counts too.

    Returns:
        int, `6 d h` a token forward, `18 d h` in training.
    """
    weights = ffn_parameters(input_dim, hidden_dim)
    return 2 * weights * check_int("tokens", tokens, minimum=0) * (3 if training else 1)
