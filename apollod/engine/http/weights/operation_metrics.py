"""Feeds the metrics of vLLM 0.32 for weight transfers, which dashboards of trainers show:
`vllm:rl_weight_update_operation_duration_seconds` and `vllm:rl_weight_update_operations_in_flight`. vLLM counts them in
its own routes, in whose place ours are; vLLM 0.26 has none."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

OPERATIONS = {
    "/init_weight_transfer_engine": "init",
    "/init_weights_update_group": "init",
    "/start_weight_update": "start",
    "/begin_weight_update": "start",
    "/start_draft_weight_update": "start_draft",
    "/update_weights": "update",
    "/update_weights_from_distributed": "update",
    "/update_weights_from_disk": "update",
    "/finish_weight_update": "finish",
    "/end_weight_update": "finish",
    "/continue_generation": "finish",
    "/shutdown_weight_transfer_engine": "shutdown",
    "/destroy_weights_update_group": "shutdown",
}
"""route -> vLLM's name of what it does (vllm/entrypoints/rl/online/metrics.py)"""


@cache
def _metrics() -> Any:
    """vLLM's own collectors, made once in its registry; None if it has none."""
    try:
        from vllm.entrypoints.rl.online.metrics import weight_operation_metrics
    except ImportError:
        return None
    return weight_operation_metrics()


def timed(path: str) -> AbstractContextManager[None]:
    """Measures a call of this route."""
    operation = OPERATIONS.get(path)
    if operation is None or (metrics := _metrics()) is None:
        return nullcontext()
    measured: AbstractContextManager[None] = metrics.record(operation)
    return measured
