"""How narrow a model is to become: by a number, a share, or a budget."""
