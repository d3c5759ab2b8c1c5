// The page: its selection, its time, and the views that follow them.

class Page {
  constructor(data) {
    this.data = data;
    this.field = data.field;
    this.tracks = [];
    this.position = 0;
    this.channel = 0;
    this.map = "viridis";
    this.rangeOf = "trajectory";
    this.time = 0;
    this.probe = 0;
    this.ready = false;
    this.view = null;
  }

  // The selected trajectory in the first file.
  truth() {
    return this.tracks[0][this.position];
  }

  // The truth and its predictions, with their colours.
  shares() {
    if (this.cachedShares) return this.cachedShares;
    const shares = this.tracks.map((row, file) => ({
      track: row[this.position],
      label: this.tracks.length > 1 ? (file === 0 ? "true" : this.tracks.length > 2 ? this.field.files[file].label : "predicted") : this.field.files[0].label,
      color: file === 0 ? "true" : PREDICTION_COLORS[(file - 1) % 2],
      dashed: file > 0,
    }));
    return (this.cachedShares = shares.filter(({ track }) => track));
  }

  // First and last time that are shown.
  span() {
    const shares = this.shares();
    return [Math.min(...shares.map(({ track }) => track.times[0])), Math.max(...shares.map(({ track }) => track.times[track.times.length - 1]))];
  }

  // Centres of the shown cells along an axis.
  coordinates(axis) {
    const { field } = this;
    const [low, high] = field.domain[axis];
    const points = field.source[axis];
    return Array.from({ length: field.sides[axis] }, (_, index) => low + ((index * field.stride + 0.5) / points) * (high - low));
  }

  indexAt(axis, coordinate) {
    return nearest(this.coordinates(axis), coordinate);
  }

  // The position of the probe along each axis: its index, and in the units of the domain.
  indices() {
    return indicesOf(this.probe, this.field.sides);
  }

  place() {
    return this.indices().map((index, axis) => this.coordinates(axis)[index]);
  }

