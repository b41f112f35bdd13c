"""The pictures of the products: what is drawn for what and in which colour, and that no text gets into one."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webshop_catalogue import shop

from crbc_envs.webshop.site import pictures
from crbc_envs.webshop.site.pictures import ACCENTS, COLOURS, colour_of, picture, picture_name, swatch_name

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = {SVG + name for name in ("svg", "g", "rect", "circle", "ellipse", "path")}
DRAWINGS = sorted(pictures._drawings())
NAMES = {"title": "Floor Lamp", "query": "floor lamps", "category": "garden", "product_category": "Home › Lamps"}
LAMP = replace(shop().catalogue[0], asin="B000000001", options={}, **NAMES)


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_every_drawing_is_of_shapes_alone_and_stays_on_its_square(drawing):
    root = ElementTree.fromstring(picture(f"{drawing}-green-1"))
    assert root.attrib == {"viewBox": "0 0 120 120"}
    for element in root.iter():
        assert element.tag in SHAPES
        assert not (element.text or "").strip() and not (element.tail or "").strip()
        assert not {"id", "style", "class", "href"} & set(element.attrib)
        for value in element.attrib.values():
            assert all(-60 <= float(number) <= 120 for number in re.findall(r"(?<![#\w.])-?\d+(?:[.]\d+)?", value))


@pytest.mark.parametrize("colour", COLOURS)
def test_a_picture_has_its_colour_and_its_accent(colour):
    drawn = picture(f"bottle-{colour}-2")
    assert COLOURS[colour][0] in drawn and ACCENTS[2] in drawn
    assert drawn != picture(f"bottle-{colour}-3")
    assert COLOURS[colour][0] in picture(f"swatch-{colour}-0")


@given(st.text(max_size=30))
def test_there_is_no_picture_of_another_name(name):
    assert picture(name) is None
    assert name in COLOURS or picture(f"bottle-{name}-0") is None  # Hypothesis also tries words of the sources
    assert name in (*DRAWINGS, "swatch") or picture(f"{name}-red-0") is None
    assert picture(f"bottle-red-{name}-") is None


@given(st.text(), st.text(), st.text(), st.text(), st.text(max_size=10))
def test_any_product_has_a_picture_and_none_of_its_text(title, query, crumbs, category, asin):
    product = replace(LAMP, title=title, query=query, product_category=crumbs, category=category, asin=asin)
    name = picture_name(product, [title])
    assert name == picture_name(replace(product), [title])
    assert re.fullmatch("[a-z]+-[a-z]+-[0-5]", name) and picture(name)


def test_equal_products_look_equal_and_others_differ():
    names = {picture_name(replace(LAMP, asin=f"B00000000{i}")) for i in range(10)}
    assert len(names) > 4 and {name.split("-")[0] for name in names} == {"lamp"}


def test_the_colour_is_the_chosen_one_else_that_of_the_title_else_an_offered_one():
    offered = replace(LAMP, options={"color": ("navy", "sage"), "size": ("red",)})
    assert picture_name(offered).split("-")[1] in ("navy", "mint")
    assert picture_name(replace(offered, title="Brass Lamp")).split("-")[1] == "gold"
    assert picture_name(replace(offered, title="Brass Lamp"), ["large", "navy"]).split("-")[1] == "navy"
    assert colour_of("Navy Blue") == "navy" and colour_of("standard") is None
    assert (swatch_name("dark blue"), swatch_name("large")) == ("swatch-blue-0", None)


DRAWN = [
    *[("fashion", "women's dresses", "dress"), ("fashion", "watch bands", "watch"), ("beauty", "cream", "tube")],
    *[("grocery", "sour creams", "cheese"), ("electronics", "camera bags", "bag"), ("garden", "bookcases", "shelf")],
    *[("electronics", "something", "device"), ("unheard of", "something", "parcel")],
]


@pytest.mark.parametrize(("category", "query", "drawing"), DRAWN)
def test_a_product_is_drawn_as_what_it_is(category, query, drawing):
    product = replace(LAMP, category=category, query=query, product_category="", title="")
    assert picture_name(product).split("-")[0] == drawing
