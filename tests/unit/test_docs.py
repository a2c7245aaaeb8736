"""The documents: every link leads somewhere, every page can be reached, and every command that they show exists."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from voxint.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "packages").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?<![\w./-])voxint((?: +[a-z][a-z-]+)+)")


def targets(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = (first or second for first, second in LINK.findall(text))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def slugs(page):
    heads = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken(page):
    wrong = []
    for target in targets(page):
        name, _, part = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (part and file.suffix == ".md" and part not in slugs(file)):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Head here\n[a](nowhere.md) [b](#head-here) [c](#no-head) [d](https://example.org)\n", "utf-8")
    assert broken(page) == ["nowhere.md", "#no-head"]


def test_every_page_can_be_reached_from_the_index():
    seen, ahead = set(), [ROOT / "docs" / "index.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page in seen:
            continue
        seen.add(page)
        found = [(page.parent / target.partition("#")[0]).resolve() for target in targets(page) if target[0] != "#"]
        for file in found:
            ahead += [file] if file.suffix == ".md" else sorted(file.glob("*.md")) if file.is_dir() else []
    assert [str(page) for page in PAGES if page.is_relative_to(ROOT / "docs") and page.resolve() not in seen] == []


def unknown_commands(text):
    top, wrong = get_command(app), []
    for words in COMMAND.findall(text):
        command, path = top, []
        for word in words.split():
            children = getattr(command, "commands", None)
            if children is None:
                break  # what follows are arguments, or the sentence goes on
            path.append(word)
            if word not in children:
                wrong.append(" ".join(path))
                break
            command = children[word]
    return wrong


CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_shown_exists(page):
    shown = "\n".join(CODE.findall(page.read_text(encoding="utf-8")))
    assert unknown_commands(shown) == []


def test_a_command_that_does_not_exist_is_found():
    assert unknown_commands("voxint gpu-phase status; voxint gpu-phase stat; voxint dance") == [
        "gpu-phase stat",
        "dance",
    ]
