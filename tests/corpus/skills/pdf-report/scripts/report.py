"""Draws a report of three pages: a title, a table of numbers, a closing page."""
import os
import sys

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Table, TableStyle

target = sys.argv[1]
os.makedirs(os.path.dirname(target), exist_ok=True)
styles = getSampleStyleSheet()
rows = [["Quarter", "Revenue"]] + [[f"Q{quarter}", str(quarter * 1250)] for quarter in range(1, 5)]
table = Table(rows)
table.setStyle(TableStyle([("GRID", (0, 0), (-1, -1), 1, colors.black)]))
story = [
    Paragraph("Annual report", styles["Title"]), PageBreak(),
    table, PageBreak(),
    Paragraph("Total: 12500", styles["Normal"]),
]
SimpleDocTemplate(target, pagesize=A4, title="Annual report").build(story)
print("wrote", target)
