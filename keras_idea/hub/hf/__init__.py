"""Checkpoints of Hugging Face, loaded into KerasHub and compared with transformers."""
