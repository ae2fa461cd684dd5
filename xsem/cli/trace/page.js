"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const [box, canvas, spacer, details, find, count] =
  ["box", "canvas", "spacer", "details", "find", "count"].map(id => document.getElementById(id));
const pen = canvas.getContext("2d");
const RULER = 22, HEAD = 26, NAME = 17, LANE = 20, GAP = 6;
const total = Math.max(data.us || 0, 1), slices = data.begin ? data.begin.length : 0;
const view = {from: -total * .01, to: total * 1.01};
let selected = -1, hits = [], isHit = null, chained = false, waiting = false, height = 0, width = 0, colours = {};
const inChain = new Uint8Array(slices);
for (const each of data.chain) inChain[each] = 1;

// ---- where everything is: rows of slices by track and lane, sorted by their begin
const rows = [], heads = [], rowOf = new Map();
(function place() {
  const lanes = data.tracks.map(() => 1);
  for (let i = 0; i < slices; i++) lanes[data.track[i]] = Math.max(lanes[data.track[i]], data.lane[i] + 1);
  let y = 0, process = null;
  data.tracks.forEach(([owner, name], track) => {
    if (owner !== process) { heads.push({y, text: owner, process: true}); y += HEAD; process = owner; }
    heads.push({y, text: name}); y += NAME;
    for (let lane = 0; lane < lanes[track]; lane++) {
      const row = {y, members: []};
      rows.push(row); rowOf.set(track * 100 + lane, row); y += LANE;
    }
    y += GAP;
  });
  for (let i = 0; i < slices; i++) row(i).members.push(i);
  height = y;
})();
function row(i) { return rowOf.get(data.track[i] * 100 + data.lane[i]); }
const links = [new Map(), new Map()];   // from a signal to its waits, from a wait to its signals
for (const [signal, wait] of data.arrows)
  [[links[0], signal, wait], [links[1], wait, signal]].forEach(([map, key, value]) =>
    map.has(key) ? map.get(key).push(value) : map.set(key, [value]));
const calls = new Map();                // from an operation to its append
for (let i = 0; i < slices; i++) if (data.target[i] >= 0 && name(i) === "append") calls.set(data.target[i], i);
function name(i) { return data.texts[data.kind[i]]; }
const end = i => data.begin[i] + data.length[i];

const KINDS = {wait: "wait", signal: "signal", work: "work", copy: "move", fill: "move", barrier: "barrier",
  "host wait": "host", synchronize: "host", "event wait": "host", "host signal": "signal", write: "ring", read: "ring"};
const LEGEND = {wait: "wait", signal: "signal", work: "work", move: "copy, fill", barrier: "barrier", host: "wait of the host",
  ring: "frame of a ring", mark: "append, message, object"};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const each of [...Object.keys(LEGEND), "text", "soft", "ground", "line", "head", "ink", "hit", "arrow"])
    colours[each] = style.getPropertyValue("--" + each).trim();
  const items = Object.entries(LEGEND).map(([key, text]) => {
    const item = document.createElement("li"), swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [what, value] of Object.entries({width: 14, height: 12, fill: colours[key]})) rect.setAttribute(what, value);
    swatch.append(rect); item.append(swatch, text); return item;
  });
  document.getElementById("legend").replaceChildren(...items);
}

