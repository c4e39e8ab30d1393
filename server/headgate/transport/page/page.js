"use strict";
// Shows what /metrics, /readyz, /regions, /top, /decisions and /explain of this listener say. It keeps nothing but the last five
// minutes, asks every two seconds, and changes nothing. Texts from outside only ever become text nodes.

const EVERY_MS = 2000, SAMPLES = 150, MOST_ROWS = 20;
const SERIES = [
  ["admitted here", (outcome, path) => outcome === "admitted" && ["local", "unlimited", "no_rule", "shadow", "lease"].includes(path)],
  ["admitted, a shard was asked", (outcome, path) => outcome === "admitted" && ["origin", "exact"].includes(path)],
  ["admitted without the shard", (outcome, path) => outcome === "admitted" && path.startsWith("degraded")],
  ["denied from memory", (outcome, path) => outcome === "denied" && path === "deny_cache"],
  ["denied", (outcome, path) => outcome === "denied" && !path.startsWith("degraded") && path !== "deny_cache"],
  ["denied without the shard", (outcome, path) => outcome === "denied" && path.startsWith("degraded")],
];
const find = selector => document.querySelector(selector);
const samples = [];
let last = null;

function read(text) {
  // Prometheus' text format: `name{label="value",…} number`.
  const found = new Map();
  for (const line of text.split("\n")) {
    if (!line || line[0] === "#") continue;
    const [, name, inside, value] = /^([^\s{]+)(?:\{(.*)\})? (\S+)/.exec(line) || [];
    if (!name) continue;
    const labels = {};
    for (const [, key, quoted] of (inside || "").matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g))
      labels[key] = quoted.replace(/\\(.)/g, (_, sign) => sign === "n" ? "\n" : sign);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({labels, value: Number(value)});
  }
  return found;
}

function sums(metrics, name, keyOf) {
  const found = new Map();
  for (const {labels, value} of metrics.get(name) || [])
    found.set(keyOf(labels), (found.get(keyOf(labels)) || 0) + value);
  return found;
}

function rates(name, keyOf) {
  // Per second since the last look; a counter that fell belongs to a process that began anew.
  const now = sums(last.metrics, name, keyOf), before = last.before ? sums(last.before, name, keyOf) : new Map();
  const found = new Map();
  for (const [key, value] of now) {
    const gained = value - (before.get(key) || 0);
    found.set(key, last.before ? Math.max(0, gained) / last.seconds : 0);
  }
  return found;
}

const digits = number => number >= 100 ? Math.round(number).toLocaleString("en") : number >= 1 ? number.toFixed(1) : number ? number.toPrecision(2) : "0";
const milliseconds = seconds => Number.isFinite(seconds) ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 2 : 0)} ms` : "";

function fill(section, rows, note) {
  const body = find(`#${section} tbody`);
  body.replaceChildren(...rows.slice(0, MOST_ROWS).map(cells => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const data = document.createElement("td");
      const {text, kind} = typeof cell === "object" && cell !== null ? cell : {text: cell};
      data.textContent = text ?? "";
      if (cell?.act) data.append(button(cell.label, cell.act));
      data.className = typeof cell === "number" || kind === "number" ? "number" : kind || "";
      if (typeof cell === "number") data.textContent = digits(cell);
      row.append(data);
    }
    return row;
  }));
  find(`#${section} .note`).textContent = rows.length > MOST_ROWS ? `${rows.length - MOST_ROWS} more are not shown` : rows.length ? "" : note;
}

function button(label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  made.addEventListener("click", act);
  return made;
}

const number = text => ({text, kind: "number"});

function decisions() {
  const found = rates("headgate_decisions_total", labels => `${labels.outcome} ${labels.path}`);
  const now = SERIES.map(() => 0);
  for (const [key, rate] of found) {
    const [outcome, path] = key.split(" ");
    const place = SERIES.findIndex(([, belongs]) => belongs(outcome, path));
    if (place >= 0) now[place] += rate;
  }
  if (last.before) samples.push(now);
  if (samples.length > SAMPLES) samples.shift();
  draw();
  find("#legend").replaceChildren(...SERIES.map(([name], place) => {
    const item = document.createElement("li"), mark = document.createElement("i");
    mark.style.background = `var(--series-${place})`;
    item.append(mark, `${name}: ${digits(now[place])}`);
    return item;
  }));
}

