"""The examples in the documents: where they stand, what kind each is, and whether it is one that can be right.

A block in a fence, and a line of a program in backticks, are examples. Whatever can be carried out or read by the real
parser is; what cannot be has its reason in NOT_RUN. An example that is neither is a problem.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from itertools import pairwise

import click
import yaml
from compose_render import ROOT, MissingVariableError, parse, render
from typer.main import get_command

from voxint.cli.main import app as voxint
from voxint.settings import SettingsError, load_settings
from voxint_broker.cli import app as voxint_broker

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "packages").rglob("*.md")])
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:\A|\n\n)((?:    .+(?:\n|\Z))+)")
_INLINE = re.compile(r"`([^`\n]+)`")
_LINE_OF_SETTINGS = re.compile(r"[A-Z][A-Z0-9_]*=")
PROGRAMS = {"voxint": voxint, "voxint-broker": voxint_broker}
_OURS = {f"{folder}{name}": name for name in PROGRAMS for folder in ("", ".venv/bin/")}
COMPOSE_COMMANDS = {"up", "down", "config", "exec", "run", "create", "build", "ps", "logs"}

NOT_RUN = {
    "apt-get": "it installs packages on the host",
    "pip": "it needs a package index; tests/integration/test_broker_distribution.py installs the same distribution without one",
    "/opt/voxint-broker/bin/pip": "as pip",
    "python3": "it makes an environment in /opt, or names a program that its own tests start",
    ".venv/bin/python": "tests/integration/test_distribution.py builds the same wheels",
    "../../.venv/bin/python": "as .venv/bin/python",
    "cd": "a part of the line that follows",
    "mkdir": "it makes a folder for the image of others",
    "sudo": "it changes files of the host",
    "docker": "it needs a Docker engine and images; compose's files and the commands inside are read here, and `make test-docker`"
    " runs the shipped stack",
    "make": "a target of the Makefile: that it is there is looked at here",
    "curl": "carried out by tests/integration/test_doc_examples_run.py",
}
"""Programs that the tests of the documents do not start by themselves, and why."""
NOT_EXAMPLES = {"mermaid": "made from the code, and compared by a test of its page"}
OUTPUT = {
    ("docs/how-to/operations.md", "voxint.example.org {"): "a Caddyfile; Caddy is not here",
    (
        "docs/how-to/write-a-broker.md",
        "ok    granted",
    ): "an excerpt of what the command prints; test_broker_check_command.py runs it",
}
"""Blocks that show a file of another program, or what is printed: page and beginning, and why nothing reads them here."""
COMPOSE_ENVIRON = {
    "CONSOLE_PASSWORD": "a password", "WHISPER_IMAGE": "an-image:1", "SHARE_ADDRESS": "192.168.50.1", "SHARED_MEDIA": "/mnt",
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A block, or a line in backticks."""

    page: str
    line: int
    language: str
    text: str
    block: bool = True

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def examples(page: str, text: str) -> list[Example]:
    """Every example of a page."""
    found = [
        Example(
            page, text.count("\n", 0, each.start()) + 1, each[2], each[3].replace("\n" + each[1], "\n")[len(each[1]) :]
        )
        for each in _FENCE.finditer(text)
    ]
    rest = _FENCE.sub(lambda each: "\n" * each[0].count("\n"), text)
    for each in _INDENTED.finditer(rest):
        if re.match(r"(?:\d+\.|[-*]) ", rest[: each.start()].rsplit("\n\n", 1)[-1].lstrip("\n")):
            continue  # the paragraph of a list
        block = re.sub(r"^    ", "", each[1], flags=re.MULTILINE)
        if block.split()[0] in {*_OURS, *NOT_RUN}:
            found.append(Example(page, rest.count("\n", 0, each.start(1)) + 1, "", block))
    for each in _INLINE.finditer(rest):
        words = each[1].split()
        if (
            words
            and words[0] in {*_OURS, "docker", "make", "curl", "apt-get"}
            and (len(words) > 1 or words[0] in _OURS)
        ):
            found.append(Example(page, rest.count("\n", 0, each.start()) + 1, "", each[1], block=False))
    return found


