"""What `make docs` makes of the repository."""
