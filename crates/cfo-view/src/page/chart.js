// Curves over an axis, drawn on two canvases: the curves below, the cursor above, so that moving it costs little.

// A picture with margins that follows the size of its container and the theme.
class Plot {
  constructor(parent, height, margins) {
    this.box = element("div", { class: "canvas" }, parent);
    this.box.style.height = typeof height === "number" ? `${height}px` : "";
    this.height = height;
    this.margins = margins;
    this.box.plot = this;
    this.below = element("canvas", {}, this.box);
    this.above = element("canvas", {}, this.box);
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.box);
  }

  // Size the canvases to their container, in device pixels.
  fit() {
    const width = this.box.clientWidth;
    if (!width) return;
    if (typeof this.height === "function") this.box.style.height = `${this.height(width)}px`;
    this.width = width;
    this.tall = this.box.clientHeight;
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.below, this.above]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(this.tall * ratio);
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.draw();
  }

  // Left, top, width and height of the area inside the margins.
  inside() {
    const [top, right, bottom, left] = this.margins;
    return [left, top, Math.max(1, this.width - left - right), Math.max(1, this.tall - top - bottom)];
  }

  clear(canvas) {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, this.width, this.tall);
    context.font = "11px system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif";
    return context;
  }

  draw() {}

  // Ticks and their labels below and at the left.
  axes(context, horizontal, vertical, labels = {}) {
    const [left, top, width, height] = this.inside();
    context.lineWidth = 1;
    context.strokeStyle = inkOf("line");
    context.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
    context.fillStyle = inkOf("soft");
    context.textBaseline = "top";
    if (horizontal) {
      const { ticks, place, texts } = horizontal;
      ticks.forEach((tick, index) => {
        const x = place(tick);
        context.textAlign = x < left + 8 ? "left" : x > left + width - 8 ? "right" : "center";
        context.fillText(texts[index], x, top + height + 5);
      });
    }
    context.textBaseline = "middle";
    context.textAlign = "right";
    if (vertical) {
      const { ticks, place, texts } = vertical;
      ticks.forEach((tick, index) => context.fillText(texts[index], left - 6, place(tick)));
    }
    if (labels.x) {
      context.textAlign = "right";
      context.textBaseline = "bottom";
      context.fillText(labels.x, left + width, this.tall);
    }
    if (labels.y) {
      context.save();
      context.translate(10, top + height / 2);
      context.rotate(-Math.PI / 2);
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(labels.y, 0, 0);
      context.restore();
    }
  }
}

// Curves that share their axes. A series is {x, y, color, dashed, faint, dots}; colours are names of CSS variables of the page.
class LineChart extends Plot {
  constructor(parent, options = {}) {
    super(parent, options.height || 150, options.margins || [8, 12, options.xLabel ? 32 : 22, 58]);
    this.options = options;
    this.series = [];
    this.cursor = null;
    if (options.onPick) this.listen();
  }

