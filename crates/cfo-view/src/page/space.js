// The state space of a system in three dimensions; dragging rotates it.

class StateSpace extends Plot {
  constructor(parent, options) {
    super(parent, (width) => Math.min(460, Math.max(240, width * 0.78)), [6, 6, 6, 6]);
    this.options = options;
    this.turn = [-0.6, 0.42];
    this.paths = [];
    this.listen();
  }

  listen() {
    let from = null;
    this.box.style.touchAction = "none";
    this.above.style.cursor = "grab";
    this.above.addEventListener("pointerdown", (event) => {
      this.above.setPointerCapture(event.pointerId);
      from = [event.clientX, event.clientY, ...this.turn];
      this.above.style.cursor = "grabbing";
    });
    this.above.addEventListener("pointermove", (event) => {
      if (!from) return;
      this.turn = [from[2] + (event.clientX - from[0]) * 0.008, Math.max(-1.57, Math.min(1.57, from[3] + (event.clientY - from[1]) * 0.008))];
      this.draw();
    });
    const end = () => {
      from = null;
      this.above.style.cursor = "grab";
    };
    this.above.addEventListener("pointerup", end);
    this.above.addEventListener("pointercancel", end);
  }

  // Paths of {points: [[x, y, z], ...], color, dashed, now}, with names of the axes.
  set(paths, names) {
    this.paths = paths;
    this.names = names;
    // The range stays near that of the truth, so that a diverging prediction does not hide it.
    this.ranges = [0, 1, 2].map((axis) => {
      const along = paths.map(({ points }) => points.map((point) => point[axis] ?? 0));
      const [low, high] = rangeOf([along[0]]);
      const [least, most] = rangeOf(along);
      const room = 0.25 * (high - low);
      return [Math.max(least, low - room), Math.min(most, high + room)];
    });
    if (this.width) this.draw();
  }

  // The current position of each path: how many of its points lie in the past.
  setNow(places) {
    this.paths.forEach((path, index) => (path.now = places[index]));
    if (this.width) this.draw();
  }

  project(point) {
    const [around, above] = this.turn;
    const [x, y, z] = [0, 1, 2].map((axis) => {
      const [low, high] = this.ranges[axis];
      return high > low ? (2 * ((point[axis] ?? 0) - low)) / (high - low) - 1 : 0;
    });
    const [right, deep] = [x * Math.cos(around) - y * Math.sin(around), x * Math.sin(around) + y * Math.cos(around)];
    const up = z * Math.cos(above) - deep * Math.sin(above);
    const far = deep * Math.cos(above) + z * Math.sin(above);
    const size = (0.25 * Math.min(this.width, this.tall * 1.1) * 6) / (6 + far);
    return [this.width / 2 + right * size, this.tall / 2 - up * size];
  }

  draw() {
    if (!this.paths.length) return;
    const context = this.clear(this.below);
    this.drawBox(context);
    for (const path of this.paths) this.drawPath(context, path);
  }

  drawBox(context) {
    const [x, y, z] = this.ranges;
    const corner = (i, j, k) => [x[i], y[j], z[k]];
    const edges = [];
    for (const a of [0, 1]) for (const b of [0, 1]) edges.push([corner(0, a, b), corner(1, a, b)], [corner(a, 0, b), corner(a, 1, b)], [corner(a, b, 0), corner(a, b, 1)]);
    context.strokeStyle = inkOf("line");
    context.lineWidth = 1;
    for (const [from, to] of edges) {
      context.beginPath();
      context.moveTo(...this.project(from));
      context.lineTo(...this.project(to));
      context.stroke();
    }
    context.fillStyle = inkOf("soft");
    context.textAlign = "center";
    context.textBaseline = "middle";
    const ends = [[[x[0], y[0], z[0]], [x[1], y[0], z[0]]], [[x[1], y[0], z[0]], [x[1], y[1], z[0]]], [[x[0], y[0], z[0]], [x[0], y[0], z[1]]]];
    const middle = this.project([(x[0] + x[1]) / 2, (y[0] + y[1]) / 2, (z[0] + z[1]) / 2]);
    ends.forEach(([from, to], axis) => {
      const [a, b] = [this.project(from), this.project(to)];
      const half = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
      const away = Math.hypot(half[0] - middle[0], half[1] - middle[1]) || 1;
      const out = (place, by) => [place[0] + ((half[0] - middle[0]) / away) * by, place[1] + ((half[1] - middle[1]) / away) * by];
      context.fillText(this.names[axis] ?? "", ...out(half, 26));
      context.fillText(shown(this.ranges[axis][0], 3), ...out([a[0] * 0.93 + b[0] * 0.07, a[1] * 0.93 + b[1] * 0.07], 13));
      context.fillText(shown(this.ranges[axis][1], 3), ...out([b[0] * 0.93 + a[0] * 0.07, b[1] * 0.93 + a[1] * 0.07], 13));
    });
  }

  drawPath(context, { points, color, dashed, now = points.length - 1 }) {
    const far = (point) => this.ranges.some(([low, high], axis) => Math.abs((point[axis] ?? 0) - (low + high) / 2) > 1.5 * (high - low));
    const places = points.map((point) => (far(point) ? null : this.project(point)));
    const stroke = (from, to, alpha) => {
      context.globalAlpha = alpha;
      context.beginPath();
      for (let index = from; index <= to && index < places.length; index++) {
        if (!places[index]) continue;
        if (index === from || !places[index - 1]) context.moveTo(...places[index]);
        else context.lineTo(...places[index]);
      }
      context.stroke();
    };
    context.strokeStyle = inkOf(color);
    context.lineWidth = 1.3;
    context.lineJoin = "round";
    context.setLineDash(dashed ? [5, 4] : []);
    stroke(0, places.length - 1, 0.28);
    stroke(0, now, 1);
    context.setLineDash([]);
    context.globalAlpha = 1;
    const head = places[Math.min(now, places.length - 1)];
    if (!head) return;
    context.fillStyle = inkOf(color);
    context.strokeStyle = inkOf("card");
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(head[0], head[1], 4.5, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
  }
}
