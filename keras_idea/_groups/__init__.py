"""The neurons of a model: which weights belong to one, found by following the data."""
