// One limit key: what `headgate key get` says, and what an operator may do to it. Its address, #key=…&domain=…, can be sent
// to a colleague. Whoever looks or acts shows an operator's token, which is kept until the tab is closed.

function entries(text) {
  // `key=value,key=value`, with a backslash before a comma, = or backslash that stands for itself, as `headgate explain` has it.
  return (text.match(/(?:\\[,=\\]|[^,])+/g) || []).map(pair => {
    const [, key, value] = /^((?:\\[,=\\]|[^=])*)=(.*)$/s.exec(pair) || [null, pair, ""];
    return [key, value].map(part => part.replace(/\\([,=\\])/g, "$1"));
  });
}


const descriptor = pairs => pairs.map(pair => pair.map(part => part.replace(/[\\,=]/g, "\\$&")).join("=")).join(",");
const keyAddress = (domain, pairs) => `#${new URLSearchParams({key: descriptor(pairs), domain})}`;

function keyAsked() {
  const given = new URLSearchParams(location.hash.slice(1)), text = given.get("key"), domain = given.get("domain");
  if (!text || !domain) return null;
  const pairs = entries(text);
  if (!pairs.length) return null;
  return {domain, pairs, text, name: `${text} of domain ${domain}`, message: {domain, entries: pairs.map(([key, value]) => ({key, value}))}};
}

async function operate(method, body) {
  // Nothing is asked before there is a token: most readers are no operators.
  const token = sessionStorage.getItem("operator");
  find("#operator").hidden = Boolean(token);
  if (!token) throw new Error("An operator's token is needed to look at a key.");
  const headers = {"Content-Type": "application/json", Authorization: `Bearer ${token}`};
  const answer = await fetch(`headgate.v1.${method}`, {method: "POST", cache: "no-store", headers, body: JSON.stringify(body)});
  const told = await answer.json();
  if (answer.status === 401) {
    sessionStorage.removeItem("operator");
    find("#operator").hidden = false;
  }
  if (!answer.ok) throw new Error(told.error);
  return told;
}

const SPANS = [[86_400_000 * 365, "year"], [86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1_000, "second"]];

function span(ms) {
  const [unit_ms, unit] = SPANS.find(([one]) => ms >= one && ms % one === 0) || [1, "ms"];
  return ms === unit_ms ? unit : `${ms / unit_ms} ${unit}s`;
}

function lasts(ms) {
  const [unit_ms, unit] = [[86_400_000, "days"], [3_600_000, "hours"], [60_000, "minutes"]].find(([one]) => ms >= 2 * one) || [1_000, "s"];
  return `${(ms / unit_ms).toFixed(1)} ${unit}`;
}

function limitText(limit) {
  const more = [limit.algorithm.replace("_", " "), `scope ${limit.scope}`, limit.burst && `a burst of ${limit.burst}`].filter(Boolean);
  return `${limit.requests_per_unit} per ${span(limit.window_ms)} (${more.join(", ")})`;
}

function facts(state) {
  const {override, node, region} = state;
  return [
    ["rule", state.rule],
    ["limit", limitText(state.limit)],
    ["used", `${state.used} of ${state.limit.burst || state.limit.requests_per_unit}, ${state.remaining} left` + (state.frees_in_ms ? `; the next fits in ${lasts(state.frees_in_ms)}` : "")],
    override && ["override", `by ${override.who} until ${time(override.until_ms)}: ${override.why}; the rule says ${limitText(state.rule_limit)}`],
    state.blocked && ["blocked", state.blocked],
    [`on node ${node.node}`, node.known ? `${node.current?.own ?? 0} here, ${node.current?.others ?? 0} on others, ${node.current?.foreign ?? 0} in other regions; may admit ${node.grant} by itself` : "not met lately"],
    region && region.hidden && ["not shown", `${region.hidden} more`],
    state.region_error && ["origin", state.region_error],
  ].filter(Boolean);
}

function showState(state) {
  find("#key dl").replaceChildren(...facts(state).flatMap(([name, text]) => [make("dt", name), make("dd", text, name === "blocked" || name === "origin" ? "bad" : "")]));
  const {runs = [], regions: others = []} = state.region || {};
  fill("key", [...runs.map(run => [run.run, number(run.current), number(run.previous), number(run.grant)]),
    ...others.map(other => [`region ${other.region}`, number(other.current), number(other.previous), ""])], state.region ? "" : "The origin has no count of this key.");
}

let turns = 0;