def all_examples() -> list[Example]:
    """Those of every page."""
    found = []
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            found += examples(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))
    return found


def lines_of_shell(text: str) -> list[str]:
    """The commands of a block, each on one line; of a transcript with `$ `, only what was typed."""
    typed = any(line.startswith("$ ") for line in text.splitlines())
    found, open_line = [], ""
    for raw in text.splitlines():
        if typed and not open_line:
            if not raw.startswith("$ "):
                continue
            raw = raw[2:]  # noqa: PLW2901
        whole = f"{open_line}{raw}"
        if whole.endswith("\\"):
            open_line = whole[:-1] + " "
            continue
        try:
            words = shlex.split(whole, comments=True)
        except ValueError:  # a quote is open
            open_line = whole + "\n"
            continue
        open_line = ""
        if words:
            found.append(whole.strip())
    return [*found, open_line] if open_line else found


def parts_of_line(line: str) -> list[list[str]]:
    """The commands of one line: what stands between `&&`, `;` and pipes, without redirections and assignments before them."""
    found, words, skip = [], [], False
    for word in shlex.split(line.strip().strip("()"), comments=True):
        if word in {"&&", "||", "|", ";"}:
            found, words = [*found, words], []
        elif word in {"<", ">", ">>"}:
            skip = True
        elif skip:
            skip = False
        elif not re.fullmatch(r"\d?>&\d", word) and (words or not _LINE_OF_SETTINGS.match(word)):
            words.append(word)
    return [each for each in [*found, words] if each]


def ours(words: list[str]) -> tuple[str, list[str]] | None:
    """Our program and its arguments, also where compose starts it inside a container."""
    if words[0] in _OURS:
        return _OURS[words[0]], words[1:]
    if words[:2] == ["docker", "compose"] and {"exec", "run"} & set(words):
        for place, word in enumerate(words[3:], 3):
            if word in PROGRAMS and words[place - 1] in {"api", "worker", "gpu-phase", "beat"}:
                return word, words[place + 1 :]
    return None


def usage_problem(program: str, arguments: list[str], *, whole: bool) -> str | None:
    """What the program's own parser says to these arguments. `whole`: what is missing counts too."""
    if any(mark in word for word in arguments for mark in "[]|") or not whole:
        return _named_options_problem(program, arguments)
    command, context = get_command(PROGRAMS[program]), None
    words = list(arguments)
    try:
        while True:
            context = command.make_context(command.name or program, words, parent=context)
            if not isinstance(command, click.Group) and not hasattr(command, "commands"):
                return None
            words = [*context._protected_args, *context.args]
            _, command, words = command.resolve_command(context, words)
    except Exception as error:  # typer has a click of its own, whose errors are no common ones
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        missing_file = "does not exist" in text
        return None if missing_file else f"{program} {shlex.join(arguments)}: {text or type(error).__name__}"


def _named_options_problem(program: str, arguments: list[str]) -> str | None:
    command = get_command(PROGRAMS[program])
    for word in arguments:
        known = getattr(command, "commands", None)
        if known is None or word.startswith(("-", "[")):
            break
        if word not in known:
            return f"{program} {' '.join(arguments)}: there is no command {word}"
        command = known[word]
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}
    for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(arguments)):
        if option not in options:
            return f"{program} {' '.join(arguments)}: there is no option {option}"
    return None


def problems(example: Example) -> list[str]:
    """What is wrong with an example; empty where nothing is."""
    match example.language:
        case "json":
            return _read(json.loads, example.text)
        case "yaml":
            return _yaml_problems(example.text)
        case language if language in NOT_EXAMPLES:
            return []
        case language if language not in {"", "sh"}:
            return [f"nothing here reads {language}"]
    if settings := lines_of_settings(example):
        return settings_problems(settings)
    return [problem for words in commands(example) for problem in command_problems(words, whole=example.block)]


def lines_of_settings(example: Example) -> list[str]:
    """The lines of a block that holds nothing but settings."""
    lines = [line for line in example.text.splitlines() if line.strip()]
    return lines if example.block and all(_LINE_OF_SETTINGS.match(line) for line in lines) else []


