"""Shared by demo, benchmarks and tests: the one driver of a daemon (`daemon`), and an engine without vLLM
(`stub_engine`).

Nothing here is needed to serve or to learn, and nothing here imports pytest, torch or vLLM.
"""
