"""KerasHub's models: their families, configs, inputs and tokenizers."""
