"""What a run tells while it trains."""
