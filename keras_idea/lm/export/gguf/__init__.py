"""GGUF files: which families llama.cpp computes, how their weights and tokens lie."""
