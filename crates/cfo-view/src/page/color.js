// Colours for numbers. Each map is a table of 256 colours, packed as the pixels of a canvas: alpha, blue, green, red.

// Polynomials in the position from 0 to 1. They match the maps of Matplotlib to within visible differences.
const POLYNOMIALS = {
  viridis: [
    [0.2777, 0.0054, 0.3341], [0.1051, 1.4046, 1.3846], [-0.3309, 0.2148, 0.0951], [-4.6342, -5.7991, -19.3324],
    [6.2283, 14.1799, 56.6906], [4.7764, -13.7451, -65.353], [-5.4355, 4.6459, 26.3124],
  ],
  magma: [
    [-0.0021, -0.0007, -0.0054], [0.2517, 0.6775, 2.494], [8.3537, -3.5777, 0.3145], [-27.6687, 14.2647, -13.6492],
    [52.1761, -27.9436, 12.9442], [-50.7685, 29.0466, 4.2342], [18.6557, -11.4898, -5.602],
  ],
};

function polynomial(coefficients, share) {
  return [0, 1, 2].map((part) => coefficients.reduceRight((sum, row) => sum * share + row[part], 0));
}

// Lightness, chroma and hue of the Oklab space as red, green and blue from 0 to 1.
function oklab(lightness, chroma, degrees) {
  const a = chroma * Math.cos((degrees * Math.PI) / 180);
  const b = chroma * Math.sin((degrees * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((x) => (x <= 0.0031308 ? 12.92 * x : 1.055 * Math.max(x, 0) ** (1 / 2.4) - 0.055));
}

// Blue below zero, nearly white at it, red above.
function diverging(share) {
  const away = Math.abs(2 * share - 1);
  return oklab(0.97 - 0.47 * away, 0.17 * away, share < 0.5 ? 255 : 32);
}

function colorTable(colorOf) {
  const table = new Uint32Array(256);
  for (let level = 0; level < 256; level++) {
    const [red, green, blue] = colorOf(level / 255).map((part) => Math.round(255 * Math.min(1, Math.max(0, part))));
    table[level] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return table;
}

const COLOR_TABLES = {
  viridis: colorTable((share) => polynomial(POLYNOMIALS.viridis, share)),
  magma: colorTable((share) => polynomial(POLYNOMIALS.magma, share)),
  diverging: colorTable(diverging),
  grey: colorTable((share) => [share, share, share]),
};

const NO_COLOR = (255 << 24) | (128 << 16) | (128 << 8) | 128;

// The colour of a number on a scale from low to high.
function colorOf(table, low, high, value) {
  if (!Number.isFinite(value)) return NO_COLOR;
  const share = high > low ? (value - low) / (high - low) : 0.5;
  return table[share <= 0 ? 0 : share >= 1 ? 255 : (share * 255 + 0.5) | 0];
}

function cssColor(packed) {
  return `rgb(${packed & 255}, ${(packed >> 8) & 255}, ${(packed >> 16) & 255})`;
}

// Colours of the page, which follow light and dark.
function inkOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
