"""Wiring: the only place that knows both the core and the adapters. Never imports torch, transformers or vllm."""
