// The page: asks this listener every two seconds, keeps nothing but the last answers. Texts from outside only ever become
// text nodes. Nothing is changed but by an operator, in a key's own view (key.js).

const EVERY_MS = 2000;

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
  return answer.json();
}

async function look() {
  const grain = new FormData(find("#narrow")).get("grain");
  const [told, peers, decided, inForce] = await Promise.all([
    ask(`nodes?grain_s=${grain}`, {}), ask("regions", {}), ask("decisions", {}), ask("rules?limit=0", {}), lookAtKey()]);
  head(told, peers, inForce);
  nodes(told);
  trend(told.trend || {});
  rules(told, inForce);
  underWay(inForce);
  shards(told);
  regions(peers);
  hottest(told.top || {});
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
