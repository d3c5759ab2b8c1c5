// The page of `cfo serve`: predictions from any state to any time, as the slider moves.

// Most numbers of a response at which the slider still moves smoothly.
const LIVE_NUMBERS = 300000;
// Most numbers of a known state that is sent as a start.
const NEAR_NUMBERS = 4096;

async function ask(path, body) {
  const token = new URLSearchParams(location.search).get("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = body ? { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) } : { headers };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.hint ? `${answer.error}; ${answer.hint}` : answer.error);
  return answer;
}

// States, channels last, as the page has them, from those of the server; and back.
function relative(field, state) {
  const { channels } = field;
  return state.map((value, at) => value - channels[at % channels.length].offset);
}

function absolute(field, state) {
  const { channels } = field;
  return Array.from(state, (value, at) => value + channels[at % channels.length].offset);
}

// The predicted states by time; more are added as the slider asks for them.
class LiveTrack extends Track {
  constructor(field, truth) {
    super([], [], pointsOf(field), null, []);
    this.field = field;
    this.truth = truth;
    this.states = [];
  }

  add(times, size, values) {
    times.forEach((time, index) => {
      const place = this.times.length ? nearest(this.times, time) : 0;
      const at = this.times.length && this.times[place] < time ? place + 1 : place;
      const same = this.times[place] === time;
      this.times.splice(same ? place : at, same ? 1 : 0, time);
      const state = relative(this.field, values.slice(index * size, (index + 1) * size));
      this.states.splice(same ? place : at, same ? 1 : 0, Float32Array.from(state));
      this.errors.splice(same ? place : at, same ? 1 : 0, null);
      this.errors[same ? place : at] = this.errorAt(same ? place : at);
    });
  }

  value(frame, point, channel) {
    const { sides, stride, source, channels } = this.field;
    const from = pointAt(indicesOf(point, sides).map((index) => index * stride), source);
    return this.states[frame][from * channels.length + channel];
  }

  // Relative error over the points of the page, if the truth has this time.
  errorAt(frame) {
    if (!this.truth || Number.isNaN(this.difference(this.truth, frame, 0, 0))) return null;
    let [norm, off] = [0, 0];
    const place = this.truth.frameAt(this.times[frame]);
    for (let channel = 0; channel < this.field.channels.length; channel++) {
      for (let point = 0; point < this.points; point++) {
        const value = this.truth.value(place, point, channel);
        norm += (value + this.field.channels[channel].offset) ** 2;
        off += (this.value(frame, point, channel) - value) ** 2;
      }
    }
    return norm > 0 ? Math.sqrt(off / norm) : null;
  }
}

// A field without trajectories, as the run describes it.
function bareField(run) {
  const shape = run.shape;
  const axes = shape.length - 1;
  const sides = shape.slice(0, axes);
  return {
    system: run.system, sides, source: sides, stride: 1, domain: run.domain.length ? run.domain : Array(axes).fill([0, 1]), periodic: [],
    channels: run.channels.map((name) => ({ name, unit: "", offset: 0 })), parameters: [], trajectories: [{ index: 0, split: null, parameters: [] }], times: [], files: [{ label: "predicted" }],
  };
}

class Live {
  constructor(page, run) {
    this.page = page;
    this.run = run;
    this.generation = 0;
    this.edit = { factor: 1, offset: 0, shift: 0, components: null };
    this.size = run.shape.reduce((product, extent) => product * extent, 1);
  }

  // Controls above the pictures.
  makeControls() {
    const place = document.getElementById("live");
    place.hidden = false;
    const box = element("div", { class: "live" }, place);
    const choice = (text, names, value) => {
      const select = element("select", {}, element("label", { class: "control" }, box, text));
      names.forEach((name) => element("option", { value: name }, select, name));
      select.value = value;
      select.addEventListener("change", () => this.restart());
      return select;
    };
    const number = (text, value, attributes = {}) => {
      const input = element("input", { type: "number", step: "any", style: "width: 8.5em", ...attributes }, element("label", { class: "control" }, box, text));
      input.value = value;
      return input;
    };
    this.checkpoint = choice("checkpoint", this.run.checkpoints, this.run.checkpoint);
    this.solver = choice("solver", this.run.solvers, this.run.solver);
    this.rtol = number("tolerance", "", { placeholder: "solver's own", min: "0" });
    this.steps = number("steps", "", { placeholder: "recipe's", min: "1", step: "1" });
    for (const input of [this.rtol, this.steps]) input.addEventListener("change", () => this.restart());
    this.editor = element("div", { class: "live" }, box);
    this.status = element("div", { class: "status", id: "status" }, box);
    this.makeEditor();
  }

  // Controls of the initial state: each component of a system, or a whole field.
  makeEditor() {
    this.editor.replaceChildren();
    const { field } = this.page;
    const number = (text, value, changed) => {
      const input = element("input", { type: "number", step: "any", style: "width: 7.5em" }, element("label", { class: "control" }, this.editor, text));
      input.value = value;
      input.addEventListener("input", () => {
        if (input.value === "" || !Number.isFinite(Number(input.value))) return;
        changed(Number(input.value));
        this.restart();
      });
    };
    if (field.sides.length === 0) {
      const state = this.initial();
      field.channels.forEach(({ name }, channel) => number(`${name}₀`, Number(state[channel].toPrecision(6)), (value) => {
        this.edit.components ||= Array.from(this.initial());
        this.edit.components[channel] = value;
      }));
    } else {
      number("state ×", this.edit.factor, (value) => (this.edit.factor = value));
      number("+", this.edit.offset, (value) => (this.edit.offset = value));
      if (field.sides.length === 1) number("shift by points", this.edit.shift, (value) => (this.edit.shift = Math.round(value)));
    }
    const reset = element("button", { type: "button" }, this.editor, "reset");
    reset.addEventListener("click", () => this.reset());
  }

  reset() {
    this.edit = { factor: 1, offset: 0, shift: 0, components: null };
    this.makeEditor();
    this.restart();
  }

  isEdited() {
    const { factor, offset, shift, components } = this.edit;
    return factor !== 1 || offset !== 0 || shift !== 0 || components !== null;
  }

  // The state that predictions start from. If the page has only every few points of a field, those are repeated.
  initial() {
    const { page } = this;
    const { field } = page;
    if (this.edit.components) return this.edit.components;
    const truth = this.truth();
    const { sides, source, stride } = field;
    const last = source.length - 1;
    const count = source.reduce((product, side) => product * side, 1);
    const state = [];
    for (let place = 0; place < count; place++) {
      const from = indicesOf(place, source);
      if (last >= 0) from[last] = (((from[last] - this.edit.shift) % source[last]) + source[last]) % source[last];
      const point = pointAt(from.map((index, axis) => Math.min(sides[axis] - 1, Math.floor(index / stride))), sides);
      for (let channel = 0; channel < field.channels.length; channel++) {
        state.push((truth ? truth.value(0, point, channel) : channel === 0 ? 1 : 0) * this.edit.factor + this.edit.offset);
      }
    }
    return state;
  }

  truth() {
    return this.hasTruth ? this.page.tracks[0][this.page.position] : null;
  }

  start() {
    return this.truth()?.times[0] ?? this.run.times.first;
  }

  // Times of the truth, and some before and after them.
  times() {
    const truth = this.truth();
    const [first, last] = truth ? [truth.times[0], truth.times[truth.times.length - 1]] : [this.run.times.first, this.run.times.last];
    const most = Math.max(3, Math.min(161, Math.floor(LIVE_NUMBERS / this.size)));
    const known = truth ? truth.times : Array.from({ length: most }, (_, n) => first + ((last - first) * n) / (most - 1));
    const every = Math.ceil(known.length / most);
    const times = known.filter((_, n) => n % every === 0 || n === known.length - 1);
    const beyond = Math.max(1, Math.round(most / 4));
    for (let n = 1; n <= beyond; n++) times.push(first - (0.25 * (last - first) * n) / beyond, last + (0.25 * (last - first) * n) / beyond);
    return times.sort((a, b) => a - b);
  }

  question(times) {
    const { page } = this;
    const body = { times, checkpoint: this.checkpoint.value, start: this.start() };
    // The run's own solver comes with its own steps, which are not sent.
    if (this.solver.value !== this.run.solver || this.rtol.value) body.solver = this.solver.value;
    if (this.rtol.value) Object.assign(body, { rtol: Number(this.rtol.value), atol: Number(this.rtol.value) / 100 });
    else if (this.steps.value) body.steps = Number(this.steps.value);
    if (this.hasTruth && !this.isEdited()) body.trajectory = page.field.trajectories[page.position].index;
    else body.initial = absolute(page.field, this.initial());
    return body;
  }

  // A request for one time, from the nearest known state between the start and that time: a move of the slider then takes only a few
  // steps. Three cases start at the beginning: a number of steps, which counts from there; a conditioned network, whose parameters come
  // with the trajectory; and large states, which take too long to send.
  questionNear(track, time) {
    const body = this.question([time]);
    if (this.steps.value || !this.run.goes_on || this.run.conditions > 0 || this.size > NEAR_NUMBERS) return body;
    const [low, high] = [Math.min(body.start, time), Math.max(body.start, time)];
    const known = track.times.filter((at) => at >= low && at <= high);
    if (known.length === 0) return body;
    const near = time >= body.start ? known[known.length - 1] : known[0];
    delete body.trajectory;
    return { ...body, start: near, initial: absolute(this.page.field, track.states[track.times.indexOf(near)]) };
  }

  // The first prediction; a page without trajectories is drawn only now.
  async first() {
    if (this.hasTruth) return this.restart();
    const { page } = this;
    const answer = await this.predictAround();
    const track = new LiveTrack(page.field, null);
    track.add(answer.times, this.size, answer.values);
    page.tracks = [[track]];
    drawField(page);
    this.say(answer, performance.now());
  }

  // Predicts again after a change of state, solver, checkpoint or trajectory.
  async restart() {
    const generation = ++this.generation;
    const began = performance.now();
    const answer = await this.try(() => this.predictAround());
    if (!answer || generation !== this.generation) return;
    const { page } = this;
    const track = new LiveTrack(page.field, this.truth());
    track.add(answer.times, this.size, answer.values);
    page.tracks[page.tracks.length - 1][page.position] = track;
    page.load();
    this.say(answer, began);
  }

  // Some systems cannot be integrated far backward; the prediction then goes forward only.
  async predictAround() {
    const times = this.times();
    try {
      return await ask("/api/predict", this.question(times));
    } catch (error) {
      const forward = times.filter((time) => time >= this.start());
      return ask("/api/predict", this.question(forward));
    }
  }

  // The state at exactly the time of the slider. While a request is under way, only the latest time waits.
  async seek() {
    const { page } = this;
    const track = page.tracks[page.tracks.length - 1][page.position];
    if (!track || track.times.includes(page.time)) return;
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    const [generation, time, began] = [this.generation, page.time, performance.now()];
    const answer = await this.try(() => ask("/api/predict", this.questionNear(track, time)));
    this.asking = false;
    if (answer && generation === this.generation) {
      track.add(answer.times, this.size, answer.values);
      this.say(answer, began);
      if (page.time === time) page.view.load();
    }
    if (this.again) {
      this.again = false;
      this.seek();
    }
  }

  async try(work) {
    try {
      return await work();
    } catch (error) {
      this.status.textContent = error.message;
      this.status.classList.add("failed");
      return null;
    }
  }

  say({ evaluations, milliseconds, checkpoint }, began) {
    this.status.classList.remove("failed");
    this.status.textContent = `${evaluations} evaluations in ${shown(milliseconds, 3)} ms, here after ${shown(performance.now() - began, 3)} ms · ${checkpoint}`;
  }

  // Follows a training run that is still going on.
  async watch() {
    try {
      const [run, history] = await Promise.all([ask("/api/run"), ask("/api/history")]);
      if (history.history.length !== this.reports) {
        this.reports = history.history.length;
        showRun(document.getElementById("run"), history);
      }
      const known = Array.from(this.checkpoint.options, ({ value }) => value);
      run.checkpoints.filter((name) => !known.includes(name)).forEach((name) => element("option", { value: name }, this.checkpoint, name));
    } catch (error) {
      this.status.textContent = "the server no longer responds";
    }
    setTimeout(() => this.watch(), 3000);
  }
}

async function goLive(page) {
  const run = await ask("/api/run");
  const live = new Live(page, run);
  live.hasTruth = Boolean(page.field);
  live.reports = page.data.run?.history.length ?? 0;
  if (!live.hasTruth) {
    page.field = bareField(run);
    page.tracks = [[null]];
  } else {
    page.field.files.push({ label: "predicted" });
    page.tracks.push(page.field.trajectories.map(() => null));
  }
  live.makeControls();
  await live.first();
  page.onSeek = () => live.seek();
  page.onPick = () => live.reset();
  window.cfo.live = live;
  setTimeout(() => live.watch(), 3000);
}
