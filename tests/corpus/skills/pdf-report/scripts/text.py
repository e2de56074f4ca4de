"""Prints the text of each page of a PDF."""
import sys

from pypdf import PdfReader

for number, page in enumerate(PdfReader(sys.argv[1]).pages, 1):
    print(f"--- page {number}\n{page.extract_text()}")
