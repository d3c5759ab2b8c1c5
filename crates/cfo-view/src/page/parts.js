// Parts of views: cards, legends, curves over time, the numbers at the probe.

function element(name, attributes = {}, parent = null, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// A card with a heading, and a place beside it for a legend or a number.
function card(parent, title) {
  const box = element("div", { class: "card" }, parent);
  const header = element("header", {}, box);
  const heading = element("h2", {}, header, title);
  const value = element("div", { class: "value" }, header);
  return { box, heading, value };
}

function legend(place, entries) {
  place.replaceChildren();
  const list = element("div", { class: "legend" }, place);
  for (const { label, color, dashed } of entries) {
    const entry = element("span", {}, list);
    const line = element("i", dashed ? { class: "dashed" } : {}, entry);
    line.style.borderTopColor = `var(--${color})`;
    entry.append(label);
  }
}

// Names of the space axes; fields with fewer have the last ones.
const AXIS_NAMES = ["z", "y", "x"];

const PREDICTION_COLORS = ["predicted", "third"];

// Curves of the truth and its predictions over time, with a cursor that moves the time.
class Histories {
  constructor(page, parent, title) {
    this.page = page;
    this.card = card(parent, title);
    this.chart = new LineChart(this.card.box, { height: 170, onPick: (time) => page.seek(time) });
  }

  load(point, channel, title) {
    const { page } = this;
    if (title) this.card.heading.textContent = title;
    this.shown = page.shares().map(({ track, color, dashed, label }) => ({
      x: track.times, y: track.history(point, channel), color, dashed, label, dots: true, track,
    }));
    this.chart.set(this.shown, { x: page.span() });
    legend(this.card.value, this.shown);
    this.seek();
  }

  seek() {
    const dots = this.shown.map(({ track, y, color }) => {
      const frame = track.frameAt(this.page.time);
      return { at: track.times[frame], value: y[frame], color };
    });
    this.chart.setCursor(this.page.time, dots);
  }
}

// Relative error at each time.
class Errors {
  constructor(page, parent) {
    this.page = page;
    this.parent = parent;
    this.card = card(parent, "Relative L2 error over time");
  }

  load() {
    const { page } = this;
    const shares = page.shares().filter(({ track }) => track.errors && track.errors.some((error) => error !== null));
    this.card.box.hidden = shares.length === 0;
    this.card.box.style.display = shares.length ? "" : "none";
    if (!shares.length) return;
    this.shown = shares.map(({ track, color, label }) => ({
      x: track.times, y: track.errors.map((error) => error ?? NaN), color, label, dots: true, track,
    }));
    const positive = this.shown.flatMap(({ y }) => y.filter((error) => error > 0));
    const wide = positive.length > 0 && rangeOf([positive])[1] > 100 * rangeOf([positive])[0];
    if (!this.chart || this.chart.options.log !== wide) {
      this.chart?.box.remove();
      this.chart = new LineChart(this.card.box, { height: 170, log: wide, fromZero: !wide, onPick: (time) => page.seek(time) });
    }
    this.chart.set(this.shown, { x: page.span() });
    this.seek();
  }

  seek() {
    if (!this.shown || this.card.box.hidden) return;
    const dots = this.shown.map(({ track, y, color, label }) => {
      const frame = track.frameAt(this.page.time);
      return { at: track.times[frame], value: y[frame], color, label };
    });
    this.chart.setCursor(this.page.time, dots);
    this.card.value.textContent = dots.map(({ value, label }) => `${dots.length > 1 ? `${label} ` : ""}${steady(value, 3)} now`).join(", ");
  }
}

// The numbers at the probe, in words.
class Probe {
  constructor(page, parent) {
    this.page = page;
    this.box = element("div", { class: "probe", id: "probe", "aria-live": "off" }, parent);
  }

  show() {
    const { page } = this;
    const { field } = page;
    const parts = [];
    const places = page.place();
    AXIS_NAMES.slice(3 - field.sides.length).reverse().forEach((name, index) => parts.push(["", `${name} `, shown(places[places.length - 1 - index], 4)]));
    const truth = page.truth();
    const covered = truth.covers(page.time);
    const time = covered ? truth.times[truth.frameAt(page.time)] : page.time;
    parts.push(["", "t ", shown(time, 5)]);
    const channels = field.sides.length === 0 ? field.channels.map((_, channel) => channel) : [page.channel];
    for (const channel of channels) {
      const { name, unit } = field.channels[channel];
      const after = unit ? ` ${unit}` : "";
      page.shares().forEach(({ track, color, label }) => {
        const frame = track.frameAt(page.time);
        // A number at another time names that time.
        const at = shown(track.times[frame], 5) === shown(time, 5) ? "" : ` at t ${shown(track.times[frame], 5)}`;
        const value = track.covers(page.time) ? shown(track.value(frame, page.probe, channel), 6) + after + at : "–";
        parts.push([color, `${name} ${page.shares().length > 1 ? label : ""} `, value]);
      });
      page.shares().slice(1).forEach(({ track }) => {
        if (field.sides.length > 0) parts.push(["", "error ", shown(track.difference(truth, track.frameAt(page.time), page.probe, channel), 4)]);
      });
    }
    this.box.replaceChildren();
    for (const [color, label, value] of parts) {
      const part = element("div", {}, this.box);
      element("span", {}, part, label);
      element("b", color ? { class: color } : {}, part, value);
    }
  }
}
