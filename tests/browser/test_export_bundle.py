"""A figure drawn by the joined script is the figure drawn by the modules."""

from __future__ import annotations

import pytest

import figures
from figures.export.bundle import ROOT, bundle, view
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

# Both ways beside each other in one page, after the same change of state; ids carry a page-wide number.
BOTH = """async ({ id, change }) => {
    const boot = JSON.parse(document.getElementById("boot").textContent);
    const spec = { ...boot.figure, strings: { ...boot.strings, ...boot.figure.strings } };
    const draw = async (modelModule, render) => {
        const el = document.createElement("div");
        el.style.width = "800px";
        document.body.append(el);
        const { schema, ...extras } = spec;
        const model = modelModule.createModel({ schema, extras });
        render({ model, el });
        for (const [name, value] of Object.entries(change)) model.set(name, value);
        const html = () => el.innerHTML.replace(/-\\d+(?=["),])/g, "-n");
        const pause = () => new Promise((done) => setTimeout(done, 100));
        while (spec.chart && !el.querySelector("[class^='bk-']")) await pause();
        let last = "", same = 0;
        while (same < 5) { await pause(); same = html() === last ? same + 1 : 0; last = html(); }
        el.remove();
        return last;
    };
    const from = (path) => globalThis.sdModules[Object.keys(globalThis.sdModules).find((key) => key.startsWith(`${path}@`))];
    const model = spec.view.replace(`${id}/view.js`, "web/model.js");
    return {
        modules: await draw(await import(model), (await import(spec.view)).render),
        joined: await draw(from("figures/web/model.js"), globalThis.sdViews[id].render),
    };
}"""

CHANGES: dict[str, dict[str, object]] = {
    "roofline": {"k": 40, "hardware": "l4"},
    "tiles": {"run": "prefill"},
    "branch": {"m": 3, "mode": "twobit"},
    "mask": {"m": 2, "reject": 1},
    "race": {"close": True},
    "accept": {"seed": 5, "context": "bees"},
    "lossless": {"seed": 5, "rule": "always"},
    "speedup": {"m": 9, "alpha": 0.5},
}


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_joined_and_separate_modules_draw_the_same(open_page: OpenPage, figure_id: str) -> None:
    page = open_page(f"/app/figure/{figure_id}", lang="zh")
    page.locator("html[data-ready]").wait_for(state="attached")
    script = bundle([ROOT / "figures" / "web" / "model.js", view(figure_id)])
    page.evaluate(f"() => {{ {script} }}")
    drawn = page.evaluate(BOTH, {"id": figure_id, "change": CHANGES[figure_id]})
    assert len(drawn["joined"]) > 2000
    assert drawn["joined"] == drawn["modules"]
