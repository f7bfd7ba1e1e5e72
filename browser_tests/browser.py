"""A real browser, without a screen: Debian's chromium, driven through selenium.

`make browser` installs it where it can. A machine that cannot have one says so with
KERAS_IDEA_NO_BROWSER=1; else its absence fails the tests.
"""

import contextlib
import functools
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

SWITCHED_OFF = os.environ.get("KERAS_IDEA_NO_BROWSER") == "1"
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@contextlib.contextmanager
def browser(folder, width=1400, height=1000):
    """A browser with a profile of its own in `folder`."""
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    assert all(found), (
        "This test needs chromium and chromedriver: `make browser`, or on Debian "
        "`apt-get install chromium chromium-driver`. Where that cannot be, set "
        "KERAS_IDEA_NO_BROWSER=1 to leave the browser tests out."
    )
    options = Options()
    options.binary_location = found[0]
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    sizes = (f"--window-size={width},{height}", f"--user-data-dir={folder}/profile")
    for flag in (*_FLAGS, *sizes):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(found[1]))
    try:
        driver.set_page_load_timeout(120)
        yield driver
    finally:
        driver.quit()


def find_everywhere(driver, selector):
    """The elements that a CSS selector finds in the page and its shadow trees."""
    return driver.execute_script(_FIND, selector)


_FIND = """
const found = [];
const search = root => {
  found.push(...root.querySelectorAll(arguments[0]));
  for (const element of root.querySelectorAll('*'))
    if (element.shadowRoot) search(element.shadowRoot);
};
search(document);
return found;
"""


@contextlib.contextmanager
def tensorboard(folder):
    """The address of a TensorBoard on a log folder."""
    port = _free_port()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder)]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--host", "localhost"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield _wait_for(f"http://localhost:{port}/", server)
    finally:
        server.terminate()
        server.wait(20)


@contextlib.contextmanager
def web_server(folder):
    """The address of a server of the files of a folder, and the paths asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, code="-", size="-"):
            asked.append((self.path, int(code)))

        def log_message(self, *arguments):
            pass

    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}/", asked
    finally:
        server.shutdown()
        server.server_close()


def _free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def _wait_for(address, server, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert server.poll() is None, server.stdout.read()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            return address
        time.sleep(0.2)
    raise AssertionError(f"No answer at {address} in {seconds} s.")
