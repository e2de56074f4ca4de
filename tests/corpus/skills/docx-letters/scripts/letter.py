"""Writes a letter with a heading, a table and a second page."""
import sys

from docx import Document

document = Document()
document.add_heading("Dear reader", 1)
document.add_paragraph("This is the first page.")
table = document.add_table(rows=2, cols=2)
for row in range(2):
    for column in range(2):
        table.cell(row, column).text = f"cell {row}{column}"
document.add_page_break()
document.add_paragraph("This is the second page.")
document.save(sys.argv[1])
