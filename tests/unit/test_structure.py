"""The shape of apollod/, read from its files: which way imports point, how full a folder is, what a name means.

What import-linter says of packages is said here of files, and imports inside functions count like any other. Each rule
has a list of what breaks it today. The lists are exact: a new violation fails, and so does an entry that is not one any
more.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import apollod

ROOT = Path(apollod.__file__).parent
MODULES_MAX = 20

# --- what may stay, and why ------------------------------------------------------------------------------------------

NO_PACKAGE = {"apollod/engine/site": "put on PYTHONPATH for its sitecustomize, never imported by a dotted name"}
UNIFORM = {"events", "state", "inputs", "effects", "policy", "fold", "status"}
"""What every large subject of the core calls its own modules."""
BY_SUBJECT = {"apollod.core.facts", "apollod.core.rules"}
"""Packages in which a module has the name of its subject."""
START_UP: set[tuple[str, str]] = set()
"""Imports (from, to) inside a function, on a cycle of files, that save time at start; each with its reason."""

# --- what breaks a rule today: to be emptied ------------------------------------------------------------------------

CYCLES_TODAY: set[frozenset[str]] = set()
UPWARD_TODAY: set[tuple[str, str]] = set()
FULL_TODAY: set[str] = set()
UNDOCUMENTED_TODAY: set[str] = set()
AMBIGUOUS_TODAY: set[tuple[str, frozenset[str]]] = set()

# --- the layers ------------------------------------------------------------------------------------------------------

BASE = {"errors", "explain", "failpoints", "foreign_wheels", "permission", "__init__"}
SMALL = {"adapters.ipc", "adapters.system"}
"""Adapters that the children know, too."""
ALL_BUT_ENTRY = {"core", "wire", "model", "curation", "bridges", "store", "adapters", "supervisor"}
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "failpoints": {"errors"},
    "permission": {"errors"},
    "explain": {"errors", "permission"},
    "foreign_wheels": set(),
    "core": BASE,
    "wire": BASE | {"core"},
    "model": BASE | {"core", "wire"},
    "curation": BASE | {"core", "wire", "model"},
    "bridges": BASE | {"core", "wire", "model"},
    "store": BASE | {"core", "wire", "model"} | SMALL,
    "adapters": BASE | {"core", "wire", "model", "curation", "bridges", "store"},
    "products": set(),
    "sender": {"bridges", "errors"},
    "reader": set(),
    "trainer": BASE | {"core", "wire", "model", "bridges", "store", "products"} | SMALL,
    "engine": BASE
    | {"core", "wire", "model", "bridges", "store", "products", "sender", "adapters.answer_store", "curation.redaction"}
    | SMALL,
    "receiver": BASE | {"wire", "bridges"} | SMALL,
    "supervisor": BASE | {"core", "wire", "model", "curation", "bridges", "store", "adapters"},
    "testing": BASE | ALL_BUT_ENTRY,
    "demo": BASE | ALL_BUT_ENTRY | {"testing"},
    "cli": BASE | ALL_BUT_ENTRY | {"testing", "demo"},
    "__main__": {"cli"},
}
"""What the files of each room may import besides their own room."""

PROCESSES = {
    "daemon and commands": ("cli", "supervisor"),
    "trainer": ("trainer",),
    "engine": ("engine",),
    "receiver": ("receiver",),
}


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read(root: Path, files: str = "*.py") -> dict[str, ast.Module]:
    """Every module of a package by its dotted name."""
    return {module_of(path, root): ast.parse(path.read_bytes()) for path in sorted(root.rglob(files))}


def imported(tree: ast.Module, known: Iterable[str]) -> Iterator[str]:
    """The known modules that a file imports, wherever in the file and also by import_module("a.b").

    `from a import b` is a.b if that is a module, else a.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.Call) and called(node).endswith("import_module"):
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant) and arg.value in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not resolved here"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else str(node.module)


