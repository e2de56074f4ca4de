"""Draws a form with two fields."""
import sys

from reportlab.pdfgen import canvas

form = canvas.Canvas(sys.argv[1])
for row, name in enumerate(["name", "city"]):
    form.drawString(50, 760 - 40 * row, name)
    form.acroForm.textfield(name=name, x=120, y=750 - 40 * row, width=200, height=24)
form.save()
