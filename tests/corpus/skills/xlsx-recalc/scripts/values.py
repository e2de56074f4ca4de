"""Prints the values of a workbook, and fails when one is an error or was never worked out."""
import sys

from openpyxl import load_workbook

formulas = load_workbook(sys.argv[1]).active
values = load_workbook(sys.argv[1], data_only=True).active
for row in formulas.iter_rows():
    for cell in row:
        value = values[cell.coordinate].value
        if isinstance(cell.value, str) and cell.value.startswith("="):
            if value is None or str(value).startswith("#"):
                sys.exit(f"{cell.coordinate}: {value}")
            print(f"{cell.coordinate} = {value}")
