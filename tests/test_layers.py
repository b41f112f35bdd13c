"""Who may import what, what no file may call, and how long things may get."""

from __future__ import annotations

import ast
import graphlib
import sys

import pytest
from paths import ROOT

PACKAGES = ("anchors", "crbc_envs", "crbc_rl", "crbc_lab")
"""From the ground up: each imports those before it, and none behind."""
PLUG_IN = "crbc_verifiers.py"
"""For verifiers, which finds no name with dots: beside the adapters of `crbc_rl`."""
FILES = {str(path.relative_to(ROOT)): path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))}
FILES[PLUG_IN] = ROOT / PLUG_IN
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
FORBIDDEN_CALLS = {"eval", "exec", "pickle.load", "pickle.loads", "yaml.load", "torch.load", "os.system", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}


def under(folder):
    return {name: tree for name, tree in TREES.items() if name.startswith(f"{folder}/")}


def imported(tree):
    """Every module a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module


def dotted(node):
    """The dotted name of an expression: "yaml.load"; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize(("packages", "most"), [((*PACKAGES, PLUG_IN), 52_340), (("crbc_rl",), 13_290)])
def test_the_house_stays_small(packages, most):
    # Who raises a figure says in the commit what was given up first.
    lines = sum(path.read_bytes().count(b"\n") for name, path in FILES.items() if name.split("/")[0] in packages)
    assert lines <= most, f"{lines:,} lines in {', '.join(packages)}: delete something first"


def calls(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def loaded(run_python, module):
    """Top-level modules in sys.modules after importing `module` in a fresh interpreter."""
    return set(run_python(f"import sys, {module}; print(*{{m.split('.')[0] for m in sys.modules}})").split())


def test_anchors_imports_numpy_and_the_standard_library_only():
    allowed = {"anchors", "numpy", *sys.stdlib_module_names}
    for name, tree in under("anchors").items():
        assert {module.split(".")[0] for module in imported(tree)} <= allowed, name


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_none_above_it(package):
    above = PACKAGES[PACKAGES.index(package) + 1 :]
    for name, tree in under(package).items():
        assert not [module for module in imported(tree) if module.split(".")[0] in above], name


def test_the_plug_in_stands_on_the_environments_and_the_check_of_a_version():
    own = [module for module in imported(TREES[PLUG_IN]) if module.split(".")[0] in PACKAGES]
    assert set(own) == {"crbc_envs", "crbc_envs.prompts", "crbc_rl.adapters"}


def test_credit_imports_no_environment_and_no_deep_learning():
    allowed = {"anchors", "crbc_rl.credit", "numpy", "scipy", *sys.stdlib_module_names}
    for name, tree in under("crbc_rl/credit").items():
        for module in imported(tree):
            assert any(module == a or module.startswith(f"{a}.") for a in allowed), (name, module)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("anchors", {"scipy", "gymnasium", "torch", "crbc_envs", "crbc_rl"}),
        ("crbc_rl.credit", {"torch", "transformers", "gymnasium", "crbc_envs", "pydantic", "matplotlib"}),
        ("crbc_envs", {"torch", "transformers", "scipy", "PIL", "matplotlib", "pydantic", "pyarrow", "crbc_rl", "ray"}),
        ("crbc_envs.storage.rollouts", {"torch", "PIL", "pyarrow", "crbc_rl"}),
        ("crbc_rl", {"torch", "transformers", "gymnasium", "crbc_envs", "pydantic", "scipy", "crbc_lab"}),
        ("crbc_lab", {"torch", "transformers", "gymnasium", "crbc_envs", "pydantic", "scipy", "matplotlib"}),
    ],
)
def test_importing_a_layer_loads_nothing_heavy(run_python, module, absent):
    modules = loaded(run_python, module)
    assert module.split(".")[0] in modules
    assert not modules & absent


def test_playing_sokoban_loads_nothing_heavy(run_python):
    code = """
import sys, gymnasium, crbc_envs
env = crbc_envs.GroupVectorEnv("CRBC-Sokoban-v0", group_size=2)
env.reset(seed=0)
env.step(["up", "down"])
print(*{"torch", "transformers", "scipy", "PIL", "matplotlib", "pyarrow", "crbc_rl"} & set(sys.modules))
"""
    assert run_python(code) == ""


def module_of(name):
    """The dotted name of a file; a package's own for its __init__.py."""
    return name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


MODULES = {module_of(name): name for name in FILES}


def imports_of(name):
    """The project's own modules that a file imports, wherever in it: also in functions, and for types alone."""
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & set(MODULES) if inner <= set(MODULES) else (inner & set(MODULES)) | {node.module}
    return (found & set(MODULES)) - {module_of(name)}


@pytest.fixture(scope="module")
def graph():
    return {module: imports_of(name) for module, name in MODULES.items()}


