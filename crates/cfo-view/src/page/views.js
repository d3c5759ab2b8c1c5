// The views of a trajectory, one per kind of field. Each loads the selection and then follows the time.

// A system without space: its components over time and its state space.
class SystemView {
  constructor(page, parent) {
    this.page = page;
    const { field } = page;
    this.probe = new Probe(page, parent);
    const row = element("div", { class: "row" }, parent);
    row.style.setProperty("--least", "430px");
    const left = element("div", { class: "card" }, row);
    this.legend = element("header", {}, left);
    element("h2", {}, this.legend, "Components over time");
    this.legendPlace = element("div", { class: "value" }, this.legend);
    const count = field.channels.length;
    this.charts = field.channels.map((channel, index) => {
      const last = index === count - 1;
      return new LineChart(left, {
        height: Math.max(74, Math.min(240, 600 / count)), yLabel: channel.unit ? `${channel.name} (${channel.unit})` : channel.name,
        margins: [6, 12, last ? 22 : 16, 66], onPick: (time) => page.seek(time),
      });
    });
    const right = element("div", { style: "display: flex; flex-direction: column; gap: 14px; min-width: 0;" }, row);
    if (count > 1) this.makeSpace(right);
    this.errors = new Errors(page, right);
  }

  makeSpace(parent) {
    const { page } = this;
    const { box, value } = card(parent, "State space");
    this.space = new StateSpace(box, {});
    this.axes = [0, 1, 2].filter((axis) => axis < page.field.channels.length);
    if (page.field.channels.length <= 3) {
      value.textContent = "drag to rotate";
      return;
    }
    this.axes.forEach((axis) => {
      const choice = element("select", { "aria-label": `component on axis ${axis + 1}` }, value);
      page.field.channels.forEach(({ name }, index) => element("option", { value: index }, choice, name));
      choice.value = String(axis);
      choice.addEventListener("change", () => {
        this.axes[axis] = Number(choice.value);
        this.loadSpace();
      });
    });
  }

  load() {
    const { page } = this;
    const shares = page.shares();
    legend(this.legendPlace, shares);
    this.curves = this.charts.map((chart, channel) => {
      const series = shares.map(({ track, color, dashed }) => ({ x: track.times, y: track.history(0, channel), color, dashed, dots: true, track }));
      // The range stays near that of the truth, so that a diverging prediction does not hide it.
      const [low, high] = rangeOf([series[0].y]);
      const room = 0.25 * (high - low || 1);
      const [least, most] = rangeOf(series.map(({ y }) => y));
      chart.set(series, { x: page.span(), y: [Math.max(least, low - room) - room / 8, Math.min(most, high + room) + room / 8] });
      return series;
    });
    this.loadSpace();
    this.errors.load();
    this.seek();
  }

  loadSpace() {
    if (!this.space) return;
    const { page, axes } = this;
    const paths = page.shares().map(({ track, color, dashed }) => ({
      points: track.times.map((_, frame) => axes.map((channel) => track.value(frame, 0, channel))), color, dashed, track,
    }));
    this.space.set(paths, axes.map((channel) => page.field.channels[channel].name));
    this.space.setNow(paths.map(({ track }) => track.frameAt(page.time)));
  }

  seek() {
    const { page } = this;
    this.charts.forEach((chart, channel) => {
      const dots = this.curves[channel].map(({ track, y, color }) => {
        const frame = track.frameAt(page.time);
        return { at: track.times[frame], value: y[frame], color };
      });
      chart.setCursor(page.time, dots);
    });
    this.space?.setNow(page.shares().map(({ track }) => track.frameAt(page.time)));
    this.errors.seek();
    this.probe.show();
  }
}

// A field on a line: pictures over time and space, and the profile now.
class LineView {
  constructor(page, parent) {
    this.page = page;
    this.probe = new Probe(page, parent);
    this.pictures = element("div", { class: "row" }, parent);
    this.pictures.style.setProperty("--least", "100%");
    const row = element("div", { class: "row" }, parent);
    row.style.setProperty("--least", "380px");
    this.profileCard = card(row, "Profile");
    this.profile = new LineChart(this.profileCard.box, { height: 170, onPick: (x) => page.setProbe([page.indexAt(0, x)]) });
    this.history = new Histories(page, row, "History");
    this.errors = new Errors(page, row);
    this.panels = [];
  }

