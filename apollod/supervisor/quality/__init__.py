"""Carries out the quality guard: reads the probes and asks the engine. The decisions are in `core/rules/quality`."""
