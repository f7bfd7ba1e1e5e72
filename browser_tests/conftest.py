"""Says so where the tests are switched off; else a missing browser fails them."""

import pytest

from browser_tests.browser import SWITCHED_OFF


def pytest_report_header(config):
    return "KERAS_IDEA_NO_BROWSER=1: tests in a browser skipped" if SWITCHED_OFF else []


def pytest_collection_modifyitems(items):
    if SWITCHED_OFF:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="KERAS_IDEA_NO_BROWSER=1"))
