"""The loopback ports of a data folder: chosen once, kept, and given up to strangers only."""

import json
import socket

import pytest

from voxint.standalone.home import Home, is_free


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.make()
    return made


def test_ports_are_chosen_once_and_kept(home):
    first = home.choose_ports(("a", "b"), {})
    assert len(set(first.values())) == 2
    assert home.choose_ports(("a", "b"), {}) == first
    assert set(home.choose_ports(("a", "b", "c"), {})) == {"a", "b", "c"}


def test_a_port_that_a_stranger_took_is_given_up_and_the_others_stay(home):
    first = home.choose_ports(("a", "b"), {})
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", first["a"]))
        stranger.listen()
        second = home.choose_ports(("a", "b"), {})
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]


def test_a_preferred_port_is_taken_where_it_is_free(home):
    free = home.choose_ports(("x",), {})["x"] + 7
    if is_free(free):
        assert home.choose_ports(("a",), {"a": free}) == {"a": free}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "b"}', '{"a": 0}', '{"a": 99999999}'])
def test_a_spoilt_file_of_ports_is_written_anew(home, text):
    home.ports.write_text(text)
    chosen = home.choose_ports(("a",), {})
    assert json.loads(home.ports.read_text()) == chosen
