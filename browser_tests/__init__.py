"""Tests in a real browser: run once, on jax, by `make test`; see `browser.py`."""