// ---- drawing: only what is visible, at most once for each pixel
const x = time => (time - view.from) / (view.to - view.from) * width;
function timeText(us, digits = 4) {
  const [size, unit] = Math.abs(us) >= 1e6 ? [1e6, "s"] : Math.abs(us) >= 1e3 ? [1e3, "ms"] : [1, "us"];
  return `${Number((us / size).toPrecision(digits))} ${unit}`;
}
function redraw() { if (!waiting) { waiting = true; requestAnimationFrame(draw); } }
function draw() {
  waiting = false;
  const top = RULER - box.scrollTop, bottom = box.clientHeight;
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.fillStyle = colours.ground; pen.fillRect(0, 0, width, bottom);
  const ticks = grid();
  pen.font = "12px system-ui, sans-serif";
  for (const each of rows) if (top + each.y < bottom && top + each.y > -LANE) drawRow(each, top + each.y);
  drawArrows(top);
  for (const each of heads) {
    const y = top + each.y;
    if (y > bottom || y < -HEAD) continue;
    pen.font = each.process ? "600 14px system-ui, sans-serif" : "12px system-ui, sans-serif";
    pen.fillStyle = each.process ? colours.head : colours.ground;
    pen.fillRect(0, y, each.process ? width : pen.measureText(each.text).width + 10, each.process ? HEAD - 4 : NAME - 1);
    pen.fillStyle = each.process ? colours.text : colours.soft;
    pen.fillText(each.text, 6, y + (each.process ? 16 : 13));
  }
  pen.fillStyle = colours.head; pen.fillRect(0, 0, width, RULER - 2);
  pen.fillStyle = colours.soft; pen.font = "12px system-ui, sans-serif";
  for (const [at, text] of ticks) pen.fillText(text, at + 3, 14);
}
function grid() {
  const least = (view.to - view.from) / width * 90, power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= least), ticks = [];
  pen.fillStyle = colours.line;
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    ticks.push([x(time), timeText(Math.abs(time) < step / 2 ? 0 : time, 7)]);
    pen.fillRect(Math.round(x(time)), 0, 1, box.clientHeight);
  }
  return ticks;
}
function firstIn(members, time) {   // the last that begins before this time, or the first
  let low = 0, high = members.length;
  while (low < high) { const middle = (low + high) >> 1; if (data.begin[members[middle]] < time) low = middle + 1; else high = middle; }
  return Math.max(0, low - 1);
}
const isMarked = i => i === selected || (isHit ? isHit[i] : chained ? inChain[i] : true);
function drawRow({members}, y) {
  let cell = -Infinity, best = -1;   // of the events that share two pixels, the longest is drawn
  const rank = i => data.length[i] + (i === selected ? 2e12 : isMarked(i) ? 1e12 : 0);
  const flush = () => { if (best >= 0) drawSlice(best, cell * 2, 2, y); best = -1; };
  for (let place = firstIn(members, view.from); place < members.length; place++) {
    const i = members[place];
    if (data.begin[i] > view.to) break;
    const left = Math.max(-4, x(data.begin[i])), size = Math.min(width + 4, x(end(i))) - left;
    if (left + size < 0) continue;
    if (size > 2) { flush(); drawSlice(i, left, size, y); continue; }
    if (Math.floor(left / 2) !== cell) { flush(); cell = Math.floor(left / 2); }
    if (best < 0 || rank(i) > rank(best)) best = i;
  }
  flush(); pen.globalAlpha = 1;
}
function drawSlice(i, left, size, y) {
  const kind = KINDS[name(i)] || "mark", low = kind === "mark" ? 5 : 0, text = data.texts[data.text[i]];
  pen.globalAlpha = isMarked(i) ? 1 : .25;
  pen.fillStyle = colours[kind]; pen.fillRect(left, y + low, size - (size > 4 ? .8 : 0), LANE - 3 - low);
  if (data.texts[data.note[i]].includes("pending at the end")) {   // a dashed edge
    pen.fillStyle = colours.ground;
    for (let at = left + 6; at < left + size; at += 12) pen.fillRect(at, y, 6, 3);
  }
  if (i === selected || (size > 5 && (isHit || chained) && isMarked(i))) {
    pen.strokeStyle = i === selected ? colours.text : colours.hit; pen.lineWidth = 2;
    pen.strokeRect(left + .5, y + low, Math.max(2, size - 1), LANE - 3 - low);
  }
  const room = Math.floor((size - 6) / 6.4);
  if (room < 3 || kind === "mark") return;
  const short = text.length > room ? text.replace(/^(host )?(wait|signal) (timeline |binary )?(?=.)/, "") : text;
  pen.fillStyle = colours.ink;
  pen.fillText(short.length > room ? short.slice(0, room - 1) + "\u2026" : short, Math.max(left, 0) + 3, y + 13);
}
function drawArrows(top) {
  const visible = ([signal, wait]) => data.begin[wait] <= view.to && end(wait) >= view.from &&
    end(signal) >= view.from - (view.to - view.from) && end(signal) <= view.to;
  let shown = [];
  for (const each of data.arrows) if (visible(each) && shown.push(each) > width / 6) break;
  const own = data.arrows.length && selected >= 0 ? [...(links[0].get(selected) || []).map(each => [selected, each]),
    ...(links[1].get(selected) || []).map(each => [each, selected])] : [];
  if (shown.length > width / 6) shown = [];   // too many to tell apart
  for (const each of shown) arrow(...each, top, .45, 1);
  for (const each of own) arrow(...each, top, 1, 2);
  if (calls.has(selected)) arrow(calls.get(selected), selected, top, .9, 1.5, [5, 4]);
}
function arrow(from, to, top, alpha, thick, dashes = []) {
  const time = dashes.length ? data.begin[to] : Math.min(end(to), Math.max(data.begin[to], end(from)));
  const [x1, y1, x2] = [x(end(from)), top + row(from).y + LANE / 2 - 1, x(time)];
  const down = row(to).y >= row(from).y, y2 = top + row(to).y + (row(to) === row(from) || down ? 0 : LANE - 3);
  const bend = Math.max(12, Math.abs(y2 - y1) / 3) * (down ? 1 : -1);
  pen.globalAlpha = alpha; pen.lineWidth = thick; pen.strokeStyle = pen.fillStyle = colours.arrow; pen.setLineDash(dashes);
  pen.beginPath(); pen.moveTo(x1, y1); pen.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2); pen.stroke();
  pen.setLineDash([]);
  pen.beginPath(); pen.moveTo(x2, y2); pen.lineTo(x2 - 4, y2 - (down ? 7 : -7)); pen.lineTo(x2 + 4, y2 - (down ? 7 : -7)); pen.fill();
  pen.globalAlpha = 1;
}

