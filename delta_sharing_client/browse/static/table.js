// One table: columns, rows, history, downloads, code.

import { ask } from "./ask.js";
import { download } from "./downloads.js";
import { brief, comment, count, el, facts, fill, grid, hint, notes, number, problem, shown, shownLines, size, tabs, tell, when } from "./parts.js";

export const FORMATS = [["csv", "CSV"], ["parquet", "Parquet"], ["arrow", "Arrow"], ["xlsx", "Excel"]];
const MOST_BOXES = 3000;

export function showTable(place, path, tab, onTab) {
  fill(place, "Describing the table", async (signal) => {
    const told = await ask("table", { name: path }, signal);
    const choice = new Choice(path, told.columns, told.fields);
    const names = [
      ["Rows", () => rowsTab(choice)],
      ["Columns", () => columnsTab(told, choice)],
      ["History", () => historyTab(path)],
      ["Download", () => downloadTab(choice)],
      ["Code", () => codeTab(choice)],
    ];
    return [...heading(path, told), ...tabs("About the table", names, tab, onTab)];
  });
}

function heading(path, told) {
  const { facts: about, columnsInAll } = told;
  const rows = el("span");
  const line = el("p", { class: "soft" }, rows, [
    count(columnsInAll, "column"),
    about.sizeInBytes === null ? null : `${size(about.sizeInBytes)}${about.numFiles === null ? "" : ` in ${count(about.numFiles, "file")}`}`,
    `version ${about.version}`,
    about.partitionColumns.length ? `partitioned by ${about.partitionColumns.map(brief).join(", ")}` : null,
  ].filter(Boolean).join(" · "));
  const countRows = async () => {
    rows.textContent = "counting rows … · ";
    try {
      const { rows: found } = await ask("rows", { name: path });
      rows.textContent = found === null ? "number of rows not stated · " : `${count(found, "row")} · `;
    } catch (error) {
      rows.textContent = "rows not counted · ";
      rows.title = shown(error.message);
    }
  };
  if (told.countsRows) countRows();
  else rows.append(el("button", { type: "button", class: "link", onclick: countRows }, "count the rows"), " · ");
  return [
    el("h2", {}, el("bdi", { title: hint(path[2]) }, brief(path[2])), " ", el("span", { class: "tag" }, about.tableFormat === "iceberg" ? "Iceberg table" : "table")),
    el("p", { class: "soft" }, el("bdi", {}, path.map(brief).join("."))),
    comment(about.description),
    line,
  ].filter(Boolean);
}

// === Columns ===

function columnsTab(told, choice) {
  const { facts: about, columns, columnsInAll } = told;
  const partitions = new Set(about.partitionColumns);
  const place = el("section", { class: "facts-of-column", "aria-live": "polite" });
  const body = el("tbody");
  const draw = (words) => {
    const found = columns.filter((one) => !words || `${one.column}\n${one.comment || ""}`.toLowerCase().includes(words));
    body.replaceChildren(...found.slice(0, MOST_BOXES).map((one) =>
      el("tr", {},
        el("td", { class: "name" }, el("bdi", { title: hint(one.column) }, brief(one.column)), partitions.has(one.column) ? [" ", el("span", { class: "tag" }, "partition")] : null),
        el("td", { class: "type", title: hint(one.type) }, brief(one.type)),
        el("td", { class: "still" }, one.nullable === null ? "" : one.nullable ? "yes" : "never"),
        el("td", { class: "told" }, comment(one.comment)),
        el("td", { class: "act" }, one.nullable === null ? null : el("button", { type: "button", "aria-label": `Statistics of ${brief(one.column)}`, onclick: () => statistics(place, choice, [one.column]) }, "Statistics"))
      )
    ));
    if (!found.length) body.append(el("tr", {}, el("td", { colspan: "5" }, columns.length ? "No column has this text." : "The table has no columns.")));
  };
  const filter = el("input", { type: "search", placeholder: "Filter columns", "aria-label": "Filter columns", oninput: (event) => draw(event.target.value.trim().toLowerCase()) });
  draw("");
  const properties = Object.entries(about.configuration);
  return [
    columns.length > 10 ? el("p", {}, filter) : null,
    columnsInAll > columns.length ? el("p", { class: "note" }, `The first ${number(columns.length)} of ${number(columnsInAll)} columns are listed.`) : null,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Columns" },
      el("table", { class: "wide" }, el("thead", {}, el("tr", {}, ["Column", "Type", "Null?", "Comment"].map((text) => el("th", { scope: "col" }, text)), el("td", { class: "act" }))), body)),
    place,
    el("h3", {}, "Properties"),
    facts([
      ["Table format", about.formats.join(", ")],
      ["Reader version", about.minReaderVersion],
      ["Reader features", about.readerFeatures],
      ["Id", about.id],
      ...properties,
    ]),
  ];
}

