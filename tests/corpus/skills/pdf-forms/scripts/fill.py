"""Fills a form with the answers of a JSON file."""
import json
import sys

from pypdf import PdfReader, PdfWriter

form, answers, target = sys.argv[1:]
writer = PdfWriter()
writer.clone_document_from_reader(PdfReader(form))
with open(answers, encoding="utf-8") as text:
    values = json.load(text)
writer.update_page_form_field_values(writer.pages[0], values)
with open(target, "wb") as file:
    writer.write(file)
print("filled", len(values), "fields")
