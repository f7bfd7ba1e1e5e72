"""The report's page in a browser: whole, visible, and asking nobody for anything."""

import json

import pytest
from selenium.webdriver.common.by import By

from browser_tests.browser import browser, web_server
from keras_idea._lm.report.curves import Curve, metrics_csv
from keras_idea._lm.report.page import report
from keras_idea._lm.report.picture import draw_run
from keras_idea._lm.report.table import ResultRow, to_json

CONFIG = '[data]\npaths = ["a <b>bold</b> & quoted text"]\n'


def write_run(folder, bits):
    folder.mkdir()
    history = {
        "step": [30, 60],
        "width": [64, 24],
        "bits_per_byte": [bits + 1, bits],
        "validation": [bits + 1, bits],
    }
    curve, row = Curve("pruned", history), ResultRow("pruned", 1_234_567, bits)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "metrics.csv").write_text(metrics_csv([curve]))
    (folder / "table.json").write_text(to_json([row], {"backend": "jax"}))
    (folder / "sample.txt").write_text("<script>x()</script>")
    stages = [("wide", 0, 30), ("pruning", 30, 60)]
    draw_run(folder / "run.png", [curve], stages, lambda step: 1e-3 + 0.0 * step)
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    runs = [write_run(folder / "one", 2.1), write_run(folder / "two", 2.6)]
    (folder / "served").mkdir()
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
    urls = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    # The browser's own empty page, before ours, asks for parts of itself.
    others = [url for url in urls if not url.startswith(("chrome", "data:"))]
    assert [url.rsplit("/", 1)[1] for url in others] == ["page.html"]
    assert driver.get_log("browser") == []


def test_what_is_seen(page):
    driver, _ = page
    images = driver.find_elements(By.TAG_NAME, "img")
    assert len(images) == 2
    for image in images:
        assert image.is_displayed()
        assert image.size["width"] > 300 and image.size["height"] > 200
    cells = [cell.text for cell in driver.find_elements(By.TAG_NAME, "td")]
    assert {"pruned", "1,234,567", "2.100", "2.600"} <= set(cells)
    assert any("a <b>bold</b> & quoted text" in cell for cell in cells)  # not obeyed
    driver.find_elements(By.TAG_NAME, "summary")[0].click()
    assert "<script>x()</script>" in driver.find_element(By.TAG_NAME, "pre").text