function draw() {
  const width = 900, height = 220, most = Math.max(1, ...samples.map(one => one.reduce((sum, rate) => sum + rate, 0)));
  const x = place => width - (samples.length - 1 - place) * width / (SAMPLES - 1);
  const y = rate => height - rate / most * (height - 16);
  const bottom = samples.map(() => 0);
  find("#chart").replaceChildren(...SERIES.map((_, series) => {
    const low = samples.map((_, place) => [x(place), y(bottom[place])]);
    samples.forEach((one, place) => { bottom[place] += one[series]; });
    const high = samples.map((_, place) => [x(place), y(bottom[place])]);
    const area = document.createElementNS("http://www.w3.org/2000/svg", "polygon");
    area.setAttribute("points", [...high, ...low.reverse()].map(point => point.map(one => one.toFixed(1)).join()).join(" "));
    area.style.fill = `var(--series-${series})`;
    return area;
  }));
  find("#scale").textContent = samples.length ? `${digits(most)} per second at most, in five minutes` : "the first figures come in two seconds";
}

function rules() {
  const rule = labels => JSON.stringify([labels.domain, labels.rule + (labels.value ? ` (${labels.value})` : "")]);
  const byResult = rates("headgate_rule_decisions_total", labels => JSON.stringify([rule(labels), labels.result]));
  const near = rates("headgate_rule_near_limit_total", rule);
  const found = new Map();
  for (const [key, rate] of byResult) {
    const [name, result] = JSON.parse(key);
    if (!found.has(name)) found.set(name, {});
    found.get(name)[result] = rate;
  }
  const busy = one => (one.within_limit || 0) + (one.over_limit || 0) + (one.shadow_over_limit || 0);
  const rows = [...found].sort((one, other) => busy(other[1]) - busy(one[1])).map(([name, results]) => [
    ...JSON.parse(name), results.within_limit || 0, results.over_limit || 0, results.shadow_over_limit || 0, near.get(name) || 0]);
  fill("rules", rows, "no rule has been asked for yet");
}

function shards(ready) {
  const origins = (ready.workers || [ready]).map(one => one.origin).filter(Boolean);
  const byShard = labels => labels.shard;
  const calls = rates("headgate_shard_calls_total", byShard), failures = rates("headgate_shard_call_failures_total", byShard);
  const seconds = rates("headgate_shard_call_duration_seconds_sum", byShard), counts = rates("headgate_shard_call_duration_seconds_count", byShard);
  const rows = new Map();
  for (const origin of origins)
    for (const shard of origin.shards || []) {
      const name = String(shard.shard), known = rows.get(name);
      if (known && known.breaker !== "closed") continue;  // the worst of all workers'
      rows.set(name, shard);
    }
  fill("shards", [...rows].map(([name, shard]) => [name, {text: shard.breaker, kind: shard.breaker === "closed" ? "good" : "bad"},
    calls.get(name) || 0, number(milliseconds(seconds.get(name) / counts.get(name))), failures.get(name) || 0, {text: shard.error || "", kind: "wrap"}]),
  "this node counts in its own memory (memory://)");
}

function regions(told) {
  // A process that does not exchange names its peers and knows no more of them.
  const connected = peer => peer.connected === undefined ? "" : peer.connected ? {text: "yes", kind: "good"} : {text: "no", kind: "bad"};
  const notes = peer => [peer.filling && "is telling what this region had lost", peer.clock_skewed && `its clock is off by ${peer.clock_ahead_ms} ms`, peer.error];
  const rows = (told.peers || []).map(peer => [peer.region, connected(peer), number(peer.lag_ms == null ? "" : `${(peer.lag_ms / 1000).toFixed(1)} s`),
    number(peer.backlog ?? ""), {text: notes(peer).filter(Boolean).join("; "), kind: "wrap"}]);
  fill("regions", rows, `this region, ${told.region || "?"}, has no peers`);
}

function hottest(told) {
  // Who is denied is told apart from who uses most: one row for a key that is in both.
  const rows = [];
  for (const rule of told.rules || []) {
    const keys = new Map();
    for (const key of [...rule.denied, ...rule.admitted]) {
      const name = Object.entries(key.values).map(pair => pair.join("=")).join(", ") || "(all)";
      keys.set(name, {...keys.get(name), ...key});
    }
    for (const [name, key] of keys) rows.push([rule.text || rule.rule, name, key]);
  }
  rows.sort(([, , one], [, , other]) => (other.denied || 0) - (one.denied || 0) || (other.admitted || 0) - (one.admitted || 0));
  fill("hottest", rows.map(([rule, name, key]) => [rule, {text: name, kind: "wrap"}, number(key.admitted ?? ""), number(key.denied ?? ""),
    number(key.remaining === undefined ? "" : `${key.remaining} of ${key.limit}`)]), "nothing has been asked for yet");
}

