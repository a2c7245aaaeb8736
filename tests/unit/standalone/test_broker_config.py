import tomllib
from pathlib import Path

from voxint.standalone.broker_config import text_of
from voxint.standalone.environment import PORT_NAMES, Plan
from voxint.standalone.home import Home


def test_the_file_is_toml_and_keeps_odd_paths():
    home = Home(Path('/data/"a" \\ b/ü😀'))
    ports = {name: 20_000 + number for number, name in enumerate(PORT_NAMES)}
    read = tomllib.loads(text_of(Plan(home, ports, "offline", "postgresql:///x", "unix:///s")))
    assert read["state_dir"] == str(home.broker)
    assert read["memory"]["path"] == str(home.card_lock)
    assert read["listen"] == [f"127.0.0.1:{ports['broker']}"]
    assert read["service"][0]["command"][1:3] == ["-m", "voxint_models.language_model"]
    assert read["service"][0]["ready_url"] == f"http://127.0.0.1:{ports['language-model']}/healthz"
    assert read["stop_services_on_exit"] is True
