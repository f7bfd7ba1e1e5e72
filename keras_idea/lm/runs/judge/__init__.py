"""`keras-idea evaluate`: a saved model is loaded and judged, its figures written."""
