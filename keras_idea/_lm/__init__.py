"""The application around the library: language models, from text to a served file."""