// Facts about one column for the rows of the chosen filter: first what the log states, then, after a click, its values.
function statistics(place, choice, path) {
  const result = el("div");
  const title = el("h3", { tabindex: "-1" }, "Statistics of ", el("bdi", {}, path.map(brief).join(" › ")));
  place.replaceChildren(title, choice.filter.trim() ? el("p", { class: "soft" }, `Of the rows for which ${shown(choice.filter.trim())}.`) : "", result);
  place.scrollIntoView({ block: "nearest" });
  title.focus();
  fill(result, "Asking the log", async (signal) => {
    const planned = await ask("column", { ...choice.values(), column: [path] }, signal);
    const values = el("div");
    const cost = `about ${size(planned.bytes)} from ${count(planned.files, "file")}`;
    const read = () => fill(values, `Downloading ${cost}`, async (inner) => shownFacts(await ask("values", { plan: planned.plan }, inner)));
    values.append(el("p", {}, el("button", { type: "button", class: planned.asks ? "" : "main", onclick: read }, `Read the values (${cost})`)));
    const { stated } = planned;
    const isStated = stated && Object.values(stated).some((value) => value !== null);
    return [
      isStated ? facts([
        ["Rows", stated.rows === null ? null : number(stated.rows)],
        ["Nulls", stated.nulls === null ? null : number(stated.nulls)],
        ["At least", stated.lower],
        ["At most", stated.upper],
      ]) : el("p", { class: "soft" }, stated ? "The log states nothing about this column." : "The log states nothing about filtered rows."),
      isStated ? el("p", { class: "soft" }, "Stated by the log; nothing was downloaded.") : null,
      values,
    ];
  });
}

function shownFacts(found) {
  const most = Math.max(...(found.bars || []).map(([, share]) => share), ...found.values.map(([, times]) => times));
  const bar = (share) => {
    const node = el("div", { class: "bar" });
    node.style.width = `${(100 * share) / most}%`;
    return el("div", { class: "track" }, node);
  };
  const rows = (list, titles) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": titles[0] },
    el("table", {}, el("thead", {}, el("tr", {}, titles.map((text) => el(text ? "th" : "td", text ? { scope: "col" } : {}, text)))), el("tbody", {}, list)));
  tell("The values are read.");
  return [
    facts([
      ["Rows", number(found.rows)],
      ["Nulls", `${number(found.nulls)}${found.rows ? ` (${((100 * found.nulls) / found.rows).toFixed(1)}%)` : ""}`],
      ["Different values", found.different === null ? null : `${found.isEstimate ? "about " : ""}${number(found.different)}`],
      ["Least", found.least],
      ["Greatest", found.greatest],
    ]),
    found.values.length ? rows(found.values.map(([text, times]) => el("tr", {}, el("td", {}, el("bdi", {}, text === "" ? "(empty text)" : shown(text))), el("td", { class: "amount" }, number(times)), el("td", {}, bar(times)))), ["Most frequent values", "Rows", ""]) : null,
    found.bars ? rows(found.bars.map(([from, share]) => el("tr", {}, el("td", { class: "amount" }, shown(from)), el("td", { class: "amount" }, `${(100 * share).toFixed(1)}%`), el("td", {}, bar(share)))), ["From", "Share", ""]) : null,
  ].filter(Boolean);
}

// === What to read: columns, filter, version. Rows, downloads and code share it. ===

