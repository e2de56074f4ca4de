"""Sorts the inbox of the workspace by ending."""
import os
import pathlib
import shutil

workspace = pathlib.Path(os.environ["WORKSPACE"])
count = 0
for file in sorted(workspace.joinpath("inbox").iterdir()):
    target = workspace / "sorted" / (file.suffix.lstrip(".") or "other")
    target.mkdir(parents=True, exist_ok=True)
    shutil.move(file, target / file.name)
    count += 1
print("sorted", count, "files")
