"""Draws each column of a CSV file over its first one."""
import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot

with open(sys.argv[1], encoding="utf-8", newline="") as text:
    header, *rows = list(csv.reader(text))
figure, axes = pyplot.subplots(figsize=(6, 4), dpi=100)
for column, name in enumerate(header[1:], 1):
    axes.plot([row[0] for row in rows], [float(row[column]) for row in rows], label=name)
axes.legend()
axes.set_title("By month")
figure.savefig(sys.argv[2])
print("drew", len(header) - 1, "lines")
