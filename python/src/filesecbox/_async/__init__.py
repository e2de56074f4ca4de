"""The asynchronous shell: what is written by hand. `scripts/unasync.py` makes the synchronous one of it."""
