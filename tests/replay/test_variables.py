"""A module whose variables are not those of its image loaded anew is refused."""

import pytest

from pytest_gpubench.replay.builder import GraphBuilder
from pytest_gpubench.replay.capture import refuse_written
from pytest_gpubench.replay.reader import NotReplayable
from tests.replay.fake_graphs import FakeGraphs
from tests.replay.image_files import image_of, image_with

MODULE = 5
IMAGE = image_with({b"table": 1, b"lut": 0x11})
LOADED = {b"table": b"01", b"lut": b"23"}


def refuse(written: dict[bytes, bytes], image: bytes = IMAGE) -> FakeGraphs:
    cuda = FakeGraphs({image.split(b"\0")[0]: []}, variables=LOADED, written=written)
    refuse_written([("name", MODULE)], {"name": image}, GraphBuilder(cuda))
    return cuda


def test_variables_as_they_were_loaded_are_fine() -> None:
    cuda = refuse(LOADED)
    assert (len(cuda.loaded), cuda.modules) == (1, {})


@pytest.mark.parametrize("value", [b"24", b"230", b"2"])
def test_a_variable_that_differs_is_named(value: bytes) -> None:
    written = {**LOADED, b"lut": value}
    with pytest.raises(
        NotReplayable, match=r"^lut, a variable of a kernel's module, was written, or holds an address$"
    ):
        refuse(written)


@pytest.mark.parametrize("image", [image_with({b"table": 1, b"other": 1}), image_with({b"table": 1}, unnamed=1)])
def test_memory_that_the_driver_knows_by_no_name_is_refused(image: bytes) -> None:
    reason = r"^a kernel's module has variables that the driver does not know by their names$"
    with pytest.raises(NotReplayable, match=reason):
        refuse(LOADED, image)


def test_each_module_of_an_image_is_looked_at() -> None:
    """Two may be loaded of one, and the variables of either be written."""
    cuda = FakeGraphs({IMAGE.split(b"\0")[0]: []}, variables=LOADED, written=LOADED)
    refuse_written([("name", MODULE), ("name", MODULE + 1)], {"name": IMAGE}, GraphBuilder(cuda))
    assert len(cuda.loaded) == 2


@pytest.mark.parametrize(
    "image",
    [
        image_of({".text.k": b"code"}),
        image_with({b"kernel": 2}, memory=".text.k"),
        image_with({b"x": 1}, section=0, memory=".text.k"),
        b"no image",
    ],
)
def test_an_image_without_variables_is_not_loaded(image: bytes) -> None:
    assert refuse({}, image).loaded == []