  panel(title, number) {
    const { page } = this;
    if (!this.panels[number]) {
      const made = card(this.pictures, title);
      const picture = new Picture(made.box, {
        height: this.tall,
        rangeX: () => page.span(),
        rangeY: () => page.field.domain[0],
        onPoint: (x, y, kept) => {
          const [first, last] = page.span();
          page.setProbe([Math.floor(y * page.field.sides[0])]);
          if (kept) page.seek(first + x * (last - first));
        },
      });
      this.panels[number] = { made, picture };
    }
    this.panels[number].made.heading.textContent = title;
    return this.panels[number];
  }

  load() {
    const { page } = this;
    const list = page.panels();
    this.tall = list.length > 1 ? 132 : 240;
    list.forEach((panel, number) => this.fill(this.panel(panel.title, number), panel));
    this.panels.splice(list.length).forEach(({ made }) => made.box.remove());
    this.errors.load();
    this.probeMoved();
    this.seek();
  }

  // Columns are equally spaced in time; each shows the nearest snapshot.
  fill({ picture }, { at, times, table, low, high }) {
    const [first, last] = this.page.span();
    const columns = Math.min(1200, Math.max(times.length, 400));
    const frames = Array.from({ length: columns }, (_, column) => {
      const time = first + ((column + 0.5) / columns) * (last - first);
      const span = times[times.length - 1] - times[0];
      const outside = time < times[0] - 0.51 * (span / Math.max(1, times.length - 1)) || time > times[times.length - 1] + 0.51 * (span / Math.max(1, times.length - 1));
      return outside ? -1 : nearest(times, time);
    });
    picture.set({ columns, rows: this.page.field.sides[0], table, low, high, at: (column, row) => (frames[column] < 0 ? NaN : at(frames[column], row)) });
  }

  seek() {
    const { page } = this;
    const { field } = page;
    const x = page.coordinates(0);
    const shares = page.shares();
    const profiles = shares.map(({ track, color, dashed, label }) => {
      const frame = track.frameAt(page.time);
      return { x, y: Array.from({ length: field.sides[0] }, (_, point) => track.value(frame, point, page.channel)), color, dashed, label };
    });
    const [low, high] = page.scale();
    const room = 0.06 * (high - low || 1);
    this.profile.set(profiles, { x: field.domain[0], y: [low - room, high + room] });
    this.profile.setCursor(x[page.probe], profiles.map(({ y, color }) => ({ at: x[page.probe], value: y[page.probe], color })));
    legend(this.profileCard.value, profiles);
    this.mark();
    this.history.seek();
    this.errors.seek();
    this.probe.show();
  }

  mark() {
    const { page } = this;
    const [first, last] = page.span();
    const x = last > first ? (page.time - first) / (last - first) : 0.5;
    const y = (page.probe + 0.5) / page.field.sides[0];
    this.panels.forEach(({ picture }) => picture.setMark({ x, y, lines: true }));
  }

  probeMoved() {
    const { page } = this;
    this.history.load(page.probe, page.channel, `At x ${shown(page.place()[0], 3)}`);
    this.mark();
    this.probe.show();
    const x = page.coordinates(0)[page.probe];
    this.profile.setCursor(x, this.profile.series.map(({ y, color }) => ({ at: x, value: y[page.probe], color })));
  }
}

// A field with two or three axes: slices through the probe side by side, the history of a point, and the distribution of the numbers.
class SliceView {
  constructor(page, parent) {
    this.page = page;
    const axes = page.field.sides.length;
    // The axes to the right and up of each slice.
    this.slices = axes === 2 ? [[1, 0]] : [[2, 1], [2, 0], [1, 0]];
    this.names = AXIS_NAMES.slice(3 - axes);
    if (axes > 2) this.makeSliders(parent);
    this.pictures = element("div", { class: "row" }, parent);
    this.probe = new Probe(page, parent);
    const row = element("div", { class: "row" }, parent);
    row.style.setProperty("--least", "340px");
    this.history = new Histories(page, row, "History");
    this.errors = new Errors(page, row);
    this.countCard = card(row, "Distribution now");
    this.counts = new LineChart(this.countCard.box, { height: 170, fromZero: true });
    this.panels = [];
  }

  // A slider for the position of the slices along each axis, x first.
  makeSliders(parent) {
    const { page } = this;
    const box = element("div", { class: "live" }, parent);
    this.sliders = [];
    this.names.map((_, axis) => this.names.length - 1 - axis).forEach((axis) => {
      const label = element("label", { class: "control" }, box, this.names[axis]);
      const last = page.field.sides[axis] - 1;
      const slider = element("input", { type: "range", min: "0", max: String(last), step: "1", id: `slice-${this.names[axis]}` }, label);
      slider.addEventListener("input", () => {
        const indices = page.indices();
        indices[axis] = Number(slider.value);
        page.setProbe(indices);
      });
      this.sliders[axis] = slider;
    });
  }

