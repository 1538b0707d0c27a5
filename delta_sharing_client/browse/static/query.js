// The query box: SQL over the share, what it downloads, and its result as rows, chart, files and code.

import { ask } from "./ask.js";
import { chartTab } from "./chart.js";
import { complete } from "./complete.js";
import { download } from "./downloads.js";
import { count, el, fill, grid, notes, number, problem, shown, shownLines, size, tabs, tell } from "./parts.js";
import { FORMATS, programs } from "./table.js";

const STORED = "sql";

// `table` is the path of the table that was open before, for a first query.
export function showQuery(view, table) {
  fill(view, "Opening", async (signal) => {
    const first = await ask("query-first", { name: table || [] }, signal);
    return box(sessionStorage.getItem(STORED) || first.sql);
  }).then(() => view.querySelector(".query textarea")?.focus());
}

function box(sql) {
  const input = el("textarea", {
    rows: "6", spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": "Query in SQL", "aria-describedby": "query-help",
    placeholder: "SELECT country, count(*) AS orders FROM demo.shop.orders GROUP BY country",
  });
  input.value = sql;
  const cost = el("div", { class: "cost" });
  const result = el("div", { class: "result" });
  const query = new Query(input, cost, result);
  input.addEventListener("input", () => sessionStorage.setItem(STORED, input.value));
  const names = complete(input);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      query.run();
    }
  });
  return [
    el("h2", {}, "Query"),
    el("p", { class: "soft", id: "query-help" }, "One query over shared tables, run by DuckDB on this machine; write a table as share.schema.table. Ctrl+Enter runs it, and Ctrl+Space completes a name."),
    el("div", { class: "query" }, input, names),
    el("p", { class: "line" },
      el("button", { type: "button", class: "main", "data-do": "run", onclick: () => query.run() }, "Run"), " ",
      el("button", { type: "button", "data-do": "plan", onclick: () => query.plan() }, "Plan only")),
    cost,
    result,
  ];
}

class Query {
  constructor(input, cost, result) {
    Object.assign(this, { input, cost, result, tab: "Rows" });
  }

  // Shows what the query downloads, and offers to run it.
  plan() {
    return this.begin(false);
  }

  // The same, and runs it unless it downloads much.
  run() {
    return this.begin(true);
  }

  begin(isRun) {
    const sql = this.input.value;
    this.result.replaceChildren();
    this.input.removeAttribute("aria-invalid");
    return fill(this.cost, "Planning", async (signal) => {
      let plan;
      try {
        plan = await ask("query-plan", { sql }, signal);
      } catch (error) {
        this.input.setAttribute("aria-invalid", "true");
        throw error;
      }
      const values = { sql, agreed: plan.bytes };
      this.show(values, plan, isRun && !plan.asks);
      tell(costOf(plan));
      return planned(plan);
    });
  }

  show(values, plan, isRun) {
    let found = null;
    const rows = el("div");
    const read = () => fill(rows, `Running; downloads at most about ${size(plan.bytes)}`, async (signal) => {
      found = await ask("query-rows", values, signal);
      const told = told_of(found);
      tell(told);
      return [el("p", { class: "soft" }, told), ...grid(found, { label: "Rows of the query" })];
    }).then(() => { if (found && this.tab === "Chart") this.result.querySelector("[data-tab=Chart]")?.click(); });
    const first = el("p", { class: plan.asks ? "note" : "" }, plan.asks ? `Running the query downloads at most about ${size(plan.bytes)}. ` : null,
      el("button", { type: "button", class: "main", "data-do": "read", onclick: read }, plan.asks ? "Run it" : `Run (at most about ${size(plan.bytes)})`));
    rows.append(first);
    const list = [
      ["Rows", () => rows],
      ["Chart", () => (found ? chartTab(found) : rows)],
      ["Download", () => downloads(values, plan)],
      ["Code", () => code(values)],
    ];
    if (this.tab !== "Chart" && isRun) this.tab = "Rows";
    this.result.replaceChildren(...tabs("Result of the query", list, this.tab, (name) => { this.tab = name; }));
    if (isRun) read();
  }
}

function costOf(plan) {
  const read = plan.tables.filter((one) => one.files).length;
  return plan.files ? `Downloads at most about ${size(plan.bytes)} from ${count(plan.files, "file")} of ${count(read, "table")}.` : "Downloads no files.";
}

function planned(plan) {
  return [
    el("p", { "data-cost": plan.bytes }, costOf(plan)),
    ...notes(plan.notes),
    plan.tables.length ? el("details", {}, el("summary", {}, "What is read, and what is skipped"),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tables of the query" },
        el("table", {}, el("thead", {}, el("tr", {}, ["Table", "At most", "Files"].map((text, at) => el("th", { scope: "col", class: at ? "amount" : "" }, text)))),
          el("tbody", {}, plan.tables.map((one) => el("tr", {}, el("td", { class: "name" }, el("bdi", {}, shown(one.name))), el("td", { class: "amount" }, size(one.bytes)), el("td", { class: "amount" }, number(one.files))))))),
      plan.plan.length ? el("pre", { class: "wrap" }, shownLines(plan.plan.join("\n"))) : null) : null,
  ].filter(Boolean);
}

function told_of(found) {
  const rows = found.isMore ? `The first ${count(found.rows.length, "row")}; a download has all` : count(found.rows.length, "row");
  const columns = found.columnsInAll > found.columns.length ? `, the first ${number(found.columns.length)} of ${number(found.columnsInAll)} columns` : "";
  return `${rows}${columns}. Downloaded: ${size(found.read)}.`;
}

function downloads(values, plan) {
  const place = el("div");
  const begin = async (button, format) => {
    place.replaceChildren();
    button.disabled = true;
    try {
      await download("query-download", { ...values, format }, "");
    } catch (error) {
      place.replaceChildren(problem(error));
    } finally {
      button.disabled = false;
    }
  };
  return [
    el("p", {}, `All rows of the query. It runs again, and downloads at most about ${size(plan.bytes)}.`),
    el("p", { class: "formats" }, FORMATS.flatMap(([value, text]) => [el("button", { type: "button", class: "main", "data-format": value, onclick: (event) => begin(event.target, value) }, text), " "])),
    place,
  ];
}

function code(values) {
  const place = el("div");
  fill(place, "Writing", async (signal) => programs((await ask("query-code", values, signal)).programs));
  return place;
}