  // Smallest and largest number of the truth: the scale that all panels share.
  scale() {
    const key = `${this.position} ${this.channel} ${this.rangeOf === "snapshot" ? this.truth().frameAt(this.time) : ""}`;
    if (this.scaleKey === key) return this.cachedScale;
    const track = this.truth();
    const points = track.points;
    const [from, to] = this.rangeOf === "snapshot" ? [track.frameAt(this.time), track.frameAt(this.time) + 1] : [0, track.times.length];
    let [low, high] = [Infinity, -Infinity];
    for (let frame = from; frame < to; frame++) {
      for (let point = 0; point < points; point++) {
        const value = track.value(frame, point, this.channel);
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    this.scaleKey = key;
    return (this.cachedScale = low <= high ? [low, high] : [0, 1]);
  }

  // The largest absolute error of a prediction.
  errorScale(track) {
    track.largest ||= {};
    if (track.largest[this.channel] !== undefined) return track.largest[this.channel];
    let most = 0;
    const truth = this.truth();
    for (let frame = 0; frame < track.times.length; frame++) {
      for (let point = 0; point < track.points; point++) {
        const size = Math.abs(track.difference(truth, frame, point, this.channel));
        if (size > most) most = size;
      }
    }
    return (track.largest[this.channel] = most || 1);
  }

  // Pictures to show: a title, a scale, and the number at a frame and a point.
  panels() {
    const page = this;
    const { name, unit } = this.field.channels[this.channel];
    const what = unit ? `${name} (${unit})` : name;
    const [table, channel] = [COLOR_TABLES[this.map], this.channel];
    const several = this.tracks.length > 2;
    return this.shares().flatMap(({ track, label }, number) => {
      const values = {
        title: this.shares().length > 1 ? `${what}, ${label}` : what,
        times: track.times, table, get low() { return page.scale()[0]; }, get high() { return page.scale()[1]; },
        at: (frame, point) => track.value(frame, point, channel),
      };
      if (number === 0) return [values];
      const most = this.errorScale(track);
      const error = {
        title: several ? `error of ${label}` : "error, predicted − true", times: track.times, table: COLOR_TABLES.diverging, low: -most, high: most,
        at: (frame, point) => track.difference(this.truth(), frame, point, channel),
      };
      return [values, error];
    });
  }

  seek(time) {
    const [first, last] = this.span();
    this.time = Math.min(last, Math.max(first, Number(time)));
    const slider = document.getElementById("time");
    slider.value = String(this.time);
    this.showClock();
    this.view?.seek();
    this.onSeek?.();
  }

  showClock() {
    const track = this.truth();
    const frame = track.frameAt(this.time);
    const clock = document.getElementById("clock");
    clock.replaceChildren(`t = ${steady(this.time, 4)}`);
    const beyond = this.time < track.times[0] ? "before the snapshots" : "after the snapshots";
    element("small", {}, clock, track.covers(this.time) ? `snapshot ${frame + 1} of ${track.times.length}` : beyond);
  }

  setProbe(indices) {
    const { sides } = this.field;
    this.probe = pointAt(indices.map((index, axis) => Math.min(sides[axis] - 1, Math.max(0, index))), sides);
    this.view?.probeMoved?.();
  }

  // The number shown for a trajectory of the first file at the snapshot nearest to a time. A place is a point of the source's
  // grid or its index along each axis, a channel a number or a name; `file` counts the files of the page.
  value(trajectory, time, place = 0, channel = 0, file = 0) {
    const { field } = this;
    const position = field.trajectories.findIndex(({ index }) => index === trajectory);
    const track = this.tracks[file]?.[position];
    if (!track) return undefined;
    const given = Array.isArray(place) ? place : indicesOf(place || 0, field.source);
    const shown = field.sides.map((side, axis) => Math.min(side - 1, Math.max(0, Math.round(given[axis] / field.stride))));
    const point = pointAt(shown, field.sides);
    const number = typeof channel === "string" ? field.channels.findIndex(({ name }) => name === channel) : channel;
    return track.value(track.frameAt(time), point, number);
  }

  // The selection has changed.
  load() {
    this.cachedShares = null;
    this.scaleKey = null;
    const [first, last] = this.span();
    const slider = document.getElementById("time");
    slider.min = String(first);
    slider.max = String(last > first ? last : first + 1);
    this.time = Math.min(last, Math.max(first, this.time));
    slider.value = String(this.time);
    this.showClock();
    this.drawTicks();
    this.view.load();
  }

  // Ticks at the times of the snapshots.
  drawTicks() {
    const canvas = document.getElementById("ticks");
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(7 * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { times } = this.truth();
    const [first, last] = this.span();
    if (times.length > width / 2) return;
    context.fillStyle = inkOf("soft");
    // The knob of a slider stays inside it, so its centre does not reach the ends.
    for (const time of times) context.fillRect(8 + ((time - first) / (last - first || 1)) * (width - 16) - 0.5, 0, 1, 5);
  }
}

function pickers(page) {
  const place = document.getElementById("controls");
  place.replaceChildren();
  const { field } = page;
  const control = (text) => element("label", { class: "control" }, place, text);
  if (field.trajectories.length > 1) {
    const box = element("div", { class: "control" }, place, "trajectory");
    const before = element("button", { type: "button", class: "step", "aria-label": "trajectory before" }, box, "‹");
    const choice = element("select", { id: "trajectory", "aria-label": "trajectory" }, box);
    field.trajectories.forEach(({ index, split }, position) => element("option", { value: position }, choice, split ? `${index} (${split})` : String(index)));
    const after = element("button", { type: "button", class: "step", "aria-label": "trajectory after" }, box, "›");
    page.pick = (position) => {
      page.position = (position + field.trajectories.length) % field.trajectories.length;
      choice.value = String(page.position);
      showParameters(page);
      page.load();
      page.onPick?.();
    };
    choice.addEventListener("change", () => page.pick(Number(choice.value)));
    before.addEventListener("click", () => page.pick(page.position - 1));
    after.addEventListener("click", () => page.pick(page.position + 1));
  }
  if (field.sides.length > 0 && field.channels.length > 1) {
    const box = element("div", { class: "control" }, place, "channel");
    const segments = element("div", { class: "segments", role: "group" }, box);
    const buttons = field.channels.map(({ name }, channel) => {
      const button = element("button", { type: "button", "aria-pressed": String(channel === 0) }, segments, name);
      button.addEventListener("click", () => page.pickChannel(channel));
      return button;
    });
    page.pickChannel = (channel) => {
      page.channel = channel % field.channels.length;
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === page.channel)));
      page.load();
    };
  }
  if (field.sides.length > 0) {
    const map = element("select", { id: "map" }, control("colours"));
    ["viridis", "magma", "grey", "diverging"].forEach((name) => element("option", { value: name }, map, name));
    map.addEventListener("change", () => {
      page.map = map.value;
      page.load();
    });
    const range = element("select", { id: "range" }, control("scale from"));
    [["trajectory", "the trajectory"], ["snapshot", "each snapshot"]].forEach(([value, text]) => element("option", { value }, range, text));
    range.addEventListener("change", () => {
      page.rangeOf = range.value;
      page.load();
    });
  }
  page.parameters = element("div", { class: "control", id: "parameters" }, place);
  showParameters(page);
}

