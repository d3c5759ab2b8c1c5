"""Frames per second of a page of `cfo view` while its time slider moves, in a headless Chromium.

    python benchmarks/page_speed.py PAGE.html [SECONDS]

Needs playwright and a Chromium (`CFO_BROWSER`, else `chromium`).
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

MEASURE = """async (seconds) => {
  const { page } = window.cfo;
  const [first, last] = page.span();
  const frames = page.truth().times.length;
  const costs = [];
  const start = performance.now();
  let drawn = 0;
  while (performance.now() - start < 1000 * seconds) {
    await new Promise(requestAnimationFrame);
    const before = performance.now();
    // Another snapshot each time, as when the slider is dragged.
    window.cfo.seek(first + ((drawn % frames) / (frames - 1)) * (last - first));
    costs.push(performance.now() - before);
    drawn++;
  }
  costs.sort((a, b) => a - b);
  return [drawn / ((performance.now() - start) / 1000), costs[costs.length >> 1], costs[Math.floor(costs.length * 0.95)]];
}"""

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=os.environ.get("CFO_BROWSER") or shutil.which("chromium"), args=["--no-sandbox"]
    )
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(Path(sys.argv[1]).resolve().as_uri())
    tab.wait_for_function("window.cfo && window.cfo.ready")
    rate, median, late = tab.evaluate(MEASURE, float(sys.argv[2]) if len(sys.argv) > 2 else 3.0)
    print(f"{rate:.1f} frames per second; median {median:.1f} ms per frame, 95 % below {late:.1f} ms")
    browser.close()