def called(node: ast.Call) -> str:
    """The last name of what is called; empty where that has none."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


@cache  # read by the tests, not by every worker that collects this file
def graph_of(root: Path) -> dict[str, set[str]]:
    files = {module_of(path, root): path for path in sorted(root.rglob("*.py"))}
    # one tree at a time: hundreds of them are what the garbage collector then looks through again and again
    return {name: set(imported(ast.parse(path.read_bytes()), files)) - {name} for name, path in files.items()}


def cycles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules that import each other, by Tarjan's strongly connected components."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = set()

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.add(frozenset(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def room(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def upward(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Imports of a room that is not below the importing one."""

    def allowed(module: str, other: str) -> bool:
        inner = other.partition(".")[2] or "__init__"
        if room(module) in (room(other), "__init__"):
            return True
        return any(inner == one or inner.startswith(f"{one}.") for one in BELOW.get(room(module), set()))

    return {(module, other) for module, others in graph.items() for other in others if not allowed(module, other)}


def folders(root: Path) -> dict[str, list[Path]]:
    """Python files by folder."""
    found = defaultdict(list)
    for path in root.rglob("*.py"):
        found[str(path.parent.relative_to(root.parent))].append(path)
    return found


def ambiguous(graph: dict[str, set[str]]) -> set[tuple[str, frozenset[str]]]:
    """(basename, modules that have it) where one process loads more than one of them."""
    found = set()
    for rooms in PROCESSES.values():
        seen: set[str] = set()
        todo = [module for module in graph if room(module) in rooms]
        while todo:
            if (module := todo.pop()) not in seen:
                seen.add(module)
                todo += graph[module]
        named = defaultdict(set)
        for module in seen - packages(graph):
            parent, _, base = module.rpartition(".")
            if base != "__main__" and parent not in BY_SUBJECT and not (base in UNIFORM and room(module) == "core"):
                named[base].add(module)
        found |= {(base, frozenset(modules)) for base, modules in named.items() if len(modules) > 1}
    return found


def packages(graph: Iterable[str]) -> set[str]:
    return {name.rpartition(".")[0] for name in graph}


def test_files_import_each_other_in_no_circle() -> None:
    graph = {
        module: {other for other in others if (module, other) not in START_UP}
        for module, others in graph_of(ROOT).items()
    }
    assert cycles(graph) == CYCLES_TODAY


def test_no_import_points_upward() -> None:
    assert {room(module) for module in graph_of(ROOT)} - {"__init__"} <= BELOW.keys(), "a room that no layer names"
    assert upward(graph_of(ROOT)) == UPWARD_TODAY


def test_no_folder_holds_more_modules_than_a_reader_surveys() -> None:
    counts = Counter({name: sum(path.stem != "__init__" for path in paths) for name, paths in folders(ROOT).items()})
    assert {name for name, count in counts.items() if count > MODULES_MAX} == FULL_TODAY


def test_every_package_says_what_lives_there() -> None:
    modules = read(ROOT, "__init__.py")
    undocumented = {
        name
        for name in folders(ROOT)
        if name not in NO_PACKAGE and not ast.get_docstring(modules.get(name.replace("/", "."), ast.Module([], [])))
    }
    assert undocumented == UNDOCUMENTED_TODAY


def test_a_basename_means_one_module_in_a_process() -> None:
    assert ambiguous(graph_of(ROOT)) == AMBIGUOUS_TODAY


def test_the_rules_see_what_breaks_them(tmp_path: Path) -> None:
    """A package made of violations: the rules above can fail."""
    root = tmp_path / "apollod"
    sources = {
        "__init__": '"""Root."""', "cli/__init__": "",
        "cli/a": "def f():\n    from apollod.cli import b", "cli/b": "import apollod.cli.a",
        "trainer/d": "import importlib\nimportlib.import_module('apollod.trainer.e')",
        "trainer/e": "from apollod.trainer.d import x",
        "core/x": "from apollod.cli.b import y",
        "trainer/codec": "", "supervisor/codec": "", "cli/codec": "from apollod.supervisor import codec",
        "core/state": "", "core/rollback/state": "", "cli/c": "import apollod.core.state, apollod.core.rollback.state",
    }  # fmt: skip
    for name, text in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.py").write_text(text)
    graph = graph_of(root)
    assert cycles(graph) == {
        frozenset({"apollod.cli.a", "apollod.cli.b"}), frozenset({"apollod.trainer.d", "apollod.trainer.e"}),
    }  # fmt: skip
    assert upward(graph) == {("apollod.core.x", "apollod.cli.b")}
    assert ambiguous(graph) == {("codec", frozenset({"apollod.cli.codec", "apollod.supervisor.codec"}))}
    assert len(folders(root)["apollod/cli"]) == 5 and "apollod/trainer" in folders(root)
