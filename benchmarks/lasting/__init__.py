"""Lasting learning: taught facts are known in other words, and earlier knowledge is kept."""
