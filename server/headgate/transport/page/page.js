"use strict";
// Shows what /trend, /metrics, /readyz, /rules, /regions, /top, /decisions and /explain of this listener say. It asks every two
// seconds, keeps nothing but the last answers, and changes nothing. Texts from outside only ever become text nodes.

const EVERY_MS = 2000, MOST_ROWS = 20, STEP_PX = 70;
const SERIES = [
  ["admitted here", (outcome, path) => outcome === "admitted" && ["local", "unlimited", "no_rule", "shadow", "lease"].includes(path)],
  ["admitted, a shard was asked", (outcome, path) => outcome === "admitted" && ["origin", "exact"].includes(path)],
  ["admitted without the shard", (outcome, path) => outcome === "admitted" && path.startsWith("degraded")],
  ["denied from memory", (outcome, path) => outcome === "denied" && path === "deny_cache"],
  ["denied", (outcome, path) => outcome === "denied" && !path.startsWith("degraded") && path !== "deny_cache"],
  ["denied without the shard", (outcome, path) => outcome === "denied" && path.startsWith("degraded")],
];
const find = selector => document.querySelector(selector);
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

const shown = () => find("#narrow [name=text]").value.trim().toLowerCase();

function make(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function fill(section, rows, note) {
  // A row is shown if what is searched for is in any of its cells.
  const wanted = shown(), names = [...document.querySelectorAll(`#${section} th`)].map(column => column.textContent);
  const found = wanted ? rows.filter(cells => cells.some(cell => String(cell?.text ?? cell).toLowerCase().includes(wanted))) : rows;
  find(`#${section} tbody`).replaceChildren(...found.slice(0, MOST_ROWS).map(cells => {
    const row = make("tr");
    cells.forEach((cell, place) => row.append(dataCell(cell, names[place])));
    return row;
  }));
  const more = found.length - MOST_ROWS, hidden = rows.length - found.length;
  find(`#${section} .note`).textContent = !rows.length ? note : [more > 0 && `${more} more are not shown`, hidden && `${hidden} are left out by “${wanted}”`].filter(Boolean).join("; ");
}

function dataCell(cell, name) {
  const {text, kind, act, label, part} = typeof cell === "number" ? {text: digits(cell), kind: "number"} : typeof cell === "object" && cell !== null ? cell : {text: cell};
  const data = make("td", text ?? "", kind);
  data.dataset.name = name;
  if (act) data.append(button(label, act));
  if (part !== undefined) data.append(meter(part));
  if (!data.hasChildNodes()) data.classList.add("empty");
  return data;
}

function meter(part) {
  const made = make("meter");
  Object.assign(made, {min: 0, max: 1, low: 0.8, high: 0.999, optimum: 0, value: Math.min(1, part)});
  made.title = made.ariaLabel = `${Math.round(part * 100)}% used`;
  return made;
}

function button(label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  made.addEventListener("click", act);
  return made;
}

const number = text => ({text, kind: "number"});
const short = text => ({text, kind: "short"});

function trend(told) {
  const buckets = told.buckets || [], grain_s = told.grain_s || 2;
  const byKind = bucket => {
    const sums = SERIES.map(() => 0);
    for (const [key, count] of Object.entries(bucket.decisions)) {
      const [outcome, path] = key.split(" "), place = SERIES.findIndex(([, belongs]) => belongs(outcome, path));
      if (place >= 0) sums[place] += count / grain_s;
    }
    return sums;
  };
  draw("decisions", told, SERIES.map(([name]) => name), buckets.map(byKind));
  // Denials are told apart by rule from steps of 20 s on.
  const named = grain_s >= 20, wanted = shown();
  const names = [...new Set(buckets.flatMap(bucket => (bucket.denials || []).map(([domain, rule]) => `${domain} ${rule}`.trim())))]
    .filter(name => !wanted || name.toLowerCase().includes(wanted)).slice(0, 9);
  const byRule = bucket => names.map(name => (bucket.denials || []).reduce((sum, [domain, rule, count]) => sum + (`${domain} ${rule}`.trim() === name ? count / grain_s : 0), 0));
  draw("denied", told, names, buckets.map(byRule));
  find("#denied .note").textContent = !named ? "Rules are told apart for the last hour and the last 5 hours." : names.length ? "" : "Nothing was denied.";
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function ticks(most) {
  // Two to five round numbers from 0 to the top of the scale.
  const rough = most / 4, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map(times => times * power).find(one => one >= rough);
  return Array.from({length: Math.ceil(most / step) + 1}, (_, place) => place * step);
}

function draw(section, told, names, values) {
  // Areas upon each other: time from left to right, the newest at the right edge, with a scale on both axes.
  const plot = find(`#${section} .plot`), width = plot.clientWidth || 600, height = plot.clientHeight || 220;
  const left = 46, low = height - 20, most = Math.max(1, ...values.map(one => one.reduce((sum, rate) => sum + rate, 0)));
  const scale = ticks(most), top = scale.at(-1), grain_s = told.grain_s || 2, steps = told.most || 150, end_s = (told.buckets?.at(-1)?.begin_s ?? 0) + grain_s;
  const x = at_s => width - (end_s - at_s) / (grain_s * steps) * (width - left), y = rate => low - rate / top * (low - 8);
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const drawn = scale.flatMap(rate => [svg("line", {x1: left, x2: width, y1: y(rate), y2: y(rate)}), svg("text", {x: left - 6, y: y(rate) + 4, "text-anchor": "end"}, rate ? digits(rate) : "0")]);
  const bottom = values.map(() => 0), begins = (told.buckets || []).map(bucket => bucket.begin_s);
  names.forEach((_, series) => {
    const area = [], back = [];
    values.forEach((one, place) => {
      const high = bottom[place] + one[series];
      for (const at_s of [begins[place], begins[place] + grain_s]) { area.push([x(at_s), y(high)]); back.unshift([x(at_s), y(bottom[place])]); }
      bottom[place] = high;
    });
    const shape = svg("polygon", {points: [...area, ...back].map(point => point.map(one => one.toFixed(1)).join()).join(" ")});
    shape.style.fill = `var(--series-${series})`;
    drawn.push(shape);
  });
  const span_s = grain_s * steps, marks = Math.max(1, Math.floor((width - left) / STEP_PX / 2));
  for (let mark = 0; mark <= marks; mark += 1) {
    const ago_s = Math.round(span_s * (1 - mark / marks)), text = ago_s === 0 ? "now" : ago_s >= 5400 ? `${(ago_s / 3600).toFixed(1)} h ago` : `${Math.round(ago_s / 60)} min ago`;
    drawn.push(svg("text", {x: x(end_s - ago_s), y: height - 4, "text-anchor": mark === 0 ? "start" : mark === marks ? "end" : "middle"}, text));
  }
  plot.replaceChildren(...drawn);
  const newest = values.at(-1) || names.map(() => 0);
  find(`#${section} .legend`).replaceChildren(...names.map((name, place) => {
    const item = make("li"), mark = make("i");
    mark.style.background = `var(--series-${place})`;
    item.append(mark, `${name}: ${digits(newest[place])}`);
    return item;
  }));
}

function rules(told) {
  const refused = (told.refused || []).length;
  find("#rules .about").textContent = told.version ? `version ${told.version} in force since ${told.loaded_at}, ${told.total} rules of ${told.domains} domains` + (refused ? `; ${refused} domains refused` : "") : "";
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
  // Rules that nobody asks for are shown to whoever looks for them.
  const asked = [...found].filter(([, results]) => busy(results) || shown()).sort((one, other) => busy(other[1]) - busy(one[1]));
  const rows = asked.map(([name, results]) => [
    ...JSON.parse(name), results.within_limit || 0, results.over_limit || 0, results.shadow_over_limit || 0, near.get(name) || 0]);
  fill("rules", rows, "no rule is being asked for");
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
    calls.get(name) || 0, number(milliseconds(seconds.get(name) / counts.get(name))), failures.get(name) || 0, shard.error || ""]),
  "this node counts in its own memory (memory://)");
}

