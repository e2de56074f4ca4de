"""Puts a label above a picture, and makes a small, turned copy of it."""
import subprocess
import sys

picture, both, small = sys.argv[1:]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


run("convert", "-size", "200x50", "xc:white", "-fill", "blue", "-draw", "rectangle 20,10 180,40", "label.png")
run("convert", "label.png", picture, "-append", both)
run("convert", picture, "-resize", "50%", "-rotate", "90", "-quality", "90", small)
print(run("identify", "-format", "%m %wx%h\n", both, small))
