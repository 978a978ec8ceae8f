"""What a judge is asked about an example, and what its answers are taken for. Pure; whom it is asked about, and what
follows from a verdict, is decided in `core/judging`."""
