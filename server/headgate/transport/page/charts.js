// Charts: areas upon each other over time, with a scale on both axes.

const STEP_PX = 70;
// The server tells denials apart by rule that often, whatever the grain; the colours are for so many rules and the rest.
const BY_RULE_S = 20;
const MOST_NAMES = 8;
const OTHERS = "(others)";
const SERIES = [
  ["admitted here", (outcome, path) => outcome === "admitted" && ["local", "unlimited", "no_rule", "shadow", "lease"].includes(path)],
  ["admitted, a shard was asked", (outcome, path) => outcome === "admitted" && ["origin", "exact"].includes(path)],
  ["admitted without the shard", (outcome, path) => outcome === "admitted" && path.startsWith("degraded")],
  ["denied from memory", (outcome, path) => outcome === "denied" && path === "deny_cache"],
  ["denied", (outcome, path) => outcome === "denied" && !path.startsWith("degraded") && path !== "deny_cache"],
  ["denied without the shard", (outcome, path) => outcome === "denied" && path.startsWith("degraded")],
];

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
  const decided = grain_s > EVERY_MS / 1000 ? {...told, buckets: buckets.slice(0, -1)} : told;
  draw("decisions", decided, SERIES.map(([name]) => name), decided.buckets?.map(byKind) || []);
  denialsByRule(inSteps(told, Math.max(grain_s, BY_RULE_S)));
}

function inSteps(told, grain_s) {
  // Steps of so many seconds; the last one is under way, and says nothing yet.
  const steps = new Map();
  for (const bucket of told.buckets || []) {
    const begin_s = bucket.begin_s - bucket.begin_s % grain_s, step = steps.get(begin_s) || new Map();
    steps.set(begin_s, step);
    for (const [domain, rule, count] of bucket.denials || []) addTo(step, `${domain} ${rule}`.trim(), count / grain_s);
  }
  const most = (told.most || 150) * (told.grain_s || 2) / grain_s;
  return {grain_s, most, buckets: [...steps].slice(0, -1).map(([begin_s, denied]) => ({begin_s, denied}))};
}

function addTo(sums, name, count) {
  sums.set(name, (sums.get(name) || 0) + count);
}

function denialsByRule(told) {
  const sums = new Map(), wanted = shown();
  for (const {denied} of told.buckets) for (const [name, rate] of denied) addTo(sums, name, rate);
  const found = [...sums.keys()].filter(name => name.toLowerCase().includes(wanted)).sort((one, other) => sums.get(other) - sums.get(one));
  const rules = found.filter(name => name !== OTHERS), named = rules.slice(0, MOST_NAMES), rest = new Set(found.filter(name => !named.includes(name)));
  const restOf = denied => [...denied].reduce((sum, [name, rate]) => sum + (rest.has(name) ? rate : 0), 0);
  const values = told.buckets.map(({denied}) => [...named.map(name => denied.get(name) || 0), ...(rest.size ? [restOf(denied)] : [])]);
  draw("denied", told, rest.size ? [...named, OTHERS] : named, values);
  find("#denied .note").textContent = found.length ? "" : told.buckets.length ? "Nothing was denied." : "The first step of 20 s is under way.";
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
