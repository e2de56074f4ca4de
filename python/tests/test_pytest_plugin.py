"""The plugin for pytest, in runs of pytest of its own."""

import os
import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
BINARY = os.environ.get("FILESECBOX_BINARY", PROJECT.parent / "target" / "debug" / "filesecbox")


@pytest.fixture(autouse=True)
def environment(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "src"))
    monkeypatch.setenv("FILESECBOX_BINARY", str(BINARY))
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")


def ran(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    # By the name of its entry point, so that it is there once, installed or not.
    return pytester.runpytest_subprocess("-p", "filesecbox_pytest", *arguments)


def test_each_test_has_a_workspace_of_one_service(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def filesecbox_config():
            return {"durability": "relaxed", "limits.runs.timeout_ms": 12_345}
        """
    )
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        seen = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_fresh(filesecbox_workspace, filesecbox_client, number):
            assert filesecbox_workspace.list_dir() == []
            filesecbox_workspace.write_text("a.txt", "one two")
            assert filesecbox_workspace.run("wc -w < a.txt").stdout == "2\\n"
            filesecbox_workspace.start("sleep 1000")
            seen.append(filesecbox_client.url)

        def test_removed(filesecbox_client, filesecbox_server):
            assert len(seen) == 2 and set(seen) == {filesecbox_server.url}
            assert filesecbox_client.workspaces("pytest").items == []
            assert filesecbox_client.info()["limits"]["runs"]["timeout_ms"] == 12_345

        def test_coroutines(filesecbox_server, filesecbox_workspace):
            async def run():
                async with filesecbox_server.async_client() as box:
                    there = box.workspace(filesecbox_workspace.user, filesecbox_workspace.agent)
                    return (await there.run("echo hello")).stdout
            assert asyncio.run(run()) == "hello\\n"

        @pytest.mark.filesecbox_tier("process")
        def test_tier(filesecbox_workspace):
            pass
        """
    )
    ran(pytester, "-v").assert_outcomes(passed=5)


def test_the_test_of_the_readme_passes(pytester: pytest.Pytester) -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "filesecbox_workspace" in each]
    pytester.makepyfile(example)
    ran(pytester).assert_outcomes(passed=1)


def test_a_tier_that_the_host_has_not_is_a_skip_that_says_so(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest
        from filesecbox import FileSecBox

        @pytest.fixture(autouse=True)
        def weak(monkeypatch):
            told = {"host": {"enforcement": {"tier": "process"}}}
            monkeypatch.setattr(FileSecBox, "info", lambda self: told)
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.filesecbox_tier("landlock")
        def test_tier(filesecbox_workspace):
            pass
        """
    )
    result = ran(pytester, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*commands are confined by tier process here, and landlock is wanted*"])


def test_without_the_program_it_says_what_is_missing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FILESECBOX_BINARY")
    monkeypatch.setenv("PATH", "/nowhere")
    pytester.makepyfile("def test_it(filesecbox_workspace): pass")
    result = ran(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no program `filesecbox`*FILESECBOX_BINARY*"])


def test_tests_that_do_not_ask_for_it_do_not_wait_for_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_it(): assert 'filesecbox' not in sys.modules")
    ran(pytester).assert_outcomes(passed=1)


def test_pytest_finds_it_by_itself() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"filesecbox_pytest": "filesecbox_pytest"}
    assert "src/filesecbox_pytest" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    installed = [each.value for each in entry_points(group="pytest11", name="filesecbox_pytest")]
    assert installed in (["filesecbox_pytest"], [])
