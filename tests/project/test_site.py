"""The documentation site: it builds strictly, and the checks of its build find what they are for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import api
import griffe
import pytest
import site_check
import site_generated
import site_links
import site_names
from markdown import markdown
from site_hooks import expanded
from site_markdown import SiteExtension
from support.command_line import called
from support.paths import ROOT

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType
from xsem_conformance import requirements

SOURCE = "https://repository.example/xsem"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
Build = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A function that builds the site of a copy of the tree, with other texts for some pages."""
    def run(**texts: str) -> subprocess.CompletedProcess[str]:
        root = tmp_path / "tree"
        shutil.copytree(ROOT / "docs", root / "docs")
        for path in ROOT.iterdir():
            if path.name not in {"docs", "build", ".git"}:
                (root / path.name).symlink_to(path)
        for name, text in texts.items():
            (root / "docs" / f"{name}.md").write_text(text)
        return subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", "site"],
                              cwd=root, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100,
                              check=False)

    return run


@pytest.mark.slow
def test_site_builds_and_has_no_finding(build: Build, tmp_path: Path) -> None:
    done = build()
    assert done.returncode == 0, done.stdout
    site = tmp_path / "tree" / "site"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(site_check.findings(site, project["urls"]["Source"])) == []
    pages = [page.read_text(encoding="utf-8") for page in site.rglob("*.html")]
    assert all(f"xsem {xsem.__version__}" in page for page in pages)
    every = "".join(pages)
    assert "site_generated.py" in every
    assert "<!-- generated: " not in every
    # The comments in consoles have a colour.
    assert """<span class="c1"># xsem's own tests, in minutes<""" in (site / "index.html").read_text(encoding="utf-8")
    # Every public object has a section, below one of its names.
    ids: dict[str, set[str]] = {}
    for module, names in api.names().items():
        for name, thing in names.items():
            if name != "__version__" and thing.kind is not griffe.Kind.MODULE:
                ids.setdefault(thing.path, set()).add(f'id="{module}.{name}"')
    missing = [path for path, possible in ids.items() if not any(each in every for each in possible)]
    assert missing == []
    # The table of its class links to the section of every member.
    members = re.findall(r'<h3 id="([^"]+)" class="doc doc-heading">', every)
    assert len(members) > 200
    assert [name for name in members if f'<td><a href="#{name}"><code>' not in every] == []
    assert re.search(r"<code>create_timeline</code></a></td>\s*<td><p>Create a timeline semaphore for export", every)


@pytest.mark.slow
def test_build_fails_at_each_defect_of_a_page(build: Build) -> None:
    done = build(unlisted="# A page without an entry\n", examples="""# Examples

[a](nowhere.md), [b](glossary.md#nowhere), [c](../examples/nowhere.py), [d](../README.md#nowhere),
[e](../tests/drivers/README.md#nowhere)

<!-- generated: nothing -->
""")
    assert done.returncode == 1
    for finding in (
        "- unlisted.md", "'nowhere.md'", "'glossary.md#nowhere'", "'index.md#nowhere'",
        "docs/examples.md: link to examples/nowhere.py, which does not exist in the repository",
        "docs/examples.md: link to tests/drivers/README.md#nowhere: the file does not have this heading",
        "docs/examples.md: unknown generated part: nothing",
    ):
        assert finding in done.stdout
    assert "7 warnings" in done.stdout


