"""Replaces a run of text by a tracked deletion and a tracked insertion."""
import re
import sys
import xml.dom.minidom

directory, old, new = sys.argv[1:]
path = f"{directory}/word/document.xml"
with open(path, encoding="utf-8") as text:
    document = text.read()
mark = 'w:id="{}" w:author="skill" w:date="2026-01-01T00:00:00Z"'
run = re.compile(r"<w:r>(?:(?!</w:r>).)*?<w:t[^>]*>" + re.escape(old) + r"</w:t></w:r>", re.S)
deleted = f'<w:del {mark.format(101)}><w:r><w:delText>{old}</w:delText></w:r></w:del>'
inserted = f'<w:ins {mark.format(102)}><w:r><w:t>{new}</w:t></w:r></w:ins>'
document, count = run.subn(deleted + inserted, document)
xml.dom.minidom.parseString(document)
with open(path, "w", encoding="utf-8") as text:
    text.write(document)
print("replaced", count)
sys.exit(0 if count else 1)
