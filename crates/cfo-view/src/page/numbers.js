// Numbers as text: few digits, round ticks.

// A number with a given number of significant digits, without trailing zeros.
function shown(value, digits = 5) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(Math.max(0, digits - 2)).replace(/-/g, "−").replace("e+", "e");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

// The same with trailing zeros, so that a changing number does not jump about.
function steady(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(digits - 1).replace(/-/g, "−");
  return value.toPrecision(digits).replace("-", "−");
}

// About so many round numbers between two limits.
function ticksBetween(low, high, count) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / Math.max(1, count)));
  const inside = (step) => Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
  const far = (step) => Math.abs(Math.log(Math.max(inside(step), 0.5) / Math.max(2, count)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).reduce((best, other) => (far(other) < far(best) ? other : best));
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * span; n++) ticks.push(n === 0 ? 0 : n * step);
  return ticks;
}

// Labels of ticks: as many digits as tell them apart.
function tickLabels(ticks) {
  if (ticks.length < 2) return ticks.map((tick) => shown(tick, 4));
  const step = Math.abs(ticks[1] - ticks[0]);
  const most = Math.max(...ticks.map(Math.abs));
  if (most >= 1e5 || (most > 0 && most < 1e-3)) return ticks.map((tick) => (tick === 0 ? "0" : tick.toExponential(Math.max(0, Math.min(3, Math.round(Math.log10(most / step))))).replace("e+", "e").replace(/-/g, "−")));
  const decimals = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9)));
  return ticks.map((tick) => tick.toFixed(decimals).replace("-", "−"));
}

// Smallest and largest finite number of some lists.
function rangeOf(lists) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists) {
    for (let index = 0; index < list.length; index++) {
      const value = list[index];
      if (value < low) low = value;
      if (value > high && value !== Infinity) high = value;
    }
  }
  return low <= high ? [low, high] : [0, 1];
}

// The index of the nearest number in an increasing list.
function nearest(list, value) {
  let low = 0;
  let high = list.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle;
    else high = middle;
  }
  return Math.abs(list[high] - value) < Math.abs(list[low] - value) ? high : low;
}
