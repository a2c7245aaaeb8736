"""The broker's token in the settings: what can be sent in a header, what is refused by name, and that nothing shows it."""

from __future__ import annotations

import traceback

import pytest

from voxint.settings import SettingsError, load_settings


@pytest.mark.parametrize("value", ["", "  ", "\n"])
def test_a_blank_token_is_none(value):
    assert load_settings({"GPU_LEASE_TOKEN": value}).gpu_lease_token is None


def test_a_line_break_at_the_end_of_its_file_is_taken_off(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    read = load_settings({"GPU_LEASE_TOKEN_FILE": str(tmp_path / "token")}).gpu_lease_token
    assert read.get_secret_value() == "s3cret"


@pytest.mark.parametrize("value", ["s3cret\n", "s3cret\nX-More: 1", "s3cret-ключ", "s3cret\x00", "s3cret\x7f"])
def test_a_token_that_no_header_can_carry_is_refused_by_name_and_not_shown(value):
    with pytest.raises(SettingsError) as refused:
        load_settings({"GPU_LEASE_TOKEN": value})
    (problem,) = refused.value.problems
    assert problem.startswith("GPU_LEASE_TOKEN: ")
    shown = problem + "".join(traceback.format_exception(refused.value)) + repr(refused.value)
    assert "s3cret" not in shown


def test_a_token_is_in_no_repr():
    settings = load_settings({"GPU_LEASE_TOKEN": "s3cret"})
    assert "s3cret" not in f"{settings!r}{settings}{settings.model_dump_json()}"
