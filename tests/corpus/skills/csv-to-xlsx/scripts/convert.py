"""Turns a CSV file into a workbook."""
import csv
import sys

from openpyxl import Workbook
from openpyxl.styles import Font

source, target = sys.argv[1:]
book = Workbook()
sheet = book.active
with open(source, encoding="utf-8", newline="") as text:
    for row in csv.reader(text):
        sheet.append([float(cell) if cell.replace(".", "", 1).isdigit() else cell for cell in row])
for cell in sheet[1]:
    cell.font = Font(bold=True)
sheet.freeze_panes = "A2"
book.save(target)
print(f"{sheet.max_row} rows, {sheet.max_column} columns")
