"""TensorBoard, opened on the log folder of a real run: are the charts there?"""

import json
import urllib.request

import keras
import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import keras_idea as ki
from browser_tests.browser import browser, find_everywhere, tensorboard
from keras_idea._callbacks.monitor import _CHARTS
from tests.support.helpers import residual_model

CHARTS = list(_CHARTS)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    """A tiny run in two parts; Keras's own callback writes into the folder too."""
    folder = tmp_path_factory.mktemp("logs")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 5, 8)).astype("float32")
    y = np.sin(x[..., :1])
    model = residual_model()
    model.compile(keras.optimizers.AdamW(ki.CosineDecay(0.02, 1e-3, 24, 2)), "mse")
    monitor = ki.Monitor(folder, update_every=1, neurons_every=2)
    prune = ki.IdeaPruneCallback(4, 2, 12)
    theirs = keras.callbacks.TensorBoard(folder)
    for epochs in (2, 1):
        model.fit(
            x,
            y,
            batch_size=8,
            epochs=epochs,
            verbose=0,
            validation_data=(x, y),
            callbacks=[prune, monitor, theirs],
        )
    return folder


@pytest.fixture(scope="module")
def page(log_dir, tmp_path_factory):
    """The browser, and the address of TensorBoard."""
    profile = tmp_path_factory.mktemp("browser")
    with tensorboard(log_dir) as address, browser(profile) as driver:
        yield driver, address


def wait(driver, condition, message):
    return WebDriverWait(driver, 60).until(condition, message)


def opened(page, tab):
    driver, address = page
    driver.get("about:blank")  # else a new fragment is no new page
    driver.get(f"{address}#{tab}")
    return driver


def text_of(driver):
    return driver.find_element(By.TAG_NAME, "body").text


def test_the_dashboard_opens_by_itself(page):
    driver = opened(page, "custom_scalars")

    def all_match(driver):
        text = text_of(driver)
        return text.count("Matches (") == len(CHARTS) and "Matches (0)" not in text

    wait(driver, all_match, "A chart is missing, or found no tags.")
    text = text_of(driver)
    assert "IDEA Prune" in text and [c for c in CHARTS if c not in text] == []
    charts = find_everywhere(driver, "vz-line-chart2")
    assert len(charts) == len(CHARTS)
    assert all(chart.is_displayed() and chart.size["height"] > 90 for chart in charts)
    # In each a line that goes somewhere.
    drawn = "return arguments[0].shadowRoot.querySelectorAll('path[d*=L]').length"
    wait(
        driver,
        lambda d: all(d.execute_script(drawn, chart) for chart in charts),
        "A chart shows no line.",
    )


def test_the_heat_map_is_an_image(page):
    driver = opened(page, "images")
    width = "return arguments[0].complete && arguments[0].naturalWidth"

    def widths(driver):
        images = find_everywhere(driver, "img")
        return [driver.execute_script(width, image) for image in images]

    wait(driver, lambda d: widths(d) == [640], "The heat map was not loaded.")


def test_both_writers_are_served(page):
    """The runs of Keras's callback, and every step of ours once, over two fits."""
    _, address = page
    runs = json.loads(asked(f"{address}data/runs"))
    assert {".", "train", "validation"} <= set(runs)
    found = asked(f"{address}data/plugin/scalars/scalars?run=.&tag=loss")
    steps = [step for _, step, _ in json.loads(found)]
    assert steps == sorted(steps) and set(steps) == set(range(1, 25))


def asked(address):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode()
