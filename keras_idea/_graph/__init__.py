"""What a model's units are, and what holds their numbers."""
