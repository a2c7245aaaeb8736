import importlib.util
from pathlib import Path

import pytest

from voxint.settings import NAMES, Level, Settings, level_of, load_settings

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


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_marked_as_basic_or_advanced(name):
    assert level_of(name) in Level


@pytest.mark.parametrize("marks", [[], [Level.BASIC, Level.ADVANCED]])
def test_a_setting_that_is_marked_as_neither_or_both_is_found(monkeypatch, marks):
    monkeypatch.setattr(Settings.model_fields["redis_url"], "metadata", marks)
    with pytest.raises(ValueError, match="unpack"):
        level_of("REDIS_URL")


def test_the_table_has_every_variable_of_the_compose_files_and_no_other():
    made = generator()
    listed = [member for name in made.IN_COMPOSE for member in made.members(name)]
    assert sorted(set(made.in_compose()) - set(listed)) == []
    assert [name for name in made.IN_COMPOSE if not set(made.members(name)) & set(made.in_compose())] == []


def test_a_variable_of_a_compose_file_that_is_not_in_the_table_is_found(tmp_path, monkeypatch):
    made = generator()
    file = tmp_path / "compose.new.yaml"
    file.write_text("services: {api: {image: '${BRAND_NEW:-a}', cpus: '${NEEDED:?say it}'}}\n", "utf-8")
    monkeypatch.setattr(made, "COMPOSE_FILES", (file,))
    assert made.in_compose() == {"BRAND_NEW": "a", "NEEDED": ""}


def test_each_setting_stands_in_the_table_once():
    names = [row.name for row in generator().rows()]
    assert len(names) == len(set(names))
    assert set(NAMES) <= set(names)
