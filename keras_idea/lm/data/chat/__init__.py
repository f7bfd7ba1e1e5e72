"""Conversations: records, templates, and rows in which only responses count."""
