"""The pages with measured figures, written again from what was recorded."""
