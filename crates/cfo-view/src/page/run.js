// The contents of a run's folder: its training and its evaluation.

function showRun(place, run) {
  place.hidden = false;
  place.replaceChildren();
  const row = element("div", { class: "row" }, place);
  row.style.setProperty("--least", "380px");
  const history = run.history.filter(({ step }) => step > 0);
  if (history.length) {
    const training = card(row, "Training");
    const loss = history.filter(({ loss }) => loss !== null);
    const validation = history.filter(({ validation }) => validation !== null);
    const series = [
      { x: loss.map(({ step }) => step), y: loss.map(({ loss }) => loss), color: "true", label: "loss" },
      { x: validation.map(({ step }) => step), y: validation.map(({ validation }) => validation), color: "predicted", label: "validation error", dots: true },
    ].filter(({ x }) => x.length);
    new LineChart(training.box, { height: 230, log: true, xLabel: "step" }).set(series);
    legend(training.value, series);
  }
  if (run.per_time.length) {
    const errors = card(row, "Error over time (evaluation)");
    const x = run.per_time.map(([time]) => time);
    const series = [
      { x, y: run.per_time.map(([, mean]) => mean), color: "predicted", label: "mean" },
      { x, y: run.per_time.map(([, , worst]) => worst), color: "third", dashed: true, label: "worst" },
    ];
    new LineChart(errors.box, { height: 230, fromZero: true, xLabel: "time" }).set(series);
    legend(errors.value, series);
  }
  const known = run.per_trajectory.filter(([, error]) => error !== null);
  if (known.length > 1) {
    const each = card(row, "Error of each trajectory, sorted");
    const sorted = known.map(([, error]) => error).sort((a, b) => a - b);
    new LineChart(each.box, { height: 230, fromZero: true }).set([{ x: sorted.map((_, index) => index + 1), y: sorted, color: "predicted", dots: "only" }]);
    each.value.textContent = `median ${shown(sorted[sorted.length >> 1], 3)}`;
  }
  for (const [title, rows] of [["Run", run.facts], ["Evaluation", run.metrics]]) {
    if (!rows.length) continue;
    const { box } = card(row, title);
    const table = element("table", { class: "facts" }, box);
    for (const [name, value] of rows) {
      const line = element("tr", {}, table);
      element("td", {}, line, name);
      element("td", {}, line, value);
    }
  }
  for (const [name, address] of run.figures) {
    const figure = element("figure", { class: "card" }, row);
    element("img", { src: address, alt: name, loading: "lazy" }, figure);
    element("figcaption", {}, figure, name);
  }
}