function regions(told) {
  // A process that does not exchange names its peers and knows no more of them.
  const connected = peer => peer.connected === undefined ? "" : peer.connected ? {text: "yes", kind: "good"} : {text: "no", kind: "bad"};
  const notes = peer => [peer.filling && "is telling what this region had lost", peer.clock_skewed && `its clock is off by ${peer.clock_ahead_ms} ms`, peer.error];
  const rows = (told.peers || []).map(peer => [peer.region, connected(peer), number(peer.lag_ms == null ? "" : `${(peer.lag_ms / 1000).toFixed(1)} s`),
    number(peer.backlog ?? ""), notes(peer).filter(Boolean).join("; ")]);
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
  fill("hottest", rows.map(([rule, name, key]) => [name, rule, number(key.denied ?? ""), number(key.admitted ?? ""),
    key.remaining === undefined ? "" : {text: `${key.remaining} of ${key.limit} left` + (key.over_by ? `, ${key.over_by} over` : ""), kind: key.over_by ? "bad" : "", part: key.limit ? key.admitted / key.limit : 1}]), "nothing has been asked for yet");
}

function denials(told) {
  // One row for a key that was denied again and again: its last denial, and how many of those that are told were its.
  const keys = new Map();
  for (const one of told.decisions || []) {
    const name = JSON.stringify([one.domain, one.rule, one.key]);
    if (keys.has(name)) keys.get(name).times += 1;
    else keys.set(name, {...one, times: 1});
  }
  const rows = [...keys.values()].map(one => [short(new Date(one.time_ms).toISOString().slice(11, 19)), one.domain, one.rule, one.key,
    number(one.times), number(`${one.counted} of ${one.limit}`), one.reason, one.path, number(`${(one.retry_ms / 1000).toFixed(1)} s`),
    {label: "explain", act: () => explain({id: one.id})}]);
  fill("denials", rows, told.logged === false ? "This node keeps no decision log: give it a data_dir." : "Nothing was denied in the last five minutes.");
}

