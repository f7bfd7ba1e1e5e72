"""Exports of a narrow model, each checked before it is kept."""
