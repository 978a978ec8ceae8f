"""The quality guard, as far as it is carried out here: which probes there are, and how the engine is asked. When that
is, and what follows, is decided in `core/quality`."""
