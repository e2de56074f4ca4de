r"""Client of filesecbox: layered skills and private workspaces for AI agents, with isolated command execution.

    from filesecbox import FileSecBox

    with FileSecBox("http://127.0.0.1:8003") as box:
        workspace = box.workspace("alice", "demo")
        (workspace / "notes.txt").write_text("one\\ntwo\n")
        print(workspace.run("wc -l notes.txt").stdout)

`AsyncFileSecBox` has the same methods as coroutines.
"""

from ._async.client import AsyncFileSecBox
from ._async.paths import AsyncTreePath
from ._async.process import AsyncProcess
from ._async.session import AsyncPythonSession
from ._async.skills import AsyncSkill, AsyncSkills
from ._async.tree import AsyncTree
from ._async.workspace import AsyncWorkspace
from ._retry import Retries
from ._sync.client import FileSecBox
from ._sync.paths import TreePath
from ._sync.process import Process
from ._sync.session import PythonSession
from ._sync.skills import Skill, Skills
from ._sync.tree import Tree
from ._sync.workspace import Workspace
from ._version import __version__
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .models import *  # noqa: F403
from .models import __all__ as _models

__all__ = [
    "AsyncFileSecBox",
    "AsyncProcess",
    "AsyncPythonSession",
    "AsyncSkill",
    "AsyncSkills",
    "AsyncTree",
    "AsyncTreePath",
    "AsyncWorkspace",
    "FileSecBox",
    "Process",
    "PythonSession",
    "Retries",
    "Skill",
    "Skills",
    "Tree",
    "TreePath",
    "Workspace",
    "__version__",
    *_errors,
    *_models,
]
