"""Draws a banner: a gradient with words on it."""
import sys

from PIL import Image, ImageDraw

banner = Image.linear_gradient("L").resize((320, 80)).convert("RGB")
ImageDraw.Draw(banner).text((10, 30), sys.argv[2], fill=(255, 0, 0))
banner.save(sys.argv[1])
print(banner.size)
