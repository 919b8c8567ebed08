"""A headless Chromium, seen through what a person sees: text, plots, rows, and errors in the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM = "chromium"
CHROMEDRIVER = "chromedriver"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,1400 "
    "--enable-unsafe-swiftshader"
)
PATIENCE_S = 120.0
"""For a page on a machine that is busy with other tests; nothing is judged by it."""


@dataclass
class Browser:
    driver: webdriver.Chrome

    @classmethod
    @contextmanager
    def open(cls, profile: Path) -> Iterator[Browser]:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which(CHROMIUM))
        for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(str(shutil.which(CHROMEDRIVER))))
        driver.set_script_timeout(PATIENCE_S)  # a page that draws answers nothing meanwhile
        driver.set_page_load_timeout(PATIENCE_S)
        try:
            yield cls(driver)
        finally:
            driver.quit()

    def go(self, address: str) -> None:
        """Load a page; what earlier ones wrote to the console is forgotten."""
        self.driver.get_log("browser")
        self.driver.get(address)

    def wait_for(self, *texts: str) -> str:
        """Wait until the page shows all these texts; give all that it shows."""
        found = ""

        def is_there() -> bool:
            nonlocal found
            found = self.text
            return all(text in found for text in texts)

        self._wait(is_there, texts)
        return found

    def wait_for_plots(self, count: int) -> None:
        """Wait until at least so many plots are drawn."""
        self._wait(lambda: self.plots >= count, f"{count} plots, there are {self.plots}")

    @property
    def text(self) -> str:
        """All text that is visible; by the page's own means, as WebDriver looks at each of a plot's labels alone."""
        return str(self.driver.execute_script("return document.body.innerText"))

    @property
    def plots(self) -> int:
        """Plots that have something in them."""
        script = "return document.querySelectorAll('.js-plotly-plot .plot-container .main-svg .infolayer').length"
        return int(self.driver.execute_script(script))

    @property
    def coordinates(self) -> int:
        """Axes of parallel coordinates."""
        return len(self.driver.find_elements(By.CSS_SELECTOR, ".parcoords .y-axis"))

    @property
    def rows(self) -> int:
        return len(self.driver.find_elements(By.CSS_SELECTOR, "tbody tr"))

    @property
    def errors(self) -> list[str]:
        """What the page complained of since it was loaded."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def _wait(self, condition: Any, what: object) -> Any:
        return WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.1).until(
            lambda _: condition(), f"waited for {what}"
        )
