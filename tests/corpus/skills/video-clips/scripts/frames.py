"""Takes every n-th frame of a film."""
import os
import subprocess
import sys

film, directory, step = sys.argv[1:]
os.makedirs(directory, exist_ok=True)
subprocess.run(
    ["ffmpeg", "-loglevel", "error", "-y", "-i", film, "-vf", f"select=not(mod(n\\,{step}))", "-vsync", "0",
     f"{directory}/%02d.png"],
    check=True,
)
print(len(os.listdir(directory)), "frames")
