"""The report's page in a browser: whole, visible, and asking nobody for anything."""

import json

import pytest
from selenium.webdriver.common.by import By

from browser_tests.browser import browser, web_server
from keras_idea.lm.report.report import report
from tests.support.report_runs import write_run


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    runs = [write_run(folder / "one"), write_run(folder / "two", "random", 2.5)]
    report(runs, folder / "served" / "page.html")
    profile = tmp_path_factory.mktemp("browser")
    with web_server(folder / "served") as (address, asked), browser(profile) as driver:
        driver.get(f"{address}page.html")
        yield driver, asked


def test_nothing_else_is_asked_for(page):
    driver, asked = page
    assert asked == [("/page.html", 200)]
    log = driver.get_log("performance")
    events = [json.loads(entry["message"])["message"] for entry in log]
    requests = {
        event["params"]["requestId"]: event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    # The browser's own empty page, before ours, asks for parts of itself.
    ours = {i: url for i, url in requests.items() if not url.startswith("chrome")}
    others = [url for url in ours.values() if not url.startswith("data:")]
    assert [url.rsplit("/", 1)[1] for url in others] == ["page.html"]
    failed = [e for e in events if e["method"] == "Network.loadingFailed"]
    assert [e for e in failed if e["params"]["requestId"] in ours] == []
    assert driver.get_log("browser") == []


def test_the_pictures_are_seen(page):
    driver, _ = page
    images = driver.find_elements(By.TAG_NAME, "img")
    assert len(images) == 3
    whole = "return arguments[0].complete && arguments[0].naturalWidth > 300"
    for image in images:
        assert image.is_displayed() and driver.execute_script(whole, image)
        assert image.size["width"] > 300 and image.size["height"] > 200


def test_the_runs_are_side_by_side(page):
    driver, _ = page
    first, second = driver.find_elements(By.CLASS_NAME, "run")
    assert first.location["y"] == second.location["y"]
    assert second.location["x"] >= first.location["x"] + first.size["width"]
    wide = "return document.documentElement.scrollWidth <= window.innerWidth"
    assert driver.execute_script(wide)


def test_the_cells_are_there(page):
    driver, _ = page
    cells = [cell.text for cell in driver.find_elements(By.TAG_NAME, "td")]
    for text in ("pruned", "1,234,567", "2.100", "2.600", "jax", "random"):
        assert text in cells
    assert 'a <b>bold</b> & quoted "text"' in cells  # shown, not obeyed
    driver.find_elements(By.TAG_NAME, "summary")[1].click()
    assert "<script>x()</script>" in driver.find_element(By.TAG_NAME, "pre").text
