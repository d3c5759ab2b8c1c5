// Fields as coloured pictures with a colour bar: in the plane, or over time and one axis of space.

const BAR = 74;

class Picture extends Plot {
  constructor(parent, options) {
    const margins = [8, BAR, 22, 46];
    super(parent, options.height || ((width) => Picture.heightFor(width, options.aspect, margins)), margins);
    this.options = options;
    this.pixels = document.createElement("canvas");
    this.mark = null;
    this.listen();
  }

  // The height follows the shape of the domain, within limits.
  static heightFor(width, aspect, [top, right, bottom, left]) {
    const inner = Math.max(60, width - left - right);
    return Math.round(Math.min(560, Math.max(120, inner * aspect)) + top + bottom);
  }

  listen() {
    const point = (event, kept) => {
      const bounds = this.above.getBoundingClientRect();
      const [left, top, width, height] = this.inside();
      const x = (event.clientX - bounds.left - left) / width;
      const y = 1 - (event.clientY - bounds.top - top) / height;
      if (x >= 0 && x <= 1 && y >= 0 && y <= 1) this.options.onPoint(Math.min(x, 1 - 1e-9), Math.min(y, 1 - 1e-9), kept);
    };
    this.above.style.cursor = "crosshair";
    this.above.addEventListener("pointermove", (event) => point(event, (event.buttons & 1) === 1));
    this.above.addEventListener("pointerdown", (event) => point(event, true));
  }

  // The numbers to show: `columns` x `rows`, row 0 at the bottom, `at(column, row)`; and their scale.
  set({ columns, rows, at, table, low, high }) {
    Object.assign(this, { columns, rows, table, low, high });
    if (this.pixels.width !== columns || this.pixels.height !== rows) {
      this.pixels.width = columns;
      this.pixels.height = rows;
      this.image = null;
    }
    const context = this.pixels.getContext("2d");
    this.image ||= context.createImageData(columns, rows);
    const packed = new Uint32Array(this.image.data.buffer);
    const scale = high > low ? 255 / (high - low) : 0;
    const shift = high > low ? 0.5 - low * scale : 128;
    let place = 0;
    for (let row = rows - 1; row >= 0; row--) {
      for (let column = 0; column < columns; column++) {
        const level = at(column, row) * scale + shift;
        packed[place++] = level >= 255 ? table[255] : level >= 0 ? table[level | 0] : level < 0 ? table[0] : NO_COLOR;
      }
    }
    context.putImageData(this.image, 0, 0);
    if (this.width) this.draw();
  }

  draw() {
    if (!this.columns) return;
    const context = this.clear(this.below);
    const [left, top, width, height] = this.inside();
    context.imageSmoothingEnabled = false;
    context.drawImage(this.pixels, left, top, width, height);
    const { rangeX, rangeY } = this.options;
    const [across, up] = [rangeX(), rangeY()];
    const ticksX = ticksBetween(...across, Math.max(2, width / 80));
    const ticksY = ticksBetween(...up, Math.max(2, height / 60));
    const placeX = (tick) => left + ((tick - across[0]) / (across[1] - across[0] || 1)) * width;
    const placeY = (tick) => top + (1 - (tick - up[0]) / (up[1] - up[0] || 1)) * height;
    this.axes(
      context,
      { ticks: ticksX, texts: tickLabels(ticksX), place: placeX },
      { ticks: ticksY, texts: tickLabels(ticksY), place: placeY },
    );
    this.drawBar(context);
    this.drawMark();
  }

  drawBar(context) {
    const [left, top, width, height] = this.inside();
    const x = left + width + 10;
    const [low, high] = this.high > this.low ? [this.low, this.high] : [this.low - 1, this.high + 1];
    for (let level = 0; level < height; level++) {
      context.fillStyle = cssColor(colorOf(this.table, 0, height - 1, height - 1 - level));
      context.fillRect(x, top + level, 10, Math.min(1.5, height - level));
    }
    context.strokeStyle = inkOf("line");
    context.strokeRect(x + 0.5, top + 0.5, 9, height - 1);
    context.fillStyle = inkOf("soft");
    context.textAlign = "left";
    context.textBaseline = "middle";
    const ticks = ticksBetween(low, high, Math.max(2, height / 42));
    const texts = tickLabels(ticks);
    ticks.forEach((tick, index) => {
      const y = top + (1 - (tick - low) / (high - low)) * height;
      context.fillRect(x + 10, y - 0.5, 3, 1);
      context.fillText(texts[index], x + 16, y);
    });
  }

  // The marker: a point in shares of both axes, or a line at a share of one axis.
  setMark(mark) {
    this.mark = mark;
    if (this.width) this.drawMark();
  }

  drawMark() {
    const context = this.clear(this.above);
    if (!this.mark) return;
    const [left, top, width, height] = this.inside();
    const { x, y, lines } = this.mark;
    const stroke = (color, wide) => {
      context.strokeStyle = color;
      context.lineWidth = wide;
      context.beginPath();
      if (lines && x !== null) context.moveTo(left + x * width, top), context.lineTo(left + x * width, top + height);
      if (lines && y !== null) context.moveTo(left, top + (1 - y) * height), context.lineTo(left + width, top + (1 - y) * height);
      if (!lines) {
        const [px, py] = [left + x * width, top + (1 - y) * height];
        context.moveTo(px + 6, py);
        context.arc(px, py, 6, 0, 2 * Math.PI);
      }
      context.stroke();
    };
    stroke("rgba(0, 0, 0, 0.65)", 3);
    stroke("#ffffff", 1.3);
  }
}