function head(ready, version, peers, inForce) {
  find("#who").textContent = `${version.version}, region ${version.region}` + (version.workers ? `, ${version.workers} workers` : `, node ${version.node}`);
  const shards = (ready.workers || [ready]).flatMap(one => one.origin?.shards || []), open = new Set(shards.filter(shard => shard.breaker !== "closed").map(shard => shard.shard));
  const all = new Set(shards.map(shard => shard.shard)), told = peers.peers || [], away = told.filter(peer => peer.connected === false);
  const refused = inForce.refused || [];
  const troubles = [
    !ready.ready && `not serving: ${ready.state || "not ready"}`,
    open.size && `${open.size === all.size ? "no shard is asked" : `shard ${[...open].join(", ")} is not asked`}: their keys are decided by on_error`,
    away.length && `not connected to region ${away.map(peer => peer.region).join(", ")}`,
    inForce.in_sync === false && (refused.length ? `rules of ${refused.map(one => one.domain).join(", ")} are refused, and those from before are in force` : `the rules in force are not the feed's: ${inForce.last_error?.problems?.[0]?.reason || "see /rules"}`),
  ].filter(Boolean);
  find("#state").textContent = !ready.ready ? ready.state || "not ready" : troubles.length ? "serving, with trouble" : "serving";
  find("#state").className = troubles.length ? "bad" : "good";
  find("#trouble").hidden = !troubles.length;
  find("#trouble").replaceChildren(...troubles.map(text => make("li", text)));
  const counts = [["shards asked", all.size - open.size, all.size], ["regions connected", told.length - away.length, told.length]].filter(([, , of]) => of);
  find("#health").replaceChildren(...counts.map(([name, well, of]) => {
    const item = make("li", `${name} `, well === of ? "good" : "bad");
    item.append(make("b", `${well} of ${of}`));
    return item;
  }));
}

async function ask(path, refused) {
  const token = sessionStorage.getItem("token");
  const answer = await fetch(path, {cache: "no-store", headers: token ? {Authorization: `Bearer ${token}`} : {}});
  if (answer.status === 401) {
    // Not for an answer to a question from before the token was given.
    if (token === sessionStorage.getItem("token")) find("#token").hidden = false;
    return refused;
  }
  if (answer.status === 404) return refused;
  if (!answer.ok && answer.status !== 503) throw new Error(`${path}: ${answer.status} ${(await answer.text()).slice(0, 200)}`);
  return path.startsWith("metrics") ? answer.text() : answer.json();
}

async function look() {
  const grain = new FormData(find("#narrow")).get("grain");
  const [text, ready, version, told, top, decided, over, inForce] = await Promise.all([
    ask("metrics", ""), ask("readyz", {}), ask("version", {}), ask("regions", {}), ask("top", {}), ask("decisions", {}), ask(`trend?grain_s=${grain}`, {}), ask("rules?limit=0", {})]);
  const now_ms = performance.now();
  last = {metrics: read(text), before: last?.metrics, seconds: last ? (now_ms - last.at_ms) / 1000 : 0, at_ms: now_ms};
  head(ready, version, told, inForce);
  trend(over);
  rules(inForce);
  shards(ready);
  regions(told);
  hottest(top);
  denials(decided);
  document.body.dataset.looks = String(Number(document.body.dataset.looks || 0) + 1);
}

async function lookOnce() {
  try {
    await look();
  } catch (error) {
    find("#trouble").replaceChildren(make("li", `No answer: ${error.message}. Trying again.`));
    find("#trouble").hidden = false;
    find("#state").textContent = "no answer";
    find("#state").className = "bad";
  }
}

async function keepLooking() {
  for (;;) {
    if (!document.hidden) await lookOnce();
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
  out.focus({preventScroll: true});
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
find("#narrow").addEventListener("submit", event => event.preventDefault());
find("#narrow").addEventListener("input", lookOnce);
find("#explain form").addEventListener("submit", event => { event.preventDefault(); explain(asked(event.target)); });
const given = new URLSearchParams(location.search);
if (given.has("domain") && given.has("descriptor")) {
  for (const name of ["domain", "descriptor"]) find(`#explain [name=${name}]`).value = given.get(name);
  explain(asked(find("#explain form")));
}
keepLooking();
