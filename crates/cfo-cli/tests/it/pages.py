"""Make trajectory files, and open the pages that `cfo view` makes of them in a browser.

Usage: pages.py make | check PAGE KIND | live ADDRESS | screenshot PAGE PICTURE, in the folder of the files. The browser is `CFO_BROWSER`.
"""

import math
import os
import sys
from pathlib import Path

import numpy as np

M, N = 3, 9
SHAPES = {"volume": (5, 8, 6, 2), "plane": (10, 14, 2), "line": (17, 1), "system": (4,)}
DOMAINS = {"volume": [[0.0, 2.0], [0.0, 1.0], [-1.0, 1.0]], "plane": [[0.0, 1.0], [-1.0, 1.0]], "line": [[0.0, 2.0]], "system": []}


def source(kind):
    """Values of the truth and a prediction, and the irregular times of each trajectory."""
    random = np.random.default_rng(7)
    values = np.cumsum(random.normal(size=(M, N, *SHAPES[kind])), axis=1).astype("f4")
    times = np.cumsum(random.uniform(0.1, 1.0, size=(M, N)), axis=1)
    predicted = (values + 0.1 * random.normal(size=values.shape)).astype("f4")
    return values, predicted, times


def make():
    for kind, domain in DOMAINS.items():
        values, predicted, times = source(kind)
        space = {"domain": domain, "periodic": [1] * len(domain)} if domain else {}
        names = [f"<b>channel {c}" for c in range(values.shape[-1])]
        for name, field in [(kind, values), (f"{kind}-predicted", predicted)]:
            np.savez(f"{name}.npz", values=field, times=times, channel_names=names, system="</script>&", **space)


def opened(browser, page, **options):
    """A tab with the page, and the errors of its console."""
    tab = browser.new_page(**options)
    problems = []
    tab.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or problems.append(request.url))
    tab.goto(Path(page).resolve().as_uri())
    tab.wait_for_function("window.cfo && window.cfo.ready", timeout=30000)
    return tab, problems


def pictures(tab):
    """What all canvases show."""
    return tab.evaluate("Array.from(document.querySelectorAll('canvas'), (canvas) => canvas.toDataURL()).join()")


def move_slider(tab, time):
    """As a hand does."""
    tab.evaluate(
        "(time) => { const slider = document.querySelector('input#time'); slider.value = time;"
        " slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        time,
    )


def check_field(tab, kind):
    values, predicted, times = source(kind)
    shape = SHAPES[kind]
    before = pictures(tab)
    move_slider(tab, times[0, 5])
    after = pictures(tab)
    assert before != after, "the slider did not change the picture"
    assert math.isclose(tab.evaluate("window.cfo.time"), times[0, 5])
    tab.evaluate("(time) => window.cfo.seek(time)", times[0, 2])
    assert pictures(tab) not in (before, after), "seeking did not change the picture"
    assert math.isclose(float(tab.evaluate("document.querySelector('input#time').value")), times[0, 2])
    random = np.random.default_rng(1)
    for _ in range(40):
        i, n, c = random.integers(M), random.integers(N), random.integers(shape[-1])
        place = [int(random.integers(extent)) for extent in shape[:-1]]
        # Between two snapshots the nearest one is shown.
        time = times[i, n] + 0.3 * (times[i, min(n + 1, N - 1)] - times[i, n])
        for file, field in enumerate([values, predicted]):
            found = tab.evaluate("(where) => window.cfo.value(...where)", [int(i), float(time), place, int(c), file])
            expected = float(field[(i, n, *place, c)])
            # The numbers of a small page are exact; a prediction is the sum of the truth and a difference, in single precision.
            assert abs(found - expected) <= (0 if file == 0 else 2e-6 * max(1, abs(expected))), (found, expected)
    check_probe(tab, kind, values, times)
    tab.keyboard.press("ArrowRight")
    assert math.isclose(tab.evaluate("window.cfo.time"), times[0, 3])
    tab.keyboard.press("]")
    assert tab.evaluate("window.cfo.page.position") == 1
    picture = pictures(tab)
    tab.click("#theme")
    assert pictures(tab) != picture, "dark looks as light"