class Choice {
  constructor(path, columns, fields) {
    this.path = path;
    const tops = columns.filter((one) => one.nullable !== null).map((one) => [one.column]);
    this.width = tops.length;
    // Columns and fields of structs, by the text that shows them: a field follows its column.
    const order = new Map(tops.map(([name], at) => [name, at]));
    this.paths = new Map([...tops, ...fields.filter(([name]) => order.has(name))]
      .sort((one, other) => order.get(one[0]) - order.get(other[0]))
      .map((one) => [one.join(" › "), one]));
    this.chosen = new Set();
    this.filter = "";
    this.when = "latest";
    this.version = "";
    this.timestamp = "";
  }

  values() {
    return {
      name: this.path,
      columns: [...this.paths].filter(([shownAs]) => this.chosen.has(shownAs)).map(([, path]) => path),
      filter: this.filter,
      version: this.when === "version" ? this.version : "",
      timestamp: this.when === "timestamp" ? this.timestamp : "",
    };
  }

  // The inputs; `onUse` is called by the button and by Enter.
  form(label, onUse) {
    const input = el("textarea", { rows: "1", spellcheck: "false", placeholder: "such as amount > 100 AND country = 'DE'", "aria-label": "Filter", "data-field": "filter" });
    input.value = this.filter;
    input.addEventListener("input", () => { this.filter = input.value; });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        onUse();
      }
    });
    const typed = el("input", { "aria-label": "Version or time", "data-field": "when" });
    const when = el("select", { "aria-label": "Which version" }, [["latest", "Latest version"], ["version", "Version …"], ["timestamp", "At a time …"]].map(([value, text]) => el("option", { value }, text)));
    when.value = this.when;
    const draw = () => {
      this.when = when.value;
      typed.hidden = this.when === "latest";
      typed.placeholder = this.when === "version" ? "such as 3" : "such as 2026-01-31 10:00";
      typed.value = this.when === "version" ? this.version : this.timestamp;
    };
    when.addEventListener("change", () => { draw(); if (!typed.hidden) typed.focus(); });
    typed.addEventListener("input", () => { this[this.when] = typed.value; });
    typed.addEventListener("keydown", (event) => { if (event.key === "Enter") onUse(); });
    draw();
    return el("div", { class: "choice" },
      this.columnBoxes(),
      el("label", { class: "field" }, el("span", {}, "Only rows for which this is true (SQL)"), input),
      el("div", { class: "line" }, when, typed, label ? el("button", { type: "button", class: "main", onclick: onUse }, label) : null)
    );
  }

  columnBoxes() {
    const title = el("summary");
    const boxes = el("div", { class: "boxes" });
    const retitle = () => {
      const few = [...this.paths.keys()].filter((name) => this.chosen.has(name));
      title.textContent = few.length ? `${count(few.length, "column")} of ${number(this.width)}: ${few.slice(0, 6).map(brief).join(", ")}${few.length > 6 ? " …" : ""}` : this.width === 1 ? "The only column" : `All ${number(this.width)} columns`;
    };
    const draw = (words) => {
      const found = [...this.paths.keys()].filter((name) => !words || name.toLowerCase().includes(words)).slice(0, MOST_BOXES);
      boxes.replaceChildren(...found.map((name) => {
        const box = el("input", { type: "checkbox" });
        box.checked = this.chosen.has(name);
        box.addEventListener("change", () => { box.checked ? this.chosen.add(name) : this.chosen.delete(name); retitle(); });
        return el("label", { title: hint(name) }, box, el("span", {}, el("bdi", {}, brief(name))));
      }));
    };
    retitle();
    const filter = el("input", { type: "search", placeholder: "Filter columns", "aria-label": "Filter columns to choose", oninput: (event) => draw(event.target.value.trim().toLowerCase()) });
    const none = el("button", { type: "button", onclick: () => { this.chosen.clear(); filter.value = ""; draw(""); retitle(); } }, "All columns");
    const details = el("details", { class: "columns" }, title, el("div", {}, el("div", { class: "line" }, filter, none), boxes));
    // There may be two thousand boxes, so they are created only when the list is opened.
    details.addEventListener("toggle", () => { if (details.open && !boxes.children.length) draw(""); });
    return details;
  }
}

