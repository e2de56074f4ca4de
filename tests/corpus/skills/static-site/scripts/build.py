"""Builds the site."""
import pathlib
import subprocess
import sys

pages, site = map(pathlib.Path, sys.argv[1:])
layout = pathlib.Path(__file__).parent.parent.joinpath("assets/layout.html").read_text(encoding="utf-8")
site.mkdir(parents=True, exist_ok=True)
links = []
for page in sorted(pages.glob("*.md")):
    body = subprocess.run(["pandoc", "-f", "markdown", "-t", "html", page], check=True, capture_output=True, text=True)
    title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
    site.joinpath(page.stem + ".html").write_text(layout.format(title=title, body=body.stdout), encoding="utf-8")
    links.append(f'<li><a href="{page.stem}.html">{title}</a>')
index = layout.format(title="Index", body="<ul>" + "".join(links) + "</ul>")
site.joinpath("index.html").write_text(index, encoding="utf-8")
print("built", len(links) + 1, "pages")