async function lookAtKey() {
  // What was asked for before something was changed, and is told after it, is not shown.
  const asked = keyAsked(), turn = turns += 1;
  find("#key").hidden = !asked;
  if (!asked) return;
  find("#key h2").textContent = `Key ${asked.name}`;
  try {
    const state = await operate("Keys/Get", {key: asked.message});
    if (turn !== turns) return;
    showState(state);
    say("#key .error", "");
    find("#act").hidden = false;
  } catch (error) {
    if (turn !== turns) return;
    find("#act").hidden = true;
    find("#key dl").replaceChildren();
    find("#key tbody").replaceChildren();
    say("#key .error", error.message);
  }
}

const say = (selector, text) => { find(selector).textContent = text; };

function duration_ms(text) {
  const parts = [...text.trim().matchAll(/(\d+)([smhd])/g)], units = {s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000};
  if (!parts.length || parts.map(([part]) => part).join("") !== text.trim()) throw new Error(`“${text}”: how long is 90s, 30m, 2h or 1d12h`);
  return parts.reduce((sum, [, count, unit]) => sum + count * units[unit], 0);
}

function reached({reach}) {
  return reach.stored ? `on every node of region ${reach.region} within a second` : `on node ${reach.node} alone, because the origin does not answer (${reach.reason}); it is told when it does`;
}

// Each: what is asked before, the method and its message, and what is said after.
const ACTIONS = {
  reset: ({asked, why}) => ({question: `Forget all that was counted on ${asked.name}?`, method: "Keys/Reset", body: {key: asked.message, why},
    done: () => `${asked.name} was reset: its limit is whole again, on every node within about a second.`}),
  override: ({asked, why, given}) => ({question: `Give ${asked.name} the limit ${given.get("limit")} for ${given.get("for")}?`, method: "Keys/SetOverride",
    body: {key: asked.message, why, limit: Number(given.get("limit")), for_ms: duration_ms(given.get("for"))},
    done: told => `${asked.name} has the limit ${told.limit} until ${time(told.until_ms)} UTC.`}),
  end: ({asked, why}) => ({question: `Let the rule's own limit hold for ${asked.name} again?`, method: "Keys/RemoveOverride", body: {key: asked.message, why},
    done: told => told.removed ? `The rule's own limit holds for ${asked.name}.` : `${asked.name} had no override.`}),
  block: ({asked, why, given, entry, caller}) => ({question: `Deny every request of domain ${asked.domain} that has ${caller}, for ${given.get("for")}?`, method: "Blocks/Set",
    body: {domain: asked.domain, entry, why, for_ms: duration_ms(given.get("for"))},
    done: told => `${caller} of domain ${asked.domain} is blocked until ${time(told.block.until_ms)} UTC, ${reached(told)}.`}),
  unblock: ({asked, why, entry, caller}) => ({question: `Let the rules decide again for ${caller} of domain ${asked.domain}?`, method: "Blocks/Remove", body: {domain: asked.domain, entry, why},
    done: told => told.removed ? `${caller} of domain ${asked.domain} is no longer blocked, ${reached(told)}.` : `${caller} of domain ${asked.domain} was not blocked.`}),
};

function confirmed(question) {
  const dialog = find("#confirm");
  say("#confirm p", question);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise(done => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), {once: true}));
}

async function act(form) {
  const given = new FormData(form), asked = keyAsked(), [key, value] = asked.pairs[Number(given.get("entry") || 0)];
  try {
    const {question, method, body, done} = ACTIONS[given.get("what")]({asked, given, why: given.get("why"), entry: {key, value}, caller: `${key}=${value}`});
    if (!await confirmed(question)) return say("#key .done", "Nothing was changed.");
    const told = await operate(method, body);
    await lookAtKey();
    say("#key .done", done(told));
  } catch (error) {
    say("#key .done", `Not done: ${error.message}`);
  }
}

function chooseAction() {
  const form = find("#act"), what = new FormData(form).get("what");
  for (const field of form.querySelectorAll("[data-for]")) {
    field.hidden = !field.dataset.for.split(" ").includes(what);
    for (const input of field.querySelectorAll("input, select")) input.disabled = field.hidden;
  }
}

function openKey() {
  const asked = keyAsked();
  say("#key .done", "");
  find("#act").hidden = true;
  if (asked) find("#act [name=entry]").replaceChildren(...asked.pairs.map((pair, place) => Object.assign(make("option", pair.join("=")), {value: place})));
  const opened = lookAtKey();
  if (asked) { find("#key h2").scrollIntoView({block: "nearest"}); find("#key h2").focus({preventScroll: true}); }
  return opened;
}

find("#operator").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem("operator", new FormData(event.target).get("token"));
  event.target.reset();
  lookAtKey();
});
find("#act").addEventListener("submit", event => { event.preventDefault(); act(event.target); });
find("#act").addEventListener("input", chooseAction);
for (const choice of document.querySelectorAll("#confirm button")) choice.addEventListener("click", () => find("#confirm").close(choice.value));
addEventListener("hashchange", openKey);
chooseAction();
openKey();