def circles(graph):
    """The sets of nodes that lead back to themselves, one such set at a time."""
    try:
        tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def rooms(graph, folder):
    """The arrows between what lies directly in a folder, files and folders alike."""
    arrows = {}
    inside = [module for module in graph if module.startswith(f"{folder}.")]
    for module in inside:
        here = module.removeprefix(f"{folder}.").split(".")[0]
        there = {other.removeprefix(f"{folder}.").split(".")[0] for other in graph[module] if other in inside}
        arrows.setdefault(here, set()).update(there - {here})
    return arrows


FLOORS = {
    "anchors": "key rollout columns interned process coverage",
    "crbc_envs": (
        "errors printable local_server actions spaces tasks prompts noise core anchor_wrapper storage ENVIRONMENTS "
        "vector chat group_chat demonstrations wrappers checking"
    ),
    "crbc_envs.alfworld": "engine games experts observation prompts env conformance",
    "crbc_envs.webshop": "observation prompts products search shop expert env site",
    "crbc_envs.vector": "contract members workers frames recorder group",
    "crbc_rl": (
        "version errors pretrained names credit config distributed trees batches policies training rollout runs "
        "learner adapters"
    ),
    "crbc_lab": (
        "induction tiny interrupts progress evaluation model_server statistics plan agents child_runs report studies "
        "commands cli"
    ),
}
"""What lies directly in a folder, from the ground up: each imports what stands before it, and nothing behind.
Environments (rooms with an `env.py`) share one floor, and know nothing of each other."""
ENVIRONMENTS = {path.parent.name for path in (ROOT / "crbc_envs").glob("*/env.py")}


def test_no_two_files_import_each_other_in_a_circle(graph):
    assert not circles(graph)


def test_no_two_rooms_of_a_folder_import_each_other_in_a_circle(graph):
    folders = {module.rpartition(".")[0] for module in graph if "." in module}
    assert len(folders) > 20
    assert not {folder: found for folder in sorted(folders) if (found := circles(rooms(graph, folder)))}


@pytest.mark.parametrize("folder", FLOORS)
def test_no_arrow_goes_up(graph, folder):
    floors = FLOORS[folder].split()
    floor = {room: floors.index(room) for room in floors}
    if folder == "crbc_envs":
        floor |= dict.fromkeys(ENVIRONMENTS, floor.pop("ENVIRONMENTS"))
    arrows = rooms(graph, folder)
    assert set(arrows) == set(floor), "a new room needs a floor"
    for here, others in arrows.items():
        assert not [there for there in others if floor[there] >= floor[here]], here


def test_no_file_makes_a_forbidden_call():
    for name, tree in TREES.items():
        found = [dotted(call.func) for call in calls(tree) if dotted(call.func) in FORBIDDEN_CALLS]
        assert not found, name
        assert not {module.split(".")[0] for module in imported(tree)} & FORBIDDEN_MODULES, name
        for call in calls(tree):
            for keyword in call.keywords:
                is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
                refused = keyword.arg in ("shell", "allow_pickle", "trust_remote_code")
                assert not (refused and is_true), (name, ast.unparse(call))


def test_no_file_catches_everything():
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                assert None not in caught, f"{name}:{node.lineno}: a bare except"
                assert not {dotted(kind) for kind in caught} & {"Exception", "BaseException"}, f"{name}:{node.lineno}"


def test_files_and_functions_fit_the_eye():
    for name, tree in TREES.items():
        assert len(FILES[name].read_text(encoding="utf-8").splitlines()) <= 400, name
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno + 1 <= 80, f"{name}: {node.name} at line {node.lineno}"


PUBLISHED = {
    "crbc_envs/sokoban/published.py": {"random.Random", "np.random.RandomState"},
    "crbc_envs/webshop/shop/goals.py": {"random.Random"},
}
"""Files that reproduce what was drawn with `random` and `np.random`, and the generators they seed for it."""


def test_nothing_draws_from_a_global_random_stream():
    allowed = {"default_rng", "Generator", "SeedSequence", "PCG64"}
    for name, tree in {**under("anchors"), **under("crbc_envs"), **under("crbc_rl/credit")}.items():
        if name in PUBLISHED:
            continue
        assert "random" not in set(imported(tree)), name
        for call in calls(tree):
            function = dotted(call.func)
            if function.startswith("np.random."):
                assert function.removeprefix("np.random.") in allowed, (name, function)


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_reproduced_is_drawn_from_streams_of_its_own(name):
    streams = [call for call in calls(TREES[name]) if dotted(call.func).startswith(("random.", "np.random."))]
    assert {dotted(call.func) for call in streams} == PUBLISHED[name]
    assert all(len(call.args) == 1 for call in streams), "a stream without a seed is another one each time"
    assert not [module for module in imported(TREES[name]) if module.startswith(("random.", "numpy."))]
