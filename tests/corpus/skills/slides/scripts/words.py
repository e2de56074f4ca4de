"""Changes words on all slides of a PowerPoint file."""
import sys
import zipfile

path, old, new = sys.argv[1:]
with zipfile.ZipFile(path) as source:
    parts = [(part, source.read(part)) for part in source.infolist()]
changed = 0
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
    for part, data in parts:
        if part.filename.startswith("ppt/slides/slide"):
            changed += data.count(old.encode())
            data = data.replace(old.encode(), new.encode())
        target.writestr(part, data)
print("changed", changed)
