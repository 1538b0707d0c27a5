// Pieces of the page. Everything from a share becomes text of a node, and is never read as HTML.

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

// Text with its invisible characters shown, because they could make it look like a different text.
export function shown(text) {
  return String(text).replace(UNSEEN, (one) => ESCAPES[one] || `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// The same for text of several lines.
export function shownLines(text) {
  return String(text).replace(/\r\n/g, "\n").replace(UNSEEN, (one) => (one === "\n" || one === "\t" ? one : shown(one)));
}

const LONGEST = 255; // characters, as most systems allow in a name

// A name that never fills the page: a long one without its middle.
export function brief(name) {
  const letters = [...shown(name)];
  return letters.length <= LONGEST ? letters.join("") : `${letters.slice(0, 200).join("")} … ${letters.slice(-20).join("")}`;
}

// The beginning of a text, shown where the mouse rests.
export function hint(text) {
  return shown(String(text).slice(0, 1000));
}

// The address of something that is shared: its kind, its full name, and a place in it.
export function address(kind, path, ...more) {
  const parts = [...path, ...more];
  while (parts.at(-1) === "") parts.pop();
  return `#${[kind, ...parts].map(encodeURIComponent).join("/")}`;
}

// Whether a click opens a link in another tab or window.
export function isElsewhere(event) {
  return event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
}

// A link to an address of this page, where a click calls `onOpen` in place of showing all anew.
export function link(to, onOpen, ...inside) {
  return el("a", { class: "link", href: to, onclick: (event) => {
    if (isElsewhere(event)) return;
    event.preventDefault();
    if (location.hash !== to) history.pushState(null, "", to);
    onOpen();
  } }, ...inside);
}

// A node, with attributes (strings, and listeners as "on...") and content (nodes and strings).
export function el(tag, attributes = {}, ...inside) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...inside.flat(Infinity).filter((one) => one !== null && one !== undefined));
  return node;
}

export function number(value) {
  return Number(value).toLocaleString("en-US");
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "unknown size";
  let value = bytes;
  for (const unit of ["bytes", "kB", "MB", "GB"]) {
    if (value < 1000) return unit === "bytes" ? `${number(value)} ${value === 1 ? "byte" : "bytes"}` : `${value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} TB`;
}

export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

export function moment(text) {
  return text ? `${text.replace("T", " ").replace(/(\.\d+)?Z$/, "")} UTC` : "";
}

// A point in time that may take two lines, under a title that says UTC.
export function when(text) {
  const [date, time] = moment(text).split(" ");
  return text ? [el("span", { class: "part" }, date), " ", el("span", { class: "part" }, time)] : [];
}

export function tell(text) {
  document.getElementById("told").textContent = text;
}

export function problem(error, again = null) {
  const node = el("div", { class: "problem", role: "alert" });
  if (error.span && error.typed !== undefined) {
    const [start, stop] = error.span;
    const marked = el("mark", {}, shown(error.typed.slice(start, stop)) || " ");
    node.append(el("p", { class: "where" }, shown(error.typed.slice(0, start)), marked, shown(error.typed.slice(stop))));
  }
  node.append(el("span", { class: "reason" }, shownLines(error.message)));
  if (again) node.append(el("button", { type: "button", onclick: again }, "Try again"));
  return node;
}

// What a provider says about something: a long text scrolls, also by keys.
export function comment(text) {
  return text ? el("p", { class: "comment", tabindex: text.length > 200 || text.includes("\n") ? "0" : null }, shownLines(text)) : null;
}

export function notes(list) {
  return (list || []).map((text) => el("p", { class: "note" }, shownLines(text)));
}

// Runs `work(signal, say)`, which reports by `say` what it is doing. `place` shows this with a button that stops the work; then the resulting node, or the error.
// Starting work in a place stops earlier work in the same place.
const running = new WeakMap();
const places = new Map(); // the places with running work, and whether each has been on the page

// Stops the work of places that are no longer on the page.
export function sweep() {
  for (const [place, wasThere] of places) {
    if (place.isConnected) places.set(place, true);
    else if (wasThere) running.get(place)?.abort();
  }
}

export async function fill(place, doing, work) {
  running.get(place)?.abort();
  const control = new AbortController();
  running.set(place, control);
  places.set(place, place.isConnected);
  requestAnimationFrame(sweep);
  const seconds = el("span");
  const label = el("span", { class: "dots" });
  const say = (text) => { label.textContent = `${text} … `; };
  say(doing);
  const line = el("p", { class: "waiting", role: "status" }, label, seconds);
  const began = Date.now();
  const clock = setInterval(() => {
    const passed = Math.round((Date.now() - began) / 1000);
    if (passed < 2) return;
    if (!line.querySelector("button")) {
      line.append(el("button", { type: "button", onclick: () => control.abort() }, "Stop"));
    }
    seconds.textContent = passed < 10 ? `${passed} s` : `${passed} s: the server takes long to respond.`;
  }, 500);
  place.replaceChildren(line);
  sweep();
  place.setAttribute("aria-busy", "true");
  try {
    const made = await work(control.signal, say);
    if (running.get(place) === control) place.replaceChildren(...[made].flat(Infinity).filter(Boolean));
  } catch (error) {
    if (running.get(place) !== control) return;
    const again = () => fill(place, doing, work);
    if (control.signal.aborted) {
      place.replaceChildren(el("p", { class: "waiting" }, "Stopped. ", el("button", { type: "button", onclick: again }, "Try again")));
    } else {
      place.replaceChildren(problem(error, again));
    }
  } finally {
    clearInterval(clock);
    if (running.get(place) === control) {
      place.removeAttribute("aria-busy");
      places.delete(place);
    }
  }
}

export function stop(place) {
  running.get(place)?.abort();
  running.delete(place);
}

// Tabs by name: the content of each is created when it is opened. Arrows move between them.
export function tabs(label, list, opened, onOpen) {
  const body = el("div", { role: "tabpanel", tabindex: "0" });
  const bar = el("div", { role: "tablist", "aria-label": label });
  const buttons = list.map(([name, make]) =>
    el("button", { role: "tab", type: "button", "data-tab": name, onclick: () => open(name, make) }, name)
  );
  function open(name, make) {
    for (const one of buttons) {
      const is = one.dataset.tab === name;
      one.setAttribute("aria-selected", String(is));
      one.tabIndex = is ? 0 : -1;
    }
    body.setAttribute("aria-label", name);
    body.replaceChildren();
    sweep();
    onOpen(name);
    body.append(...[make()].flat(Infinity).filter(Boolean));
  }
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
    event.preventDefault();
  });
  bar.append(...buttons);
  const first = list.find(([name]) => name === opened) || list[0];
  open(...first);
  return [bar, body];
}

