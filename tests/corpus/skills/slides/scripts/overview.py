"""Puts pictures of slides side by side."""
import sys

from PIL import Image

pictures = [Image.open(path) for path in sys.argv[2:]]
width, height = pictures[0].size
overview = Image.new("RGB", (width * len(pictures), height), "white")
for column, picture in enumerate(pictures):
    overview.paste(picture, (column * width, 0))
overview.save(sys.argv[1])
print(len(pictures), "slides")
