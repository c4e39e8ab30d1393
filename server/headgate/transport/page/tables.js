// Tables: cells, rows that are narrowed to what is searched for, and numbers for people.

const MOST_ROWS = 20;
const find = selector => document.querySelector(selector);
const digits = number => number >= 100 ? Math.round(number).toLocaleString("en") : number >= 1 ? number.toFixed(1) : number ? number.toPrecision(2) : "0";
const milliseconds = seconds => Number.isFinite(seconds) ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 2 : 0)} ms` : "";
const waiting = seconds => seconds < 100 ? `${seconds.toFixed(1)} s` : seconds < 6000 ? `${Math.ceil(seconds / 60)} min` : seconds < 172800 ? `${Math.ceil(seconds / 3600)} h` : `${Math.ceil(seconds / 86400)} days`;
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
  const {text, kind, act, label, part, href} = typeof cell === "number" ? {text: digits(cell), kind: "number"} : typeof cell === "object" && cell !== null ? cell : {text: cell};
  const data = make("td", undefined, kind);
  data.dataset.name = name;
  if (part !== undefined) data.append(meter(part));
  if ((text ?? "") !== "") data.append(href ? link(text, href) : text);
  if (act) data.append(button(label, act));
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

function link(text, href) {
  const made = make("a", text);
  made.href = href;
  return made;
}

const number = text => ({text, kind: "number"});
const short = text => ({text, kind: "short"});
const words = text => ({text, kind: "words"});
const time = unix_ms => new Date(unix_ms).toISOString().slice(0, 19).replace("T", " ");
