"""The journal's file: one writer, readers that change nothing, and what is derived from events. SQL lives here only."""
