"""The site in a browser, light and dark: whole, legible, asking nobody for anything."""

import json
import pathlib
import re

import pytest

from browser_tests.browser import browser, web_server

ROOT = pathlib.Path(__file__).parents[1]
SITE = ROOT / "build" / "site"  # `make docs`, on which `make test-browser` waits
PAGES = ["index.html", "docs/runs.html", "docs/reference/keras_idea.html"]
PAGES += [f"docs/guides/{p.stem}.html" for p in (ROOT / "docs/guides").glob("*.py")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    assert SITE.is_dir(), "There is no site: `make docs` makes it."
    profile = tmp_path_factory.mktemp("browser")
    with web_server(SITE) as (address, asked), browser(profile) as driver:
        yield driver, address, asked


def requested(driver):
    log = driver.get_log("performance")
    events = [json.loads(entry["message"])["message"] for entry in log]
    return {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_and_alone(site, page):
    driver, address, asked = site
    driver.get(address + page)
    own = (address, "data:", "chrome", "blob:")
    urls = requested(driver)
    assert address + page in urls
    assert [url for url in urls if not url.startswith(own)] == []
    assert [path for path, status in asked if status >= 400] == []
    assert driver.get_log("browser") == []
    broken = "return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
    assert driver.execute_script(broken) == []
    assert driver.find_element("css selector", "h1").text


def test_light_and_dark_can_be_read(site):
    driver, address, _ = site
    driver.get(address + "docs/guides/your_own_layer.html")
    seen = []
    for _ in range(2):
        style = "return getComputedStyle(arguments[0])[arguments[1]]"
        body = driver.find_element("tag name", "body")
        text = driver.find_element("css selector", "article p")
        colors = [
            driver.execute_script(style, body, "backgroundColor"),
            driver.execute_script(style, text, "color"),
        ]
        ground, ink = (brightness(color) for color in colors)
        assert abs(ground - ink) > 0.4, colors
        seen.append(ground)
        toggle = "form[data-md-component=palette] label:not([hidden])"
        driver.find_element("css selector", toggle).click()
    assert abs(seen[0] - seen[1]) > 0.5


def brightness(color):
    """0 to 1, of a color on white, as the browser says it."""
    *rgb, alpha = (*map(float, re.findall(r"[\d.]+", color)), 1.0)[:4]
    return alpha * sum(rgb[:3]) / 765 + 1 - alpha


def test_formulas_are_drawn(site):
    driver, address, _ = site
    driver.get(address + "docs/reference/keras_idea.html")
    sizes = driver.execute_script(
        "return [...document.querySelectorAll('math')].map(m => m.clientHeight)"
    )
    assert len(sizes) >= 3 and all(size > 0 for size in sizes)
    assert "arithmatex" not in driver.page_source


def test_something_is_found(site):
    """The index of the search is made of the site's own pages."""
    index = json.loads((SITE / "search/search_index.json").read_text())
    texts = [row["text"] for row in index["docs"]]
    assert sum("IdeaPruneCallback" in text for text in texts) > 5
