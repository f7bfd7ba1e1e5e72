"""KerasHub's models: their families, conversion and presets."""
