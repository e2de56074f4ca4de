"""Checks a page in headless Chromium."""
import pathlib
import subprocess
import sys
import tempfile

page = pathlib.Path(sys.argv[1]).resolve().as_uri()


def chromium(*options):
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   f"--user-data-dir={profile}", *options, page]
        run = subprocess.run(command, capture_output=True, text=True, timeout=70)
    if run.returncode:
        fatal = [line for line in run.stderr.splitlines() if ":FATAL:" in line]
        sys.exit("\n".join([f"chromium ends with {run.returncode}:", *fatal]))
    return run.stdout


dom = chromium("--dump-dom")
assert '<p id="count">42</p>' in dom, dom
assert "<title>Counted</title>" in dom, dom
print("the page counts to 42")
chromium("--screenshot=screenshot.png", "--window-size=400,300", "--hide-scrollbars")
print("took screenshot.png")
