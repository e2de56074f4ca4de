"""Prints a page as a PDF in headless Chromium."""
import pathlib
import subprocess
import sys
import tempfile

page, target = sys.argv[1:]
with tempfile.TemporaryDirectory() as profile:
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               f"--user-data-dir={profile}", "--no-pdf-header-footer", f"--print-to-pdf={target}",
               pathlib.Path(page).resolve().as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=70)
if run.returncode:
    fatal = [line for line in run.stderr.splitlines() if ":FATAL:" in line]
    sys.exit("\n".join([f"chromium ends with {run.returncode}:", *fatal]))
print("printed", target)