// Shows a mistake, and selects it in its input.
function mistake(form, error) {
  if (error.field === "filter") {
    const input = form.querySelector("[data-field=filter]");
    input.setAttribute("aria-invalid", "true");
    if (error.span) {
      input.focus();
      input.setSelectionRange(...error.span);
    }
  } else if (error.field) {
    form.querySelector("[data-field=when]").focus();
  }
}

// === Rows ===

// Requests the cost first, and starts a large download only after a click. `show(found, plan)` makes the nodes of the rows.
async function preview(values, signal, say, show, form = null) {
  let plan;
  try {
    plan = await ask("plan", values, signal);
    form?.querySelector("[data-field=filter]").removeAttribute("aria-invalid");
  } catch (error) {
    if (form && error.field) mistake(form, error);
    throw error;
  }
  const cost = `about ${size(plan.bytes)} from ${count(plan.files, "file")}`;
  const read = async (inner) => {
    const found = await ask("preview", { plan: plan.plan }, inner);
    if (values.changes !== undefined) changesFirst(found);
    const isPart = found.columns.length < (values.columns.length || values.inAll || 0);
    const told = `${rowsTold(found, plan)}${plan.version === null ? "" : ` of version ${plan.version}`}. Planned: ${cost}; downloaded: ${size(found.read)}.`;
    tell(told);
    return [
      el("p", { class: "soft" }, told),
      isPart ? el("p", { class: "note" }, `The table has ${number(values.inAll)} columns; the first ${number(found.columns.length)} are shown. Choose others above.`) : null,
      ...notes(plan.notes),
      ...[show(found, plan)].flat(Infinity),
    ].filter(Boolean);
  };
  if (!plan.asks) {
    say(`Downloading ${cost}`);
    return read(signal);
  }
  const body = el("div");
  const reason = values.sort === undefined ? "These rows download" : "Sorting reads all rows:";
  body.append(el("p", { class: "note" }, `${reason} ${cost}. `, el("button", { type: "button", class: "main", onclick: () => fill(body, `Downloading ${cost}`, read) }, "Read them")));
  return body;
}

function rowsTold(found, plan) {
  if (plan.from) return found.rows.length ? `Rows ${number(plan.from + 1)} to ${number(plan.from + found.rows.length)}` : `No rows after row ${number(plan.from)}`;
  return found.isMore ? `The first ${count(found.rows.length, "row")}` : count(found.rows.length, "row");
}

// The columns that describe a change come before the columns of the row.
function changesFirst(found) {
  const order = found.columns.map((one, at) => at).sort((one, other) => found.columns[other].name.startsWith("_change_type") - found.columns[one].name.startsWith("_change_type"));
  found.columns = order.map((at) => found.columns[at]);
  found.rows = found.rows.map((row) => order.map((at) => row[at]));
}

function rowsTab(choice) {
  const place = el("div", { class: "result" });
  const state = { from: 0, sort: undefined, descending: false, version: null };
  let focused = null;
  const show = () => fill(place, "Planning", (signal, say) => {
    const values = { ...choice.values(), inAll: choice.width, from: state.from, sort: state.sort, descending: state.descending };
    return preview(values, signal, say, (found, plan) => shownRows(found, plan), form);
  }).then(() => { if (focused) place.querySelector(focused)?.focus(); focused = null; });
  const begin = () => {
    Object.assign(state, { from: 0, sort: undefined, descending: false });
    show();
  };
  const shownRows = (found, plan) => {
    const isOther = state.from > 0 && plan.version !== state.version;
    state.version = plan.version;
    const onSort = (at) => {
      const isSame = state.sort === at;
      // A third click brings back the order of the table.
      if (isSame && state.descending) Object.assign(state, { sort: undefined, descending: false });
      else Object.assign(state, { sort: at, descending: isSame });
      state.from = 0;
      focused = `[data-sort="${at}"]`;
      show();
    };
    const onCell = async (at, text, negate) => {
      const { filter } = await ask("condition", { ...choice.values(), column: [[found.columns[at].name]], text: text ?? "", isNull: text === null, negate });
      const input = form.querySelector("[data-field=filter]");
      choice.filter = input.value = filter;
      begin();
      input.focus();
    };
    return [
      isOther ? el("p", { class: "note" }, "The table has changed since the first page; earlier rows may be other ones now.") : null,
      grid(found, { sort: state, onSort, onCell }),
      pager(found, plan),
    ];
  };
  const pager = (found, plan) => {
    const step = found.rows.length;
    const go = (to, button) => { state.from = to; focused = `[data-page=${button}]`; show(); };
    if (!plan.from && !found.isMore) return null;
    return el("p", { class: "pager" },
      el("button", { type: "button", "data-page": "back", disabled: !plan.from, onclick: () => go(Math.max(0, plan.from - 100), "back") }, "Previous rows"), " ",
      el("button", { type: "button", "data-page": "on", disabled: !found.isMore || plan.from + step > plan.mostRow, onclick: () => go(plan.from + step, "on") }, "Next rows"),
      found.isMore && plan.from + step > plan.mostRow ? ` The page shows rows up to row ${number(plan.mostRow)}; use a filter, or download the rows.` : null);
  };
  const form = choice.form("Show rows", begin);
  show();
  return [form, place];
}

