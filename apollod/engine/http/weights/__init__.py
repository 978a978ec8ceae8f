"""Routes by which trainers outside of apollod write the weights, in two dialects: vLLM's weight transfer
(`vllm_routes`) and SGLang's (`sglang_routes`). Served only where `[control]` is enabled.

Each route is a translation to control requests of the supervisor (`update_calls`), which receives, checks, writes,
undoes and records. What is kept here is which update the callers of a dialect have begun, so that none is committed of
which a part failed. Bodies are read and answers are built by functions without a server (`vllm_bodies`,
`sglang_bodies`, on `body_checks`). What runs in the engine itself is `engine.refresh`.
"""
