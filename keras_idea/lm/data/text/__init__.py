"""Text: where it comes from, what is left out of it, and which tokens it becomes."""