  listen() {
    const pick = (event) => {
      const bounds = this.above.getBoundingClientRect();
      const [left, , width] = this.inside();
      const share = Math.min(1, Math.max(0, (event.clientX - bounds.left - left) / width));
      const [low, high] = this.rangeX;
      this.options.onPick(low + share * (high - low));
    };
    this.above.style.cursor = "crosshair";
    this.above.addEventListener("pointerdown", (event) => {
      this.above.setPointerCapture(event.pointerId);
      pick(event);
    });
    this.above.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) pick(event);
    });
  }

  set(series, ranges = {}) {
    this.series = series;
    this.fixed = ranges;
    this.measure();
    if (this.width) this.draw();
  }

  measure() {
    const positive = (list) => Array.from(list).filter((value) => value > 0);
    this.rangeX = this.fixed.x || rangeOf(this.series.map(({ x }) => x));
    let [low, high] = this.fixed.y || rangeOf(this.series.map(({ y }) => (this.options.log ? positive(y) : y)));
    if (!this.fixed.y) {
      if (this.options.log) {
        low = 10 ** Math.floor(Math.log10(low) - 0.05);
        high = 10 ** Math.ceil(Math.log10(high) + 0.05);
      } else {
        if (this.options.fromZero) low = Math.min(0, low);
        const room = (high - low || Math.abs(high) || 1) * 0.06;
        [low, high] = [this.options.fromZero && low === 0 ? 0 : low - room, high + room];
      }
    }
    this.rangeY = [low, high];
  }

  placeX(value) {
    const [left, , width] = this.inside();
    const [low, high] = this.rangeX;
    return left + (high > low ? (value - low) / (high - low) : 0.5) * width;
  }

  placeY(value) {
    const [, top, , height] = this.inside();
    let [low, high] = this.rangeY;
    if (this.options.log) [low, high, value] = [Math.log(low), Math.log(high), Math.log(Math.max(value, 1e-300))];
    const share = high > low ? (value - low) / (high - low) : 0.5;
    return top + (1 - Math.min(1.5, Math.max(-0.5, share))) * height;
  }

  ticksY() {
    if (!this.options.log) return ticksBetween(...this.rangeY, Math.max(2, this.tall / 45));
    const [low, high] = this.rangeY.map(Math.log10);
    const every = Math.max(1, Math.ceil((high - low) / Math.max(2, this.tall / 34)));
    const ticks = [];
    for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power += every) ticks.push(10 ** power);
    return ticks;
  }

  draw() {
    const context = this.clear(this.below);
    const [left, top, width, height] = this.inside();
    const ticksX = ticksBetween(...this.rangeX, Math.max(2, width / 85));
    const ticksY = this.ticksY();
    context.strokeStyle = inkOf("grid");
    context.beginPath();
    for (const tick of ticksX) context.moveTo(this.placeX(tick), top), context.lineTo(this.placeX(tick), top + height);
    for (const tick of ticksY) context.moveTo(left, this.placeY(tick)), context.lineTo(left + width, this.placeY(tick));
    context.stroke();
    const textsY = this.options.log ? ticksY.map((tick) => (tick < 1e-3 || tick >= 1e5 ? `1e${Math.round(Math.log10(tick))}`.replace("-", "−") : shown(tick, 3))) : tickLabels(ticksY);
    this.axes(
      context,
      { ticks: ticksX, texts: tickLabels(ticksX), place: (tick) => this.placeX(tick) },
      { ticks: ticksY, texts: textsY, place: (tick) => this.placeY(tick) },
      { x: this.options.xLabel, y: this.options.yLabel },
    );
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    for (const one of this.series) (one.bars ? this.drawBars : this.drawCurve).call(this, context, one);
    context.restore();
    this.drawCursor();
  }

  drawCurve(context, { x, y, color, dashed, faint, dots }) {
    context.strokeStyle = context.fillStyle = inkOf(color);
    context.globalAlpha = faint ? 0.35 : 1;
    context.lineWidth = faint ? 1 : 1.6;
    context.lineJoin = "round";
    context.setLineDash(dashed ? [5, 4] : []);
    context.beginPath();
    let drawing = false;
    for (let index = 0; index < x.length; index++) {
      if (!Number.isFinite(y[index]) || (this.options.log && !(y[index] > 0))) {
        drawing = false;
        continue;
      }
      const [px, py] = [this.placeX(x[index]), this.placeY(y[index])];
      if (drawing) context.lineTo(px, py);
      else context.moveTo(px, py);
      drawing = true;
    }
    if (dots !== "only") context.stroke();
    context.setLineDash([]);
    // Snapshots as dots, where there is room between them.
    if (dots === "only" || (dots && x.length < this.width / 7)) {
      for (let index = 0; index < x.length; index++) {
        if (!Number.isFinite(y[index])) continue;
        context.beginPath();
        context.arc(this.placeX(x[index]), this.placeY(y[index]), 2.1, 0, 2 * Math.PI);
        context.fill();
      }
    }
    context.globalAlpha = 1;
  }

  // Counts between edges: `x` has one entry more than `y`.
  drawBars(context, { x, y, color, outline }) {
    const bottom = this.placeY(0);
    context.fillStyle = context.strokeStyle = inkOf(color);
    if (!outline) {
      context.globalAlpha = 0.35;
      for (let index = 0; index < y.length; index++) {
        const [from, to] = [this.placeX(x[index]), this.placeX(x[index + 1])];
        context.fillRect(from, this.placeY(y[index]), Math.max(1, to - from - 0.5), bottom - this.placeY(y[index]));
      }
      context.globalAlpha = 1;
      return;
    }
    context.lineWidth = 1.6;
    context.beginPath();
    context.moveTo(this.placeX(x[0]), bottom);
    for (let index = 0; index < y.length; index++) {
      context.lineTo(this.placeX(x[index]), this.placeY(y[index]));
      context.lineTo(this.placeX(x[index + 1]), this.placeY(y[index]));
    }
    context.lineTo(this.placeX(x[y.length]), bottom);
    context.stroke();
  }

  // A line at a position of the horizontal axis, with dots on the curves.
  setCursor(value, dots = []) {
    this.cursor = value;
    this.dots = dots;
    if (this.width) this.drawCursor();
  }

  drawCursor() {
    const context = this.clear(this.above);
    if (this.cursor === null || this.cursor === undefined) return;
    const [, top, , height] = this.inside();
    const x = this.placeX(this.cursor);
    context.strokeStyle = inkOf("cursor");
    context.globalAlpha = 0.55;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
    context.globalAlpha = 1;
    for (const { at, value, color } of this.dots || []) {
      if (!Number.isFinite(value)) continue;
      context.fillStyle = inkOf(color);
      context.strokeStyle = inkOf("card");
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(this.placeX(at ?? this.cursor), this.placeY(value), 3.6, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    }
  }
}