// ---- moving
function zoom(factor, at = width / 2) {
  const centre = view.from + at / width * (view.to - view.from);
  const span = Math.min(total * 1.5, Math.max(.05, (view.to - view.from) * factor));
  show(centre - at / width * span, centre + (1 - at / width) * span);
}
function show(from, to) {
  const span = to - from, low = Math.min(total - span * .1, Math.max(-span * .9, from));   // never out of sight
  [view.from, view.to] = [low, low + span]; redraw();
}
function move(pixels) { const by = pixels / width * (view.to - view.from); show(view.from + by, view.to + by); }
function showAll() { show(-total * .01, total * 1.01); }
function resize() {
  const high = Math.min(height + RULER + 4, Math.max(240, innerHeight * .62));
  box.style.height = `${high}px`; width = box.clientWidth;
  canvas.width = width * devicePixelRatio; canvas.height = box.clientHeight * devicePixelRatio;
  canvas.style.height = `${box.clientHeight}px`;
  spacer.style.height = `${Math.max(0, height + RULER + 2 - box.clientHeight)}px`;
  redraw();
}
box.addEventListener("wheel", event => {
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX || event.deltaY);
  else zoom(Math.exp(event.deltaY * (event.ctrlKey ? .01 : .0015)), event.offsetX);
}, {passive: false});
const fingers = new Map();
let moved = 0;
const finger = event => ({id: event.pointerId, x: event.offsetX, y: event.offsetY});
canvas.addEventListener("pointerdown", event => {
  fingers.set(event.pointerId, finger(event)); canvas.setPointerCapture(event.pointerId); moved = fingers.size > 1 ? 99 : 0;
});
canvas.addEventListener("pointermove", event => {
  const before = fingers.get(event.pointerId), now = finger(event);
  if (!before) { const i = pick(event); canvas.title = i < 0 ? "" : label(i); return; }
  fingers.set(now.id, now);
  moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
  if (fingers.size === 2) {
    const other = [...fingers.values()].find(each => each.id !== now.id);
    const apart = each => Math.hypot(each.x - other.x, each.y - other.y) || 1;
    zoom(apart(before) / apart(now), (now.x + other.x) / 2);
  } else if (moved > 4) { move(before.x - now.x); if (event.pointerType === "mouse") box.scrollTop += before.y - now.y; }
});
canvas.addEventListener("pointerup", event => { fingers.delete(event.pointerId); if (moved <= 4) select(pick(event)); });
canvas.addEventListener("pointercancel", event => fingers.delete(event.pointerId));
function pick(event) {
  const y = event.offsetY - RULER + box.scrollTop, found = rows.find(each => y >= each.y && y < each.y + LANE);
  if (!found || event.offsetY < RULER) return -1;
  let best = -1, far = 6;
  for (let place = firstIn(found.members, view.from); place < found.members.length; place++) {
    const i = found.members[place], off = Math.max(0, x(data.begin[i]) - event.offsetX, event.offsetX - x(end(i)));
    if (data.begin[i] > view.to) break;
    if (off < far || (off === far && off === 0)) [best, far] = [i, off];
  }
  return best;
}

