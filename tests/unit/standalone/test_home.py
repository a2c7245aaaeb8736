import os
import stat

import pytest

from voxint.standalone.home import Home, HomeError, InUseError, write_privately


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.make()
    return made


def test_the_folders_are_their_owners_alone(home):
    for folder in (home.folder, home.media, home.run, home.logs, home.broker):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_file_where_the_folder_should_be_is_said(tmp_path):
    (tmp_path / "home").write_text("")
    with pytest.raises(HomeError, match=r"cannot use .*home"):
        Home(tmp_path / "home").make()


def test_a_second_one_on_the_same_folder_is_refused_and_names_the_first(home):
    with home.sole_use():
        with pytest.raises(InUseError, match=f"process {os.getpid()}"), home.sole_use():
            pass
        assert home.runs_as() == os.getpid()
    assert home.runs_as() is None
    with home.sole_use():
        pass


def test_a_written_file_is_private_and_whole(home):
    path = home.folder / "x"
    path.write_text("old")
    path.chmod(0o644)
    write_privately(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in home.folder.iterdir() if each.name.startswith(".x")] == []
