"""Hugging Face folders: which backbones are exported rightly, and their tokenizers."""