// ---- the selected event
const label = i => `${data.texts[data.text[i]]}: ${timeText(data.length[i])} at ${timeText(data.begin[i], 7)}`;
function select(i, jump = false) {
  selected = i;
  if (i < 0) { redraw(); return; }
  if (jump) {
    const y = row(i).y, span = view.to - view.from;
    if (data.length[i] > span) show(data.begin[i] - data.length[i] * .2, end(i) + data.length[i] * .2);
    else if (x(data.begin[i]) < 0 || x(end(i)) > width) show(data.begin[i] - span / 2, data.begin[i] + span / 2);
    if (y < box.scrollTop || y + RULER + LANE > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
  }
  const [process, track] = data.tracks[data.track[i]], list = document.createElement("dl");
  const add = (term, ...values) => {
    if (!values.length || values[0] === "") return;
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = term; dd.append(...values); list.append(dt, dd);
  };
  const buttons = others => (others || []).slice(0, 8).map(other => {
    const button = document.createElement("button");
    button.textContent = `${data.texts[data.text[other]]} · ${data.tracks[data.track[other]].join(" ")}`;
    button.addEventListener("click", () => select(other, true)); return button;
  });
  const title = document.createElement("h2");
  title.textContent = data.texts[data.text[i]];
  add("in", process); add("track", track);
  add("begin", timeText(data.begin[i], 7)); add("length", timeText(data.length[i]));
  if (data.appended[i] !== null) add("appended", `${timeText(data.appended[i], 7)}, ${timeText(data.begin[i] - data.appended[i])} before the begin`);
  if (data.seq[i] !== null) add("number", String(data.seq[i]));
  add("note", data.texts[data.note[i]]);
  const signals = links[1].get(i) || [], last = signals.length ? Math.max(...signals.map(end)) : null;
  if (last !== null) add("held", last <= data.begin[i] ? "no: the value was there" : `${timeText(Math.min(last, end(i)) - data.begin[i])}, then ${timeText(Math.max(0, end(i) - last))} to the end`);
  add("ended by", ...buttons(signals));
  add("ended", ...buttons(links[0].get(i)));
  if (data.target[i] >= 0) add("operation", ...buttons([data.target[i]]));
  if (calls.has(i)) add("append", ...buttons([calls.get(i)]));
  details.replaceChildren(title, list); redraw();
}
function beside(by) {
  if (selected < 0) { if (slices) select(0, true); return; }
  const {members} = row(selected), next = members[members.indexOf(selected) + by];
  if (next !== undefined) select(next, true);
}
function zoomToSelected() {
  if (selected < 0) return;
  const around = Math.max(data.length[selected], .5);
  show(data.begin[selected] - around * .5, data.begin[selected] + around * 1.5);
}

// ---- search
function search() {
  const wanted = find.value.trim().toLowerCase();
  hits = []; isHit = wanted ? new Uint8Array(slices) : null;
  if (wanted) {
    const has = text => text.toLowerCase().includes(wanted), inText = data.texts.map(has), inTrack = data.tracks.map(each => has(each.join(" ")));
    for (let i = 0; i < slices; i++) if (inText[data.text[i]] || inText[data.note[i]] || inTrack[data.track[i]]) { isHit[i] = 1; hits.push(i); }
  }
  count.value = wanted ? `${hits.length} found` : ""; redraw();
}
function jump(by) {
  if (!hits.length) return;
  const at = hits.indexOf(selected), after = hits.findIndex(each => data.begin[each] >= view.from);
  const next = at >= 0 ? (at + by + hits.length) % hits.length : Math.max(0, after);
  count.value = `${next + 1} of ${hits.length}`; select(hits[next], true);
}
function markChain() {
  chained = !chained; document.getElementById("chain").setAttribute("aria-pressed", chained); redraw();
}
find.addEventListener("input", search);
find.addEventListener("keydown", event => { if (event.key === "Enter") jump(event.shiftKey ? -1 : 1); });
const ACTIONS = {in: () => zoom(.6), out: () => zoom(1 / .6), all: showAll, one: zoomToSelected, chain: markChain, next: () => jump(1), previous: () => jump(-1)};
for (const [id, act] of Object.entries(ACTIONS)) document.getElementById(id).addEventListener("click", act);
const KEYS = {"+": ACTIONS.in, "=": ACTIONS.in, "-": ACTIONS.out, 0: showAll, f: zoomToSelected, c: markChain, n: ACTIONS.next, p: ACTIONS.previous,
  ",": () => beside(-1), ".": () => beside(1), "/": () => find.focus(), Escape: () => select(-1),
  ArrowLeft: () => move(-width / 6), ArrowRight: () => move(width / 6)};
document.addEventListener("keydown", event => {
  const typing = event.target === find && event.key !== "Escape";
  const scrolls = event.key.startsWith("Arrow") && event.target !== box && event.target !== document.body;   // of a table
  if (typing || scrolls || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault(); KEYS[event.key]();
});
box.addEventListener("scroll", redraw);
addEventListener("resize", resize);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
readColours(); resize();
