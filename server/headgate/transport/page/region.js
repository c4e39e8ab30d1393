// The region: its nodes, and what goes on on all of them together, as /nodes tells it; regions, and this node's denials.

const answers = told => (told.nodes || []).filter(node => node.answers);
const counted = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;
const agoText = age_ms => `${(age_ms / 1000).toFixed(0)} s ago`;

function nodeState(node, told) {
  if (node.unreadable) return {text: "says what this node can't read", kind: "bad"};
  if (!node.answers) return {text: `${told.error ? "" : "no answer, "}last heard ${agoText(node.age_ms)}`, kind: told.error ? "words" : "bad"};
  const open = node.shards.filter(shard => shard.breaker !== "closed").length;
  if (open) return {text: `${node.state}, ${open} of ${node.shards.length} shards not asked`, kind: "bad"};
  return {text: node.state, kind: node.state === "serving" ? "good" : "bad"};
}

function nodeRules(node) {
  const {digest, differ, in_sync, refused_domains} = node.rules;
  const notes = [differ && "not what most nodes have", !in_sync && "not the feed's", refused_domains && `${counted(refused_domains, "domain")} refused`].filter(Boolean);
  return {text: [digest.slice(0, 12), ...notes].join(", "), kind: notes.length ? "bad" : "words"};
}

function nodes(told) {
  const rows = (told.nodes || []).map(node => [node.node + (node.node === told.node ? " (asked)" : ""), nodeState(node, told),
    ...(node.unreadable ? [] : [node.version, words(time(node.started_ms)), nodeRules(node), words(time(node.rules.loaded_ms))])]);
  fill("nodes", rows, "nothing is known of any node");
  const all = (told.nodes || []).length, summed = told.summed || [];
  find("#sums").textContent = !all ? "" : `Figures are those of ${summed.length === all ? (all === 1 ? "the one node" : `all ${all} nodes`) : `${summed.length} of ${all} nodes, ${summed.join(", ") || "none"}`} of region ${told.region}.`;
}

function rules(told, inForce) {
  const refused = (inForce.refused || []).length;
  find("#rules .about").textContent = inForce.version ? `version ${inForce.version} in force since ${time(Date.parse(inForce.loaded_at))} (UTC), ${counted(inForce.total, "rule")} of ${counted(inForce.domains, "domain")}` + (refused ? `; ${counted(refused, "domain")} refused` : "") : "";
  fill("rules", (told.rules || []).map(rule => [rule.domain, rule.rule + (rule.value ? ` (${rule.value})` : ""),
    rule.within_limit, rule.over_limit, rule.shadow_over_limit, rule.near_limit]), "no rule is being asked for");
}

function shards(told) {
  fill("shards", (told.shards || []).map(shard => [String(shard.shard),
    {text: shard.breaker + (shard.not_closed_on.length ? `, on ${shard.not_closed_on.join(", ")}` : ""), kind: shard.breaker === "closed" ? "good" : "bad"},
    shard.calls, number(shard.mean_s === null ? "" : milliseconds(shard.mean_s)), shard.failures, shard.error]),
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
    for (const [name, key] of keys) rows.push([rule, name, key]);
  }
  rows.sort(([, , one], [, , other]) => (other.denied || 0) - (one.denied || 0) || (other.admitted || 0) - (one.admitted || 0));
  fill("hottest", rows.map(([rule, name, key]) => [
    key.hashed ? name : {text: name, href: keyAddress(rule.domain, Object.entries(key.values))}, rule.text || rule.rule, number(key.denied ?? ""), number(key.admitted ?? ""),
    key.remaining === undefined ? "" : {text: `${key.remaining} of ${key.limit} left` + (key.over_by ? `, ${key.over_by} over` : ""), kind: key.over_by ? "bad" : "words", part: key.limit ? key.admitted / key.limit : 1}]), "nothing has been asked for yet");
}

