import importlib.util
from pathlib import Path

from voxint.settings import load_settings

ROOT = Path(__file__).parents[2]


def generator():
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "scripts" / "settings_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_written_pages_are_what_the_code_says():
    made = generator()
    assert made.PAGE.read_text() == made.page(), "run make docs"
    assert made.EXAMPLE.read_text() == made.example(), "run make docs"


def test_the_example_with_every_default_set_is_the_same_as_nothing_set():
    lines = [line[2:] for line in generator().example().splitlines() if line.startswith("# ") and "=" in line]
    environ = dict(line.split("=", 1) for line in lines if line.split("=", 1)[0].isupper() and "<" not in line)
    assert len(environ) > 30
    assert load_settings(environ) == load_settings({})
