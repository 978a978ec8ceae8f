"""Documents of a task of lm-evaluation-harness, rendered by the harness from data on this machine."""

import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

from apollod.curation.probes.harness_items import KINDS, Asked
from apollod.errors import ApolloError
from apollod.explain import reason

READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}
"""readers of `datasets`, by the suffix of a file"""
STRUCTURE = ("tag", "group", "task_list")
"""keys of a YAML file that say where a task belongs"""


def documents(task: str, data: Path, count: int) -> tuple[dict[str, Any], list[tuple[int, Asked]]]:
    """Return the configuration of a task (its name, or the path of its YAML), and up to `count` of its documents with
    their numbers, spread evenly; 0: all. `data`: a file of documents, or a directory laid out like a data set on the
    Hub. Uses no network. Raises ApolloError. Blocking, for seconds: it loads `datasets`."""
    if not data.exists():
        raise ApolloError(f"there are no data at {data}", "name a file of documents, or the directory of a data set")
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    try:
        tasks, yaml_loader, api = (
            importlib.import_module(f"lm_eval.{name}") for name in ("tasks", "tasks._yaml_loader", "api.task")
        )
    except ImportError as error:
        raise ApolloError(
            f"tasks of lm-evaluation-harness need a package that is not there: {error}",
            "install it beside apollod: pip install 'apollod[lm-eval]'",
        ) from error
    path = Path(task) if task.endswith((".yaml", ".yml")) else _place(tasks.TaskManager(), task)
    try:
        own = {key: value for key, value in yaml_loader.load_yaml(path).items() if key not in STRUCTURE}
        config = {"output_type": "generate_until"} | own
        if config["output_type"] not in KINDS or "class" in own:
            kind = "a Python class" if "class" in own else f"of output type {config['output_type']}"
            raise ApolloError(f"the task {task} is {kind}", f"take one of {' or '.join(KINDS)}, from a YAML file")
        # a cache of its own, so that a changed file with the same name is read again
        with tempfile.TemporaryDirectory(prefix="apollod-harness-") as cache:
            loaded = api.ConfigurableTask(config=config | _offline(data, own, cache))
            return config, _rendered(loaded, count)
    except ApolloError:
        raise
    except Exception as error:
        raise ApolloError(
            f"the task {task} cannot be read with {data}: {type(error).__name__}: {_line(error)}",
            "check that the documents have the fields that the task's templates name",
        ) from error


def _place(manager: Any, task: str) -> Path:
    """Path of the YAML file of a registered task."""
    entry = manager.task_index.get(task)
    if entry is None:
        raise ApolloError(f"lm-evaluation-harness has no task {task}", "see `lm_eval ls tasks`, or name a YAML file")
    if task not in manager.all_subtasks or entry.yaml_path is None:
        raise ApolloError(f"{task} is no single task with a YAML file", "name one of its tasks: `lm_eval ls tasks`")
    return Path(entry.yaml_path)


def _offline(data: Path, own: dict[str, Any], cache: str) -> dict[str, Any]:
    """Changes to a task's configuration that replace its data set. Few-shot examples are left out: they would be in
    every document."""
    split = own.get("test_split") or own.get("validation_split") or own.get("training_split") or "test"
    options: dict[str, Any] = {"cache_dir": cache}
    changes = {
        "test_split": split, "validation_split": None, "training_split": None, "fewshot_split": None,
        "fewshot_config": None, "num_fewshot": 0, "dataset_kwargs": options,
    }  # fmt: skip
    if data.is_dir():
        return changes | {"dataset_path": str(data.resolve())}
    if data.suffix not in READERS:
        raise ApolloError(f"{data} is no file of documents", f"use one that ends in {', '.join(READERS)}")
    options["data_files"] = {split: str(data.resolve())}
    return changes | {"dataset_path": READERS[data.suffix], "dataset_name": None}


def _rendered(task: Any, count: int) -> list[tuple[int, Asked]]:
    docs, found = task.eval_docs, list[tuple[int, Asked]]()
    wanted = min(count or len(docs), len(docs))
    for number in (place * len(docs) // wanted for place in range(wanted)):
        doc = docs[number]
        choices = task.doc_to_choice(doc) if task.config.doc_to_choice is not None else ()
        text = task.doc_to_text(doc)
        asked = f"{task.config.description or ''}{text}" if isinstance(text, str) else text
        found.append((number, Asked(asked, task.doc_to_target(doc), choices)))
    return found


def _line(error: Exception) -> str:
    return (reason(error) if isinstance(error, OSError) else str(error)).partition("\n")[0][:200]
