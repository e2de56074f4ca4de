"""fsspec's own suites on a workspace and on a skill, and what they leave out."""

import contextlib
import io
import posixpath
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest
from fsspec.tests import abstract

from filesecbox import FileSecBox, Stale
from filesecbox.fs import FileSecBoxFileSystem, FileSecBoxSkillFileSystem
from filesecbox.server import Server


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture(scope="class")
    def fs(self, server: Server) -> FileSecBoxFileSystem:
        return FileSecBoxFileSystem(server.url, server.token)

    @pytest.fixture
    def fs_path(self, box: FileSecBox) -> Iterator[str]:
        yield "fsspec/demo"
        box.workspace("fsspec", "demo").delete()

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join


class TestCopy(Fixtures, abstract.AbstractCopyTests):  # type: ignore[misc]
    pass


class TestGet(Fixtures, abstract.AbstractGetTests):  # type: ignore[misc]
    pass


class TestPut(Fixtures, abstract.AbstractPutTests):  # type: ignore[misc]
    pass


class TestPipe(Fixtures, abstract.AbstractPipeTests):  # type: ignore[misc]
    pass


class TestOpen(Fixtures, abstract.AbstractOpenTests):  # type: ignore[misc]
    pass


@pytest.fixture
def fs(server: Server) -> FileSecBoxFileSystem:
    return FileSecBoxFileSystem(server.url, server.token)


@pytest.fixture
def base(box: FileSecBox) -> Iterator[str]:
    yield "fsspec/own"
    box.workspace("fsspec", "own").delete()


def test_files_are_written_in_one_step_and_not_after_a_failure(fs: FileSecBoxFileSystem, base: str) -> None:
    with fs.open(f"{base}/deep/表.csv", "w", encoding="utf-8") as file:
        file.write("甲,乙\n1,2\n")
        assert not fs.exists(f"{base}/deep/表.csv")
    with fs.open(f"{base}/deep/表.csv", "r", encoding="utf-8") as file:
        assert file.read() == "甲,乙\n1,2\n"
    with fs.open(f"{base}/deep/表.csv", "ab") as file:
        file.write(b"3,4\n")
    assert fs.cat(f"{base}/deep/表.csv").endswith(b"1,2\n3,4\n")
    with contextlib.suppress(RuntimeError), fs.open(f"{base}/deep/表.csv", "wb") as file:
        file.write(b"half")
        raise RuntimeError
    assert fs.cat(f"{base}/deep/表.csv").endswith(b"3,4\n")
    with pytest.raises(FileExistsError):
        fs.open(f"{base}/deep/表.csv", "xb")
    assert fs.find(base) == [f"{base}/deep/表.csv"]
    assert fs.cat_file(f"{base}/deep/表.csv", -4) == b"3,4\n"
    fs.mv(f"{base}/deep/表.csv", f"{base}/moved.csv")
    assert fs.ls(base, detail=False) == [f"{base}/deep", f"{base}/moved.csv"]
    fs.rm(f"{base}/deep", recursive=True)
    with pytest.raises(IsADirectoryError):
        fs.rm(base)
    assert fs.exists(f"{base}/moved.csv")


def test_a_file_is_read_in_parts_of_one_state(fs: FileSecBoxFileSystem, base: str) -> None:
    data = bytes(range(256)) * 4096
    fs.pipe(f"{base}/large", data)
    with fs.open(f"{base}/large", block_size=65_536) as file:
        file.seek(1_000_000)
        assert file.read(100) == data[1_000_000:1_000_100]
        fs.pipe(f"{base}/large", data[::-1])
        file.seek(0)
        with pytest.raises(Stale):
            file.read(1_000)


def test_addresses_find_trees_by_their_protocol(server: Server, box: FileSecBox, fs: FileSecBoxFileSystem) -> None:
    more: dict[str, Any] = {"url": server.url, "token": server.token}
    fsspec.register_implementation("filesecbox", FileSecBoxFileSystem, clobber=True)
    fsspec.register_implementation("filesecbox+skill", FileSecBoxSkillFileSystem, clobber=True)
    with fsspec.open("filesecbox://fsspec/addresses/a.txt", "w", **more) as file:
        file.write("workspace")
    assert box.workspace("fsspec", "addresses").read_text("a.txt").text == "workspace"
    made = b"---\nname: pdf\ndescription: d\n---\n"
    box.skills("fsspec", "addresses").upload(_zip(made), name="pdf.zip")
    with fsspec.open("filesecbox+skill://fsspec/addresses/pdf/SKILL.md", "rb", **more) as file:
        assert file.read() == made
    for path in ("", "fsspec", "fsspec//x"):
        with pytest.raises(FileNotFoundError):
            fs.ls(path)


def _zip(text: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pdf/SKILL.md", text)
    return packed.getvalue()