def check_probe(tab, kind, values, times):
    """Point at the picture and read the number off the page."""
    def digits(value):
        """A number as the page writes it: six significant digits."""
        return f"{float(value):.6g}"

    if kind == "system":
        shown = tab.inner_text("#probe").replace("\u2212", "-")
        assert all(digits(value) in shown for value in values[0, 2]), (shown, values[0, 2])
        return
    box = tab.evaluate(
        "(() => { const view = window.cfo.page.view.panels[0].picture; const place = view.above.getBoundingClientRect();"
        " const [left, top, width, height] = view.inside(); return [place.left + left, place.top + top, width, height]; })()"
    )
    row, column = 3, 2
    # In space the last axis is across, on a line time is. The first slice of a volume is across its first axis.
    height = SHAPES[kind][1 if kind == "volume" else 0]
    across = (column + 0.5) / SHAPES["plane" if kind == "line" else kind][-2]
    x = box[0] + across * box[2]
    y = box[1] + (1 - (row + 0.5) / height) * box[3]
    tab.mouse.move(x, y)
    if kind == "volume":
        tab.mouse.down()
        tab.mouse.up()
    place = {"volume": (SHAPES["volume"][0] // 2, row, column), "plane": (row, column), "line": (row,)}[kind]

    def check_number(place):
        expected, shown = values[(0, 2, *place, 0)], tab.inner_text("#probe").replace("\u2212", "-")
        assert digits(expected) in shown, (shown, expected)

    check_number(place)
    if kind == "volume":
        before = pictures(tab)
        tab.evaluate(
            "() => { const slider = document.getElementById('slice-z'); slider.value = 4;"
            " slider.dispatchEvent(new Event('input', { bubbles: true })); }"
        )
        assert pictures(tab) != before, "the slider of an axis did not move the slice"
        check_number((4, row, column))


def check(page, kind):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["CFO_BROWSER"], args=["--no-sandbox"])
        for options in [{"viewport": {"width": 1280, "height": 900}}, {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}]:
            tab, problems = opened(browser, page, **options)
            wide = tab.evaluate("document.documentElement.scrollWidth")
            assert wide <= options["viewport"]["width"], f"the page is {wide} wide"
            assert len(tab.query_selector_all("canvas")) > 1
            if options["viewport"]["width"] > 1000 and kind in SHAPES:
                check_field(tab, kind)
            if kind == "run":
                text = tab.inner_text("main")
                for part in ["Training", "validation error", "relative L2 error", "operator"]:
                    assert part in text, (part, text)
            assert not problems, problems
            tab.close()
        browser.close()


def live(address):
    """The page of `cfo serve`: predictions follow the slider, edits and the solver."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["CFO_BROWSER"], args=["--no-sandbox"])
        # The server forbids scripts made of text, by which the test looks into the page.
        tab = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
        problems = []
        tab.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.goto(address)
        tab.wait_for_function("window.cfo && window.cfo.ready", timeout=30000)
        first, last = tab.evaluate("window.cfo.page.truth().times.filter((_, n, all) => n === 0 || n === all.length - 1)")
        for time in [first + 0.123 * (last - first), last + 0.1 * (last - first), first - 0.05 * (last - first)]:
            tab.evaluate("(time) => window.cfo.seek(time)", time)
            # The state at just this time arrives.
            tab.wait_for_function("(time) => window.cfo.page.tracks[1][0].times.includes(time)", arg=time, timeout=20000)
        # Beyond the data there is no true number to stand beside the predicted one.
        probe, clock = tab.inner_text("#probe"), tab.inner_text("#clock")
        assert probe.count("–") == 3, probe
        assert "before the snapshots" in clock, clock
        status = tab.inner_text("#status")
        assert "evaluations in" in status and "ms" in status, status
        before = tab.evaluate("window.cfo.value(0, 0.2, 0, 0, 1)")
        tab.fill("#live input[type=number] >> nth=2", "7.5")
        tab.wait_for_function("(before) => Math.abs(window.cfo.value(0, 0.2, 0, 0, 1) - before) > 1e-6", arg=before, timeout=20000)
        assert abs(tab.evaluate("window.cfo.page.tracks[1][0].value(window.cfo.page.tracks[1][0].frameAt(0), 0, 0)") - 7.5) < 1e-4
        assert not problems, problems
        browser.close()


def screenshot(page, picture):
    from playwright.sync_api import sync_playwright

    width, height, theme, share = (sys.argv[4:] + ["1280", "800", "light", "0.5"][len(sys.argv[4:]) :])[:4]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["CFO_BROWSER"], args=["--no-sandbox"])
        tab, problems = opened(browser, page, viewport={"width": int(width), "height": int(height)}, color_scheme=theme)
        tab.evaluate("(share) => { const { page } = window.cfo; if (page.view) { const [a, b] = page.span(); page.seek(a + share * (b - a)); } }", float(share))
        tab.wait_for_timeout(200)
        tab.screenshot(path=picture)
        assert not problems, problems


{"make": make, "check": check, "live": live, "screenshot": screenshot}[sys.argv[1]](*sys.argv[2:4])