def commands(example: Example) -> list[list[str]]:
    """The commands that an example shows."""
    output = any(example.page == page and example.text.startswith(begin) for page, begin in OUTPUT)
    if example.language not in {"", "sh"} or output or lines_of_settings(example):
        return []
    return [words for line in lines_of_shell(example.text) for words in parts_of_line(line)]


def command_problems(words: list[str], *, whole: bool = True) -> list[str]:
    """What is wrong with one command."""
    own = ours(words)
    found = []
    if own is not None:
        problem = usage_problem(*own, whole=whole)
        found += [problem] if problem else []
    if words[0] in _OURS:
        return found
    if words[0] == "make":
        return found + make_problems(words)
    if words[:2] == ["docker", "compose"]:
        return found + compose_problems(words)
    if words[0] not in NOT_RUN and not _LINE_OF_SETTINGS.match(words[0]):
        found.append(f"{words[0]}: nothing runs it, and no reason is given")
    return found


def make_problems(words: list[str]) -> list[str]:
    """Targets that the Makefile does not have, and variables that it does not read."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    found = [f"make {word}: there is no such target" for word in words[1:] if "=" not in word and word not in targets]
    names = [word.partition("=")[0] for word in words[1:] if "=" in word]
    return found + [f"make: nothing reads {name}" for name in names if f"$({name})" not in makefile]


def compose_problems(words: list[str]) -> list[str]:
    """Files that are not there or do not fit together, commands and services that compose would not know."""
    files = [words[place + 1] for place, word in enumerate(words) if word == "-f"]
    missing = [name for name in files if not (ROOT / name).is_file()]
    if missing:
        return [f"docker compose: there is no {name}" for name in missing]
    rest = [word for word in words[2:] if word not in files and word not in {"-f", "...", "--project-directory", "."}]
    rest = rest[2:] if rest[:1] == ["--profile"] else rest
    if not rest or rest[0] not in COMPOSE_COMMANDS:
        return [f"docker compose: {' '.join(rest[:1]) or 'no command'} is none that these tests know"]
    names = files or sorted(path.name for path in ROOT.glob("compose*.yaml") if path.name != "compose.rocm.yaml")
    tier = {"COMPUTE_TIER": "rocm"} if "compose.rocm.yaml" in names else {}
    try:
        services = set(render(tuple(names), COMPOSE_ENVIRON | tier)["services"])
    except MissingVariableError as error:
        return [f"docker compose {' '.join(files)}: {error}"]
    values = {after for option, after in pairwise(rest) if option in {"--rmi", "-e", "--entrypoint"}}
    first = next((word for word in rest[1:] if not word.startswith("-") and word not in values), None)
    if first is not None and first not in services and first.isascii() and not first.isupper():
        return [f"docker compose {rest[0]}: there is no service {first}"]
    return []


def settings_problems(lines: list[str]) -> list[str]:
    """Lines of `.env` that are no settings, or that the settings refuse."""
    values = dict(re.sub(r" +#.*", "", line).split("=", 1) for line in lines)
    table = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `([A-Z<>_]+)`", table, re.MULTILINE))
    services = values.get("GPU_PHASE_SERVICES", "whisper,pyannote,titanet").upper().split(",")
    known |= {name.replace("<NAME>", service) for name in known if "<NAME>" in name for service in services}
    found = [f"{name}: is no setting" for name in values if name not in known]
    try:
        load_settings({"COMPUTE_TIER": "gpu"} | values)
    except SettingsError as error:
        found += error.problems
    return found


def _read(parser, text: str) -> list[str]:
    try:
        parser(text)
    except ValueError as error:
        return [str(error)]
    return []


def _yaml_problems(text: str) -> list[str]:
    try:
        document = parse(text)
    except yaml.YAMLError as error:
        return [str(error)]
    known = render(("compose.yaml", "compose.gpu.yaml", "compose.gpu-phase.yaml"), COMPOSE_ENVIRON)["services"]
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict):
        return ["an example in YAML is a compose file, with services"]
    return [f"there is no service {name} to override" for name in services if name not in known]
