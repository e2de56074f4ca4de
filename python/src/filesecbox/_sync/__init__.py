"""The synchronous shell, made of the asynchronous one by `scripts/unasync.py`; only `_io.py` is written by hand."""
