"""Fills the template."""
import html
import json
import pathlib
import string
import sys

order = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
template = pathlib.Path(__file__).parent.parent.joinpath("assets/template.html").read_text(encoding="utf-8")
rows = "".join(f"<tr><td>{html.escape(item)}<td>{price:.2f}" for item, price in order["items"].items())
values = {"customer": html.escape(order["customer"]), "rows": rows, "sum": f"{sum(order['items'].values()):.2f}"}
pathlib.Path(sys.argv[2]).write_text(string.Template(template).substitute(values), encoding="utf-8")
