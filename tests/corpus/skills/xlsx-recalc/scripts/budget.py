"""Writes a budget with formulas."""
import sys

from openpyxl import Workbook

book = Workbook()
sheet = book.active
sheet.title = "Budget"
sheet.append(["Item", "Units", "Price", "Cost"])
for row, (item, units, price) in enumerate([("desk", 3, 120.5), ("chair", 6, 80), ("lamp", 10, 19.9)], 2):
    sheet.append([item, units, price, f"=B{row}*C{row}"])
sheet.append(["total", "=SUM(B2:B4)", None, "=SUM(D2:D4)"])
sheet["A7"], sheet["B7"] = "dearest", "=INDEX(A2:A4,MATCH(MAX(C2:C4),C2:C4,0))"
book.save(sys.argv[1])
