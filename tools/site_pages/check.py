"""Checks a built site: every link and picture leads somewhere, and a browser shows pages as they are meant."""

from __future__ import annotations

import html.parser
import pathlib
import shutil
import subprocess
import urllib.parse

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SHOWN = ("index.html", "docs/hpc.html", "docs/torch.html", "api/python.html", "api/cpp.html", "docs/comparison.html")
SIZE = (1280, 900)


class _Page(html.parser.HTMLParser):
    """What a page links to, and what may be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.title = ""
        self._heading = False
        self.feed(text)

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        values = dict(given)
        self.links += [value for name in ("href", "src") if (value := values.get(name))]
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        self._heading = tag == "h1" or (self._heading and tag != "a")

    def handle_endtag(self, tag: str) -> None:
        self._heading = self._heading and tag != "h1"

    def handle_data(self, data: str) -> None:
        if self._heading:
            self.title += data


def read(site: pathlib.Path) -> dict[pathlib.Path, _Page]:
    return {path: _Page(path.read_text()) for path in site.rglob("*.html")}


def broken_links(site: pathlib.Path) -> list[str]:
    """Of every page but MkDocs's own 404.html, whose links depend on where the site lies."""
    pages = read(site)
    found = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            where = urllib.parse.urlsplit(link)
            if where.scheme or where.netloc:
                if where.scheme not in ("data", "mailto"):
                    found.append(f"{path.relative_to(site)}: {link} is on another host")
                continue
            target = (path.parent / urllib.parse.unquote(where.path)).resolve() if where.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{path.relative_to(site)}: {link}")
            elif where.fragment and target.suffix == ".html":
                anchor = urllib.parse.unquote(where.fragment)
                if anchor not in pages[target].anchors and not anchor.startswith("__"):
                    found.append(f"{path.relative_to(site)}: {link}: no such heading")
    return found


def browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def looks(site: pathlib.Path, pictures: pathlib.Path) -> list[str]:
    """Takes a picture of some pages with a headless browser; what is wrong with them."""
    from PIL import Image

    program = browser()
    if program is None:
        return ["there is no Chromium to look at the pages with; install it: sudo apt-get install -y chromium"]
    pages, found = read(site), []
    pictures.mkdir(parents=True, exist_ok=True)
    base = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000",
            f"--window-size={SIZE[0]},{SIZE[1]}"]  # fmt: skip
    for name in SHOWN:
        page = site / name
        picture = pictures / (name.replace("/", "-").removesuffix(".html") + ".png")
        picture.unlink(missing_ok=True)
        done = subprocess.run(
            [*base, f"--screenshot={picture}", page.as_uri()], capture_output=True, text=True, timeout=120
        )
        if not picture.exists():
            found.append(f"{name}: no picture: {done.stderr[-500:]}")
            continue
        if not pages[page].title.strip():
            found.append(f"{name}: no title")
        image = Image.open(picture).convert("L")
        body = image.crop((300, 120, SIZE[0] - 300, SIZE[1]))  # between the menus, below the bar
        dark = sum(body.histogram()[:128]) / (body.width * body.height)
        if image.size != SIZE or not 0.005 < dark < 0.5:
            found.append(f"{name}: {dark:.1%} of its middle is dark, which is no page of text: {picture}")
    return found
