"""Joins PDF files, and turns the first page."""
import sys

from pypdf import PdfReader, PdfWriter

writer = PdfWriter()
for source in sys.argv[2:]:
    for page in PdfReader(source).pages:
        writer.add_page(page)
writer.pages[0].rotate(90)
with open(sys.argv[1], "wb") as target:
    writer.write(target)
print("pages:", len(writer.pages))
