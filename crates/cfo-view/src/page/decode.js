// Decodes the numbers of a page: inflates them, and sums along the axes along which differences were taken.

async function inflate(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Sums along one axis of [frames, height, width] whole numbers; typed arrays wrap around as the differences did.
function sumAlong(field, stride, extent) {
  for (let index = stride; index < field.length; index++) {
    if (extent === Infinity || Math.floor(index / stride) % extent > 0) field[index] += field[index - stride];
  }
}

// Numbers of a block: whole numbers in `whole`, whose values are `low + step * whole`.
async function decodeBlock(block, frames, height, width) {
  const bytes = await inflate(block.data);
  const count = frames * height * width;
  if (block.bits === 32) {
    const whole = new Float32Array(count);
    const view = new Uint8Array(whole.buffer);
    for (let plane = 0; plane < 4; plane++) for (let index = 0; index < count; index++) view[4 * index + plane] = bytes[plane * count + index];
    return { whole, low: 0, step: 1 };
  }
  const wide = block.bits > 8;
  const whole = wide ? new Uint16Array(count) : new Uint8Array(count);
  for (let index = 0; index < count; index++) {
    const folded = wide ? bytes[index] | (bytes[count + index] << 8) : bytes[index];
    whole[index] = (folded >> 1) ^ -(folded & 1);
  }
  if (block.axes & 1) sumAlong(whole, height * width, Infinity);
  if (block.axes & 2) sumAlong(whole, width, height);
  if (block.axes & 4) sumAlong(whole, 1, width);
  return { whole, low: block.low, step: block.step };
}

// One trajectory of one file: numbers by frame, point and channel.
class Track {
  constructor(times, channels, points, base, errors) {
    this.times = times;
    this.channels = channels;
    this.points = points;
    // The track that is added to this one's differences, and the positions of its snapshots there.
    this.base = base;
    this.errors = errors;
    this.places = base ? times.map((time) => nearest(base.times, time)) : null;
  }

  value(frame, point, channel) {
    const { whole, low, step } = this.channels[channel];
    const value = low + step * whole[frame * this.points + point];
    return this.base ? value + this.base.value(this.places[frame], point, channel) : value;
  }

  // The difference from another track at its nearest snapshot, if that is at the same time.
  difference(truth, frame, point, channel) {
    if (this.base === truth) {
      const { whole, low, step } = this.channels[channel];
      return low + step * whole[frame * this.points + point];
    }
    const place = nearest(truth.times, this.times[frame]);
    const span = truth.times[truth.times.length - 1] - truth.times[0];
    if (Math.abs(truth.times[place] - this.times[frame]) > 1e-6 * span) return NaN;
    return this.value(frame, point, channel) - truth.value(place, point, channel);
  }

  // Whether a time lies between the first and the last snapshot.
  covers(time) {
    const [first, last] = [this.times[0], this.times[this.times.length - 1]];
    const slack = 1e-9 * (last - first);
    return time >= first - slack && time <= last + slack;
  }

  frameAt(time) {
    return nearest(this.times, time);
  }

  // All points of a snapshot, written over `out`.
  snapshot(frame, channel, out) {
    for (let point = 0; point < this.points; point++) out[point] = this.value(frame, point, channel);
    return out;
  }

  // One point over all times.
  history(point, channel) {
    return this.times.map((_, frame) => this.value(frame, point, channel));
  }
}

// Number of points that are shown.
function pointsOf(field) {
  return field.sides.reduce((product, side) => product * side, 1);
}

// The index along each axis of a point of a grid, and the point at such indices.
function indicesOf(point, sides) {
  let rest = point;
  return sides.map((_, axis) => sides.length - 1 - axis).map((axis) => {
    const index = rest % sides[axis];
    rest = Math.floor(rest / sides[axis]);
    return index;
  }).reverse();
}

function pointAt(indices, sides) {
  return sides.reduce((point, side, axis) => point * side + indices[axis], 0);
}

// Decodes all tracks: tracks[file][trajectory], null where a file has none.
async function decodeField(field, progress) {
  const points = pointsOf(field);
  const width = field.sides[field.sides.length - 1] ?? 1;
  const tracks = [];
  for (const file of field.files) {
    const row = [];
    for (let index = 0; index < file.tracks.length; index++) {
      const track = file.tracks[index];
      if (!track) {
        row.push(null);
        continue;
      }
      const times = field.times[track.times];
      const blocks = track.blocks.map((block) => decodeBlock(block, times.length, points / width, width));
      const channels = await Promise.all(blocks);
      track.blocks.forEach((block) => delete block.data);
      row.push(new Track(times, channels, points, track.difference ? tracks[0][index] : null, track.errors));
      progress(tracks, row);
    }
    tracks.push(row);
  }
  return tracks;
}