# ---- the check of the HTML
@pytest.mark.parametrize(("html", "finding"), [
    ('<a href="nowhere.html">x</a>', "nowhere.html: the site does not have this file"),
    ('<a href="#nowhere">x</a>', "#nowhere: the page does not have this anchor"),
    ('<a href="other.html#nowhere">x</a>', "other.html#nowhere: the page does not have this anchor"),
    (f'<a href="{SOURCE}/blob/main/nowhere.py">x</a>', "the repository does not have this file"),
    ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js from the network"),
    ('<link rel="stylesheet" href="//cdn.example/x.css">', "loads //cdn.example/x.css from the network"),
    ("<p>List:\n- item</p>", "Markdown in a paragraph: '- item'"),
    ("<p>| a | b |</p>", "Markdown in a paragraph"),
    ("<p>::: xsem.Device</p>", "Markdown in a paragraph"),
])
def test_check_finds(html: str, finding: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(html)
    (tmp_path / "other.html").write_text('<p id="there">x</p>')
    [found] = site_check.findings(tmp_path, SOURCE)
    assert finding in found


def test_check_accepts_what_works(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        f'<a href="other.html#there">x</a><a href="#here" id="here">x</a><a href="https://other.example/x">x</a>'
        f'<a href="{SOURCE}/blob/main/README.md#x">x</a><link rel="canonical" href="https://site.example/">'
        "<p><code>- code</code> - two</p><p><b>1. x</b></p><pre><code>- code</code></pre><img src='other.html'>")
    (tmp_path / "other.html").write_text('<p id="there">x</p>')
    assert list(site_check.findings(tmp_path, SOURCE)) == []


def test_check_refuses_an_empty_folder(tmp_path: Path) -> None:
    assert [found.endswith("no page") for found in site_check.findings(tmp_path, SOURCE)] == [True]


# ---- links
LINKS = site_links.Links(ROOT, SOURCE, "v1", {"CHANGELOG.md": "reference/changelog.md"})


@pytest.mark.parametrize(("file", "page", "link", "there"), [
    ("docs/cuda.md", "cuda.md", "ipc.md#x", "ipc.md#x"),
    ("docs/how-to/a.md", "how-to/a.md", "../cuda.md", "../cuda.md"),
    ("docs/cuda.md", "cuda.md", "../CHANGELOG.md", "reference/changelog.md"),
    ("docs/how-to/a.md", "how-to/a.md", "../../CHANGELOG.md", "../reference/changelog.md"),
    ("CHANGELOG.md", "reference/changelog.md", "docs/cuda.md", "../cuda.md"),
    ("docs/cuda.md", "cuda.md", "../examples/torch_filter.py", f"{SOURCE}/blob/v1/examples/torch_filter.py"),
    ("docs/cuda.md", "cuda.md", "../examples", f"{SOURCE}/tree/v1/examples"),
    ("docs/cuda.md", "cuda.md", "../records", f"{SOURCE}/tree/v1/records"),
    ("docs/cuda.md", "cuda.md", "../README.md#what-works-where", f"{SOURCE}/blob/v1/README.md#what-works-where"),
    ("docs/cuda.md", "cuda.md", "#here", "#here"),
    ("docs/cuda.md", "cuda.md", "https://other.example/x.md", "https://other.example/x.md"),
])
def test_link_on_the_site(file: str, page: str, link: str, there: str) -> None:
    complaints: list[str] = []
    assert LINKS.on_site(f"[text]({link})", file, page, complaints.append) == f"[text]({there})"
    assert complaints == []


def test_link_in_code_stays() -> None:
    text = "`[a](../x.py)`\n\n~~~text\n[a](../x.py)\n~~~\n\n``[a](../`x`.py)``\n"
    assert LINKS.on_site(text, "docs/cuda.md", "cuda.md", pytest.fail) == text


def test_anchors_are_those_of_the_repositorys_viewer() -> None:
    assert site_links.anchors("# A b\n## `x.y` and [z](q.md)!\n## A b\n```text\n# no\n```\n## A — b\n") == {
        "a-b", "xy-and-z", "a-b-1", "a--b"}


# ---- names of the API
NAMES = site_names.targets({"a.md": "::: xsem.Memory\n\n::: xsem.open_device\n\n::: xsem.devices\n",
                            "b.md": "::: xsem.spi.Memory\n    options:\n      x: 1\n\n::: xsem.ipc.send\n"})


@pytest.mark.parametrize(("name", "target"), [
    ("xsem.Memory", "a.md#xsem.Memory"), ("Memory", "a.md#xsem.Memory"),
    ("Memory.map_buffer", "a.md#xsem.Memory.map_buffer"), ("spi.Memory", "b.md#xsem.spi.Memory"),
    ("open_device", "a.md#xsem.open_device"), ("ipc.send", "b.md#xsem.ipc.send"), ("devices", None), ("send", None),
    ("Memory.nothing", None), ("Memory.allocation_size", None),   # the docstring of the class describes it
])
def test_name_of_the_api_has_a_section(name: str, target: str | None) -> None:
    assert NAMES.get(name) == target


@pytest.mark.parametrize(("html", "linked"), [
    ("<code>Memory</code>", '<a class="xsem-name" href="x:a.md#xsem.Memory"><code>Memory</code></a>'),
    ("<code>open_device()</code>",
     '<a class="xsem-name" href="x:a.md#xsem.open_device"><code>open_device()</code></a>'),
    ("(docs/ipc.md)", '(<a class="xsem-name" href="x:ipc.md">docs/ipc.md</a>)'),
    *[(same, same) for same in (
        "<code>other</code>", "<pre><code>Memory</code></pre>", '<a href="y"><code>Memory</code></a>',
        "<h2>x <code>Memory</code></h2>", '<code class="s">Memory</code>', "<article>Memory</article>", "docs/none.md",
        '<a href="/docs/ipc.md">docs/ipc.md</a>')],
])
def test_name_in_a_text_is_a_link(html: str, linked: str) -> None:
    assert site_names.linked(html, NAMES | {"docs/ipc.md": "ipc.md"}, lambda target: f"x:{target}") == linked


# ---- Markdown
def test_item_behind_a_paragraph_of_an_item_is_an_item() -> None:
    text = "1. one\n   - inner\n\n   Second paragraph.\n2. two\n"
    html = markdown(site_links.separated(text), extensions=[SiteExtension()])
    assert html.count("<ol>") == 1
    assert html.count("<li>") == 3
    assert "2. two" not in html


def test_cells_of_a_wide_table_have_the_titles_of_their_columns() -> None:
    html = markdown("| a | `b` | c |\n|---|---|---|\n| 1 | 2 | 3 |\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
                    extensions=[SiteExtension(), "tables"])
    assert html.count("data-wide") == 1
    assert html.count("data-title") == 3
    assert '<td data-title="b">2</td>' in html


# ---- navigation
def test_glob_stands_for_the_pages_that_no_entry_names() -> None:
    pages = ["a.md", "how-to/one.md", "how-to/two.md", "tutorial.md"]
    nav = [{"Tutorial": "tutorial*.md"}, {"How-to": ["how-to/tw*.md", "how-to/*.md"]}, {"Symptoms": "symptoms*.md"},
           {"Empty": ["empty/*.md"]}, "a.md"]
    assert expanded(nav, pages) == [{"Tutorial": "tutorial.md"}, {"How-to": ["how-to/two.md", "how-to/one.md"]}, "a.md"]


# ---- generated parts
def test_numbers_of_every_handle_type_are_listed() -> None:
    text = site_generated.native_numbers()
    for types in (SemaphoreHandleType, MemoryHandleType):
        for each in types:
            for vendor, (name, number) in each.native.items():
                shown = number if vendor.startswith("cuda") else f"{number:#x}"
                assert f"| `{each.name}` | `{name}` | {shown} |" in text
    assert {vendor for types in (SemaphoreHandleType, MemoryHandleType) for each in types for vendor in each.native
            } == set(site_generated.APIS)


def test_every_requirement_is_listed_once() -> None:
    text = site_generated.requirement_areas()
    catalogue = requirements.load()
    assert [text.count(f"`{name}` |") for name in catalogue.requirements] == [1] * len(catalogue.requirements)
    areas = {each.area for each in catalogue.requirements.values()}
    assert text.count("### ") == len(areas)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_filter_of_the_requirements_leaves_the_rows_with_each_word_and_choice(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"""{markdown(site_generated.requirement_areas(), extensions=["tables"])}
<script>{(ROOT / "docs" / "site" / "requirements.js").read_text(encoding="utf-8")}</script>
<script>
form.elements[0].value = "Memory EXPORT";
form.elements[1].value = "MUST";
form.elements[2].value = "device";
form.dispatchEvent(new Event("input"));
</script>""")
    done = subprocess.run([str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
                           "--dump-dom", page.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          timeout=100, check=True)
    found = [each for each in requirements.load().requirements.values()
             if (each.level, each.subject) == ("MUST", "device")
             and "memory" in each.text.lower() and "export" in each.text.lower()]
    assert found
    assert re.findall(r'<tr>\s*<td><span id="([^"]+)"', done.stdout) == [each.id.lower() for each in found]
    assert re.findall(r"<h3>(\w+)", done.stdout) == list(dict.fromkeys(each.area for each in found))
    assert f"<output>{len(found)} of {len(requirements.load().requirements)}</output>" in done.stdout


def test_every_command_and_option_is_listed() -> None:
    text = site_generated.command_line()
    options = {option for words in (["demo"], ["devices"], ["conformance", "run"], ["conformance", "matrix"])
               for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", called(*words, "-h").stdout)} - {"--help"}
    assert len(options) > 20
    assert [option for option in sorted(options) if f"`{option}`" not in text] == []
    for command in ("devices", "doctor", "demo", "conformance run", "conformance new-backend"):
        assert f"## `xsem {command}`" in text