// === History ===

function historyTab(path) {
  const place = el("div");
  const changes = el("div", { class: "result" });
  const load = (from, agreed) => fill(place, "Reading the history", async (signal) => {
    const told = await ask("history", { name: path, from, agreed }, signal);
    if (told.asks) {
      return el("p", { class: "note" }, `Counting the changes downloads about ${size(told.bytes)}. `, el("button", { type: "button", class: "main", onclick: () => load(told.from, true) }, "Count them"));
    }
    return historyTable(told, path, changes, load);
  });
  load(undefined, false);
  return [place, changes];
}

function historyTable(told, path, changes, load) {
  const counts = told.versions.flatMap((one) => [one.inserts, one.updates, one.deletes]).filter((one) => one !== null);
  const most = Math.max(1, ...counts);
  const hasOperations = told.versions.some((one) => one.operation);
  const titles = ["Version", "Written (UTC)", hasOperations ? "Operation" : null, "Rows"].filter((text) => text !== null);
  const rows = [...told.versions].reverse().map((one) => {
    const parts = [["insert", "inserts"], ["update", "updates"], ["delete", "deletes"]].filter(([, name]) => one[name]).map(([kind, name]) => {
      const bar = el("div", { class: `bar ${kind}` });
      bar.style.width = `${Math.max(2, (100 * one[name]) / most)}%`;
      return [el("div", {}, bar), el("span", {}, count(one[name], name.slice(0, -1), name))];
    });
    const parameters = one.operationParameters ? Object.entries(one.operationParameters).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n") : "";
    return el("tr", {},
      el("td", { class: "amount" }, shown(one.version)),
      el("td", { class: "still" }, when(one.timestamp)),
      hasOperations ? el("td", { title: shownLines(parameters) }, shown(one.operation || "")) : null,
      el("td", {}, parts.length ? el("div", { class: "bars" }, ...parts.flat()) : el("span", { class: "soft" }, told.from === null ? "" : one.inserts === null ? "changes not recorded" : "no rows changed")),
      el("td", { class: "act" }, told.from === null ? null : el("button", { type: "button", "aria-label": `Changes of version ${one.version}`, onclick: () => showChanges(changes, path, one.version) }, "Changes"))
    );
  });
  const older = told.from ? el("p", {}, el("button", { type: "button", onclick: () => load(Math.max(0, told.from - 50), false) }, "Older versions")) : null;
  if (!rows.length) return told.notes ? [...notes(told.notes), startAt(told, load)] : el("p", { class: "soft" }, "The server reports no versions.");
  return [
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Versions" },
      el("table", { class: "wide" }, el("thead", {}, el("tr", {}, titles.map((text) => el("th", { scope: "col", class: text === "Version" ? "amount" : "" }, text)), el("td", { class: "act" }))), el("tbody", {}, rows))),
    older,
  ];
}

// A change data feed may begin later than the table.
function startAt(told, load) {
  const input = el("input", { type: "number", min: "0", max: told.last, value: told.last, "aria-label": "First version" });
  const go = () => load(Number(input.value) || 0, false);
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  return el("p", {}, "Show the history from version ", input, " ", el("button", { type: "button", onclick: go }, "Show"));
}

