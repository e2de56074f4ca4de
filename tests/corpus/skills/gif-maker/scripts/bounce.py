"""Draws a ball that bounces."""
import math
import sys

from PIL import Image, ImageDraw

frames = []
for step in range(12):
    frame = Image.new("P", (64, 64), 0)
    frame.putpalette([255, 255, 255, 220, 40, 40])
    height = int(44 * abs(math.sin(math.pi * step / 12)))
    ImageDraw.Draw(frame).ellipse((22, 42 - height, 42, 62 - height), fill=1)
    frames.append(frame)
frames[0].save(sys.argv[1], save_all=True, append_images=frames[1:], duration=80, loop=0)