function denials(told) {
  // One row for a key that was denied again and again: its last denial, and how many of those that are told were its.
  const keys = new Map();
  for (const one of told.decisions || []) {
    const name = JSON.stringify([one.domain, one.rule, one.key]);
    if (keys.has(name)) keys.get(name).times += 1;
    else keys.set(name, {...one, times: 1});
  }
  const rows = [...keys.values()].map(one => [short(new Date(one.time_ms).toISOString().slice(11, 19)), one.domain, one.rule,
    one.entries.length ? {text: one.key, href: keyAddress(one.domain, one.entries)} : one.key,
    number(one.times), number(`${one.counted} of ${one.limit}`), {text: one.reason, kind: "words why"}, short(one.path), number(waiting(one.retry_ms / 1000)),
    {label: "explain", act: () => explain({id: one.id})}]);
  fill("denials", rows, told.logged === false ? "This node keeps no decision log: give it a data_dir." : "Nothing was denied in the last five minutes.");
}

const reasonOf = told => told?.problems?.[0] || "see /rules";

function troublesOf(told, peers, inForce) {
  const all = told.nodes || [], silent = all.filter(node => !node.answers), own = all.find(node => node.node === told.node);
  const seen = told.shards || [], open = seen.filter(shard => shard.not_closed_on.length), refused = inForce.refused || [];
  const everywhere = open.every(shard => shard.not_closed_on.length === answers(told).length);
  const none = open.length === seen.length && everywhere, whose = none ? "all" : open.length === 1 ? "its" : "their";
  const which = none ? "no shard is asked" : open.map(shard => `shard ${shard.shard} is not asked` + (everywhere ? "" : ` by ${shard.not_closed_on.join(", ")}`)).join(", ");
  const differ = answers(told).filter(node => node.rules.differ), away = (peers.peers || []).filter(peer => peer.connected === false);
  const unheard = (told.live_nodes || 0) - all.length;
  return [
    own && own.state !== "serving" && `not serving: ${own.state}`,
    told.error && told.live_nodes > 1 && `the origin does not say how the other nodes are (${told.error}): they are shown as last heard, and the figures lack what is decided there`,
    !told.error && silent.length && `no answer from node ${silent.map(node => node.node).join(", ")}: the figures lack what is decided there`,
    unheard > 0 && `${unheard} more ${unheard > 1 ? "nodes live" : "node lives"} in the region and ${unheard > 1 ? "say" : "says"} nothing: started just now, or of a version before this page`,
    open.length && `${which}: ${whose} keys are decided by on_error`,
    differ.length && `node ${differ.map(node => node.node).join(", ")} has other rules than most`,
    away.length && `not connected to region ${away.map(peer => peer.region).join(", ")}`,
    inForce.in_sync === false && (refused.length ? `rules of ${refused.map(one => one.domain).join(", ")} are refused, and those from before are in force: ${reasonOf(refused[0])}` : `the rules in force are not the feed's: ${reasonOf(inForce.last_error)}`),
  ].filter(Boolean);
}

function head(told, peers, inForce) {
  const all = told.nodes || [], own = all.find(node => node.node === told.node), troubles = troublesOf(told, peers, inForce);
  find("#who").textContent = own ? `${own.version}, region ${told.region}, node ${own.node}` : "";
  find("#state").textContent = !own ? "loading" : own.state !== "serving" ? own.state : troubles.length ? "serving, with trouble" : "serving";
  find("#state").className = troubles.length || !own ? "bad" : "good";
  find("#trouble").hidden = !troubles.length;
  find("#trouble").replaceChildren(...troubles.map(text => make("li", text)));
  const seen = told.shards || [], peersTold = peers.peers || [];
  const counts = [
    ["nodes answer", answers(told).length, all.length],
    ["shards asked", seen.filter(shard => !shard.not_closed_on.length).length, seen.length],
    ["regions connected", peersTold.filter(peer => peer.connected !== false).length, peersTold.length],
  ].filter(([, , of]) => of);
  find("#health").replaceChildren(...counts.map(([name, well, of]) => {
    const item = make("li", `${name} `, well === of ? "good" : "bad");
    item.append(make("b", `${well} of ${of}`));
    return item;
  }));
}