const NO_CONDITION = /^(struct|array|map|binary|variant|geo|time$)/;
const IS_CUT = / … \([\d,]+ characters\)$/;

// A table of rows from the server, whose values are strings or null. With `onSort(column)`, titles sort the rows; with
// `onCell(column, text, negate)`, a cell offers to filter by its value.
export function grid(found, { label = "Rows", sort = {}, onSort = null, onCell = null } = {}) {
  if (!found.columns.length) return el("p", { class: "soft" }, "There are no columns.");
  const titles = found.columns.map((one, at) => {
    const isSorted = sort.sort === at;
    const name = el("bdi", {}, brief(one.name) || "(no name)");
    const arrow = isSorted ? el("span", { class: "order", "aria-hidden": "true" }, sort.descending ? " ▼" : " ▲") : null;
    const title = onSort && !/^(struct|array|map|variant)/.test(one.type) ? el("button", { type: "button", class: "title", "data-sort": at, onclick: () => onSort(at) }, name, arrow) : name;
    return el("th", { scope: "col", title: hint(one.name), "aria-sort": isSorted ? (sort.descending ? "descending" : "ascending") : null }, title, el("span", { class: "type", title: hint(one.type) }, brief(one.type)));
  });
  const body = el("tbody", {}, found.rows.map((row) => el("tr", {}, row.map((text, place) => {
    if (text === null) return el("td", { class: "null" }, "null");
    return el("td", { class: found.columns[place].isNumber ? "number" : "", title: text.length > 40 ? hint(text) : null }, el("bdi", {}, shown(text)));
  }))));
  const table = el("table", { class: "rows" }, el("thead", {}, el("tr", {}, titles)), body);
  const offered = el("div", { class: "offered", role: "status" });
  const open = (cell) => {
    const at = cell.cellIndex;
    const text = found.rows[cell.parentElement.sectionRowIndex][at];
    offered.replaceChildren();
    if (!onCell || NO_CONDITION.test(found.columns[at].type) || IS_CUT.test(text || "")) return;
    const by = (words, negate) => el("button", { type: "button", onclick: () => onCell(at, text, negate).catch((error) => offered.replaceChildren(problem(error))) }, words);
    const value = text === null ? "null" : text === "" ? "an empty text" : shown(text.length > 60 ? `${text.slice(0, 60)} …` : text);
    offered.append(el("bdi", {}, brief(found.columns[at].name)), " is ", el("bdi", { class: "mono" }, value), ": ", by("Only these rows", false), " ", by("Without these rows", true));
  };
  // A long value unfolds on a click.
  body.addEventListener("click", (event) => {
    const cell = event.target.closest("td");
    if (!cell) return;
    cell.classList.toggle("whole");
    move(cell, false);
    open(cell);
  });
  // One cell is in the order of the tab key; arrows move between cells, and Enter opens one.
  let here = body.querySelector("td");
  const move = (cell, isFocused = true) => {
    if (here) here.tabIndex = -1;
    here = cell;
    here.tabIndex = 0;
    if (isFocused) here.focus();
  };
  if (here) here.tabIndex = 0;
  body.addEventListener("keydown", (event) => {
    const cell = event.target.closest("td");
    if (!cell) return;
    if (event.key === "Enter") {
      cell.classList.toggle("whole");
      open(cell);
      offered.querySelector("button")?.focus();
    }
    const row = cell.parentElement;
    const next = {
      ArrowRight: cell.nextElementSibling, ArrowLeft: cell.previousElementSibling,
      ArrowDown: row.nextElementSibling?.cells[cell.cellIndex], ArrowUp: row.previousElementSibling?.cells[cell.cellIndex],
    }[event.key];
    if (next) move(next);
    if (next || event.key === "Enter") event.preventDefault();
  });
  const told = [];
  if (found.rows.some((row) => row.some((text) => text !== null && text.length > 50))) {
    const whole = el("button", { type: "button", "aria-pressed": "false", onclick: () => whole.setAttribute("aria-pressed", String(table.classList.toggle("wide-values"))) }, "Show long values whole");
    told.push(el("p", {}, whole));
  }
  if (!found.rows.length) told.push(el("p", { class: "soft" }, "No rows."));
  if (found.cut) told.push(el("p", { class: "soft" }, `${count(found.cut, "long value is", "long values are")} cut; a download has them whole.`));
  return [...told, onCell ? offered : null, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table)].filter(Boolean);
}

export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "" || value.length === 0) continue;
    list.append(el("dt", {}, brief(name)), el("dd", {}, value instanceof Node ? value : el("bdi", {}, shownLines(plain(value)))));
  }
  return list;
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(", ");
  if (value !== null && typeof value === "object") return Object.entries(value).map(([name, one]) => `${name}: ${plain(one)}`).join(", ");
  return String(value);
}
