"""Draws a cover."""
import sys

from PIL import Image, ImageDraw

cover = Image.new("RGB", (300, 400), (10, 125, 90))
ImageDraw.Draw(cover).rectangle((30, 60, 270, 120), fill="white")
cover.save(sys.argv[1])