  // The picture of a slice; `number` counts all slices of all panels.
  panel(title, number) {
    const { page } = this;
    const [right, up] = this.slices[number % this.slices.length];
    if (!this.panels[number]) {
      const made = card(this.pictures, title);
      const [height, width] = [up, right].map((axis) => Math.abs(page.field.domain[axis][1] - page.field.domain[axis][0]));
      const picture = new Picture(made.box, {
        aspect: Math.min(2.2, Math.max(0.3, height / width || 1)),
        rangeX: () => page.field.domain[right],
        rangeY: () => page.field.domain[up],
        onPoint: (x, y, kept) => {
          // Slices follow a pressed pointer; pictures of planes any pointer.
          if (this.sliders && !kept) return;
          const indices = page.indices();
          indices[right] = Math.floor(x * page.field.sides[right]);
          indices[up] = Math.floor(y * page.field.sides[up]);
          page.setProbe(indices);
        },
      });
      this.panels[number] = { made, picture };
    }
    this.panels[number].made.heading.textContent = title;
    return this.panels[number];
  }

  load() {
    const { page } = this;
    this.list = page.panels();
    const across = Math.max(this.list.length, this.slices.length);
    this.pictures.style.setProperty("--least", across === 1 ? "320px" : "290px");
    this.pictures.style.maxWidth = across === 1 ? "620px" : "";
    const count = this.slices.length * this.list.length;
    for (let number = 0; number < count; number++) {
      const [right, up] = this.slices[number % this.slices.length];
      const { title } = this.list[Math.floor(number / this.slices.length)];
      this.panel(this.sliders ? `${title}: ${this.names[right]}, ${this.names[up]}` : title, number);
    }
    this.panels.splice(count).forEach(({ made }) => made.box.remove());
    this.errors.load();
    this.probeMoved();
    this.seek();
  }

  seek() {
    this.drawSlices();
    this.count();
    this.history.seek();
    this.errors.seek();
    this.probe.show();
  }

  drawSlices() {
    const { page } = this;
    const { sides } = page.field;
    this.panels.forEach(({ picture }, number) => {
      const [right, up] = this.slices[number % this.slices.length];
      const { at, times, table, low, high } = this.list[Math.floor(number / this.slices.length)];
      const [frame, indices] = [nearest(times, page.time), page.indices()];
      const value = (column, row) => {
        [indices[right], indices[up]] = [column, row];
        return at(frame, pointAt(indices, sides));
      };
      picture.set({ columns: sides[right], rows: sides[up], table, low, high, at: value });
    });
  }

  count() {
    const { page } = this;
    const bins = 48;
    const [low, high] = page.scale();
    const edges = Array.from({ length: bins + 1 }, (_, index) => low + ((high - low) * index) / bins);
    const series = page.shares().map(({ track, color, label }, number) => {
      const counts = new Float64Array(bins);
      const frame = track.frameAt(page.time);
      for (let point = 0; point < track.points; point++) {
        const share = high > low ? (track.value(frame, point, page.channel) - low) / (high - low) : 0.5;
        counts[Math.min(bins - 1, Math.max(0, Math.floor(share * bins)))] += 100 / track.points;
      }
      return { x: edges, y: counts, color, label, bars: true, outline: number > 0 };
    });
    this.counts.set(series, { x: [low, high] });
    this.countCard.heading.textContent = `Distribution now, % of points`;
  }

  probeMoved() {
    const { page } = this;
    const [indices, place, { sides }] = [page.indices(), page.place(), page.field];
    const words = place.map((value, axis) => `${this.names[axis]} ${shown(value, 3)}`).reverse();
    this.history.load(page.probe, page.channel, `At ${words.join(", ")}`);
    this.sliders?.forEach((slider, axis) => (slider.value = String(indices[axis])));
    if (this.sliders) this.drawSlices();
    this.panels.forEach(({ picture }, number) => {
      const [right, up] = this.slices[number % this.slices.length];
      picture.setMark({ x: (indices[right] + 0.5) / sides[right], y: (indices[up] + 0.5) / sides[up] });
    });
    this.probe.show();
  }
}