function showParameters(page) {
  const { field } = page;
  const values = field.trajectories[page.position].parameters;
  page.parameters.textContent = field.parameters.map((name, index) => `${name} ${shown(values[index], 4)}`).join(" · ");
}

function transport(page) {
  const [slider, play, speed] = ["time", "play", "speed"].map((name) => document.getElementById(name));
  document.getElementById("transport").hidden = false;
  slider.addEventListener("input", () => page.seek(Number(slider.value)));
  let playing = false;
  let last = null;
  const step = (now) => {
    if (!playing) return;
    const [first, end] = page.span();
    // The whole trajectory takes ten seconds at speed 1.
    const next = page.time + (((now - (last ?? now)) / 10000) * Number(speed.value)) * (end - first);
    last = now;
    page.seek(next >= end ? first : next);
    requestAnimationFrame(step);
  };
  const toggle = (on = !playing) => {
    playing = on;
    last = null;
    play.textContent = playing ? "❚❚" : "▶";
    play.setAttribute("aria-label", playing ? "Pause" : "Play");
    if (playing) requestAnimationFrame(step);
  };
  play.addEventListener("click", () => toggle());
  const faster = (by) => (speed.selectedIndex = Math.min(speed.options.length - 1, Math.max(0, speed.selectedIndex + by)));
  const snapshot = (by) => {
    const { times } = page.truth();
    const frame = Math.min(times.length - 1, Math.max(0, page.truth().frameAt(page.time) + by));
    page.seek(times[frame]);
  };
  const keys = {
    " ": () => toggle(), ArrowLeft: () => snapshot(-1), ArrowRight: () => snapshot(1), Home: () => page.seek(page.span()[0]), End: () => page.seek(page.span()[1]),
    "+": () => faster(1), "=": () => faster(1), "-": () => faster(-1), "[": () => page.pick?.(page.position - 1), "]": () => page.pick?.(page.position + 1),
    c: () => page.pickChannel?.(page.channel + 1), d: switchTheme,
  };
  document.addEventListener("keydown", (event) => {
    const typing = ["SELECT", "TEXTAREA"].includes(event.target.tagName) || (event.target.tagName === "INPUT" && event.target.id !== "time");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    if (event.key === " " && event.target.tagName === "BUTTON") return;
    event.preventDefault();
    keys[event.key]();
  });
}

function switchTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  redraw();
}

// After a change of colours everything is drawn again.
function redraw() {
  document.querySelectorAll(".canvas").forEach((box) => box.plot?.fit());
  if (window.cfo?.page?.view) window.cfo.page.load();
}

function showNotes(notes) {
  if (!notes.length) return;
  const place = document.getElementById("notes");
  place.hidden = false;
  place.replaceChildren();
  element("h2", {}, place, "Left out or rounded");
  const list = element("ul", {}, place);
  notes.forEach((note) => element("li", {}, list, note));
}

function subtitle(field) {
  const grid = field.sides.length === 0 ? `${field.channels.length} components` : `${field.source.join(" × ")} points, ${field.channels.map(({ name }) => name).join(", ")}`;
  const files = field.files.map(({ label }, number) => (field.files.length > 1 ? `${number === 0 ? "true" : "predicted"}: ${label}` : label));
  return [field.system, grid, ...files].filter(Boolean).join(" · ");
}

async function start() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
  const data = JSON.parse(document.getElementById("cfo-data").textContent);
  const page = new Page(data);
  window.cfo = {
    data, page, get ready() { return page.ready; }, seek: (time) => page.seek(time), value: (...where) => page.value(...where),
    get time() { return page.time; },
  };
  dark.addEventListener("change", () => {
    document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
    redraw();
  });
  document.getElementById("theme").addEventListener("click", switchTheme);
  const help = document.getElementById("help");
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.key === "?") help.showModal();
  });
  showNotes(data.notes);
  if (data.run) showRun(document.getElementById("run"), data.run);
  if (data.field) await showField(page);
  else document.getElementById("subtitle").textContent = data.run ? data.run.name : "";
  if (data.live) await goLive(page);
  page.ready = true;
}

async function showField(page) {
  page.tracks = await decodeField(page.field, () => {});
  drawField(page);
}

function drawField(page) {
  const { field } = page;
  document.getElementById("subtitle").textContent = subtitle(field);
  page.time = page.tracks[0][0].times[0];
  page.probe = pointAt(field.sides.map((side) => Math.floor(side / 2)), field.sides);
  pickers(page);
  transport(page);
  const place = document.getElementById("views");
  page.view = new [SystemView, LineView, SliceView, SliceView][field.sides.length](page, place);
  page.load();
}

start().catch((error) => {
  element("p", { class: "failed" }, document.querySelector("main"), `This page could not be drawn: ${error.message}`);
  throw error;
});
