"""What is measured and studied; nothing here is installed."""