function showChanges(place, path, version) {
  const values = { name: path, changes: Number(version), columns: [], filter: "" };
  const result = el("div");
  const buttons = FORMATS.map(([value, text]) => el("button", { type: "button", onclick: (event) => begin(event.target, values, value, `changes of version ${version}`) }, text));
  place.replaceChildren(el("h3", { tabindex: "-1" }, `Changes of version ${version}`), el("p", {}, "Download: ", ...buttons.flatMap((one) => [one, " "])), result);
  place.querySelector("h3").focus();
  place.scrollIntoView({ block: "start" });
  fill(result, "Planning", (signal, say) => preview(values, signal, say, (found) => grid(found)));
}

// === Downloads ===

async function begin(button, values, format, label) {
  const line = button.closest("p");
  if (line.nextSibling?.classList?.contains("problem")) line.nextSibling.remove();
  button.disabled = true;
  const again = setTimeout(() => { button.disabled = false; }, 1000);
  try {
    await download("download", { ...values, format }, label);
  } catch (error) {
    line.after(problem(error));
  } finally {
    clearTimeout(again);
    button.disabled = false;
  }
}

// Results for an earlier choice must not be used; they are created again when the new choice is complete.
function follow(form, place, show) {
  const isChoice = (event) => event.target.type !== "search";
  form.addEventListener("input", (event) => {
    if (isChoice(event)) for (const button of place.querySelectorAll("button")) button.disabled = true;
  });
  form.addEventListener("change", (event) => { if (isChoice(event)) show(); });
}

function downloadTab(choice) {
  const place = el("div", { class: "result" });
  const show = () => fill(place, "Requesting the size", async (signal) => {
    const values = choice.values();
    let cost;
    try {
      cost = await ask("cost", values, signal);
    } catch (error) {
      if (error.field) mistake(form, error);
      throw error;
    }
    const tooMany = cost.rowsInAll !== null && cost.rowsInAll > cost.mostInExcel;
    const rows = cost.rowsInAll === null ? "" : `, ${count(cost.rowsInAll, "row")}`;
    return [
      el("p", {}, `The download takes about ${size(cost.bytes)} from ${count(cost.files, "file")}${rows}${cost.version === null ? "" : `, version ${cost.version}`}.`),
      ...notes(cost.notes),
      el("p", { class: "formats" }, ...FORMATS.flatMap(([value, text]) => [
        el("button", { type: "button", class: "main", "data-format": value, disabled: value === "xlsx" && tooMany, onclick: (event) => begin(event.target, values, value, "") }, text), " ",
      ])),
      tooMany ? el("p", { class: "soft" }, `An Excel sheet holds at most ${number(cost.mostInExcel)} rows; choose fewer rows for it.`) : null,
      el("details", {}, el("summary", {}, "What is read, and what is skipped"), el("pre", { class: "wrap" }, shownLines(cost.plan.join("\n")))),
    ];
  });
  const form = choice.form("Use this", show);
  follow(form, place, show);
  show();
  return [form, place];
}

// === Code ===

function codeTab(choice) {
  const place = el("div", { class: "result" });
  const show = () => fill(place, "Writing", async (signal) => {
    let told;
    try {
      told = await ask("code", choice.values(), signal);
    } catch (error) {
      if (error.field) mistake(form, error);
      throw error;
    }
    return programs(told.programs);
  });
  const form = choice.form("Use this", show);
  follow(form, place, show);
  show();
  return [form, place];
}

export function programs(list) {
  return list.map(({ name, text }) => {
    const code = el("pre", { class: "wrap", tabindex: "0" }, text);
    const button = el("button", { type: "button", "aria-label": `Copy the code for ${name}` }, "Copy");
    button.addEventListener("click", () => copy(code, text, button));
    return el("section", { class: "program", "data-program": name }, el("h3", {}, name, button), code);
  });
}

async function copy(code, text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    tell("Copied.");
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  } catch {
    // If the browser does not let the page copy, the text is selected for Ctrl-C.
    getSelection().selectAllChildren(code);
    button.textContent = "Selected: copy it with Ctrl-C";
  }
}