function denials(told) {
  // One row for a key that was denied again and again: its last denial, and how many of those that are told were its.
  const keys = new Map();
  for (const one of told.decisions || []) {
    const name = JSON.stringify([one.domain, one.rule, one.key]);
    if (keys.has(name)) keys.get(name).times += 1;
    else keys.set(name, {...one, times: 1});
  }
  const rows = [...keys.values()].map(one => [new Date(one.time_ms).toLocaleTimeString(), one.domain, one.rule, {text: one.key, kind: "wrap"},
    number(one.times), number(`${one.counted} of ${one.limit}`), {text: one.reason, kind: "wrap"}, one.path, number(`${(one.retry_ms / 1000).toFixed(1)} s`),
    {label: "explain", act: () => explain({id: one.id})}]);
  fill("denials", rows, told.logged === false ? "This node keeps no decision log: give it a data_dir." : "Nothing was denied in the last five minutes.");
}

function head(ready, version) {
  find("#who").textContent = `${version.version}, region ${version.region}` + (version.workers ? `, ${version.workers} workers` : `, node ${version.node}`);
  find("#state").textContent = ready.ready ? "serving" : ready.state || "not ready";
  find("#state").className = ready.ready ? "good" : "bad";
}

async function ask(path, refused) {
  const token = sessionStorage.getItem("token");
  const answer = await fetch(path, {cache: "no-store", headers: token ? {Authorization: `Bearer ${token}`} : {}});
  if (answer.status === 401) { find("#token").hidden = false; return refused; }
  if (answer.status === 404) return refused;
  if (!answer.ok && answer.status !== 503) throw new Error(`${path}: ${answer.status} ${(await answer.text()).slice(0, 200)}`);
  return path.startsWith("metrics") ? answer.text() : answer.json();
}

async function look() {
  const [text, ready, version, told, top, decided] = await Promise.all([
    ask("metrics", ""), ask("readyz", {}), ask("version", {}), ask("regions", {}), ask("top", {}), ask("decisions", {})]);
  const now_ms = performance.now();
  last = {metrics: read(text), before: last?.metrics, seconds: last ? (now_ms - last.at_ms) / 1000 : 0, at_ms: now_ms};
  head(ready, version);
  decisions();
  rules();
  shards(ready);
  regions(told);
  hottest(top);
  denials(decided);
  document.body.dataset.looks = String(Number(document.body.dataset.looks || 0) + 1);
}

async function keepLooking() {
  for (;;) {
    try {
      if (!document.hidden) await look();
      find("#trouble").hidden = true;
    } catch (error) {
      find("#trouble").textContent = `No answer: ${error.message}. Trying again.`;
      find("#trouble").hidden = false;
      find("#state").textContent = "no answer";
      find("#state").className = "bad";
    }
    await new Promise(done => setTimeout(done, EVERY_MS));
  }
}

function entries(text) {
  // `key=value,key=value`, with a backslash before a comma, = or backslash that stands for itself, as `headgate explain` has it.
  return text.match(/(?:\\[,=\\]|[^,])+/g).map(pair => {
    const [, key, value] = /^((?:\\[,=\\]|[^=])*)=(.*)$/s.exec(pair) || [null, pair, ""];
    return [key, value].map(part => part.replace(/\\([,=\\])/g, "$1"));
  });
}

async function explain(question) {
  const out = find("#explain pre");
  try {
    const told = await ask(`explain?${new URLSearchParams(question)}`, null);
    out.textContent = told === null ? "This node keeps no decision log: give it a data_dir." : told.sentences.join("\n");
  } catch (error) {
    out.textContent = error.message;
  }
  out.scrollIntoView({block: "nearest"});
}

function asked(form) {
  const given = new FormData(form);
  return {domain: given.get("domain"), entries: JSON.stringify(entries(given.get("descriptor")))};
}

find("#token").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem("token", new FormData(event.target).get("token"));
  event.target.hidden = true;
});
find("#explain form").addEventListener("submit", event => { event.preventDefault(); explain(asked(event.target)); });
const given = new URLSearchParams(location.search);
if (given.has("domain") && given.has("descriptor")) {
  for (const name of ["domain", "descriptor"]) find(`#explain [name=${name}]`).value = given.get(name);
  explain(asked(find("#explain form")));
}
keepLooking();
