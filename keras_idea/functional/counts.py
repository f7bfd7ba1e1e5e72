"""What an FFN and a whole model cost: parameters and FLOPs, as plain integers."""

from keras_idea._validation import check_int


def ffn_parameters(input_dim: int, hidden_dim: int, use_bias: bool = False) -> int:
    """Counts the parameters of one gated FFN: three kernels, and biases if used.

    Args:
        input_dim: int >= 1. The width `d` of the model.
        hidden_dim: int >= 1. The FFN width `h`.
        use_bias: bool. Whether up, gate and down have biases. Defaults to False.

    Returns:
        int, `3 d h` (`+ 2 h + d` with biases).

    Raises:
        ValueError: If a width is not an integer >= 1.

    Example:
    >>> ffn_parameters(2048, 6528) - ffn_parameters(2048, 6527)
    6144
    """
    input_dim = check_int("input_dim", input_dim, minimum=1)
    hidden_dim = check_int("hidden_dim", hidden_dim, minimum=1)
    biases = 2 * hidden_dim + input_dim if use_bias else 0
    return 3 * input_dim * hidden_dim + biases


def ffn_flops(
    input_dim: int, hidden_dim: int, tokens: int = 1, training: bool = False
) -> int:
    """Counts the floating-point operations of the three products of one gated FFN.

    A multiply-add counts as two. The backward pass costs twice the forward pass.

    Args:
        input_dim: int >= 1. The width `d` of the model.
        hidden_dim: int >= 1. The FFN width `h`.
        tokens: int >= 0. The number of tokens. Defaults to 1.
        training: bool. Whether to count the backward pass too. Defaults to False.

    Returns:
        int, per token `6 d h` for the forward pass, `18 d h` in training.

    Raises:
        ValueError: If an argument is outside its range.
    """
    weights = ffn_parameters(input_dim, hidden_dim)
    return 2 * weights * check_int("tokens", tokens, minimum=0) * (3 if training else 1)


def token_multiply_adds(
    weights: int, attention_width: int = 0, sequence_length: int = 0
) -> int:
    """Multiply-adds that a token costs in a forward pass: all products of matrices.

    Each of the `weights` in matrices is multiplied once. The products of queries and
    keys, and of their result and values, have no weights: each token meets every
    position of its sequence in both, since the whole square is computed, masked or not.
    `attention_width` counts the features of the queries, summed over the layers.

    Example:
    >>> token_multiply_adds(1000, attention_width=16, sequence_length=10)
    1320
    """
    return weights + 2 * sequence_length * attention_width


def train_flops(multiply_adds: float, tokens: float) -> float:
    """Operations of training: a multiply-add is two, the backward pass two forward.

    Example:
    >>> train_flops(1000, tokens=10)
    60000
    """
    return 6 * multiply_adds * tokens
