// A chart of the rows of a query, drawn by Chart.js (chart.umd.js). The grid has the same values for everybody who cannot see it.

import { count, el, problem, shown } from "./parts.js";

const MOST_SERIES = 6;
const MOST_TICKS = 8;
const COLORS = ["--accent", "--insert", "--update", "--delete", "--violet", "--soft"];
const IS_TIME = /^(date|timestamp|timestamp_ntz)$/;
// What was chosen last, by the names and types of the columns: another run of the query keeps it.
const chosen = new Map();

export function chartTab(found) {
  const numbers = found.columns.flatMap((one, at) => (one.isNumber ? [at] : []));
  if (!numbers.length) return el("p", { class: "soft" }, "A chart needs a column of numbers.");
  if (!found.rows.length) return el("p", { class: "soft" }, "There are no rows to draw.");
  const key = JSON.stringify(found.columns);
  const choice = chosen.get(key) || suggested(found.columns, numbers);
  chosen.set(key, choice);
  const place = el("div", { class: "chart" });
  const draw = () => drawn(place, found, choice).catch((error) => place.replaceChildren(problem(error)));
  const name = (at) => shown(found.columns[at].name) || `column ${at + 1}`;
  const select = (label, value, options, set) => {
    const node = el("select", { "data-choice": label, onchange: () => { set(node.value); draw(); } }, options.map(([one, text]) => el("option", { value: one }, text)));
    node.value = value;
    return el("label", { class: "field" }, el("span", {}, label), node);
  };
  const boxes = numbers.map((at) => {
    const box = el("input", { type: "checkbox", onchange: () => {
      choice.series = numbers.filter((one) => (one === at ? box.checked : choice.series.includes(one)));
      limit();
      draw();
    } });
    box.checked = choice.series.includes(at);
    return el("label", {}, box, el("bdi", {}, name(at)));
  });
  const limit = () => {
    for (const box of boxes.map((one) => one.querySelector("input"))) box.disabled = !box.checked && choice.series.length >= MOST_SERIES;
  };
  limit();
  queueMicrotask(draw);
  return [
    el("div", { class: "chart-choice" },
      select("Chart", choice.kind, [["bar", "Bars"], ["line", "Lines"]], (value) => { choice.kind = value; }),
      select("Along the bottom", choice.along, found.columns.map((one, at) => [at, name(at)]), (value) => { choice.along = Number(value); }),
      el("fieldset", {}, el("legend", {}, "Values"), el("div", {}, boxes))),
    place,
    el("p", { class: "soft" }, `${found.isMore ? `The first ${count(found.rows.length, "row")} of the result` : `All ${count(found.rows.length, "row")}`}; the tab Rows has the values.`),
  ];
}

// Times and numbers along the bottom make lines, everything else bars.
function suggested(columns, numbers) {
  const at = columns.findIndex((one) => !one.isNumber);
  const along = at < 0 ? 0 : at;
  const others = numbers.filter((one) => one !== along);
  return { kind: at < 0 || IS_TIME.test(columns[along].type) ? "line" : "bar", along, series: (others.length ? others : numbers).slice(0, 1) };
}

async function drawn(place, found, choice) {
  await import("/chart.umd.js");
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const column = found.columns[choice.along];
  // Lines along times or numbers need an axis with true distances.
  const isTime = choice.kind === "line" && IS_TIME.test(column.type);
  const isScale = isTime || (choice.kind === "line" && column.isNumber);
  const position = (row) => (isTime ? Date.parse(/T/.test(row[choice.along]) ? zoned(row[choice.along]) : row[choice.along]) : Number(row[choice.along]));
  const rows = isScale
    ? found.rows.filter((row) => row[choice.along] !== null && Number.isFinite(position(row))).sort((one, other) => position(one) - position(other))
    : found.rows;
  const label = (text) => (text === null ? "null" : shown(text.length > 40 ? `${text.slice(0, 40)} …` : text));
  const value = (text) => (text === null || !Number.isFinite(Number(text)) ? null : Number(text));
  const names = choice.series.map((at) => shown(found.columns[at].name));
  const axis = { ticks: { color: color("--soft") }, grid: { color: color("--line") }, border: { color: color("--line") } };
  const moment = (at) => new Date(at).toISOString().replace("T", " ").replace(/(:00)?\.000Z$/, "").replace(/ 00:00$/, "");
  const places = [...new Set(isTime ? rows.map(position) : [])];
  const ticks = places.filter((_, at) => at % Math.ceil(places.length / MOST_TICKS) === 0).map((value) => ({ value }));
  place.replaceChildren();
  const canvas = el("canvas", { role: "img", "aria-label": `${choice.kind === "bar" ? "Bars" : "Lines"} of ${names.join(", ") || "nothing"} by ${shown(column.name)}, ${count(rows.length, "row")}. The tab Rows has the values.` });
  place.append(canvas);
  new Chart(canvas, {
    type: choice.kind,
    data: {
      labels: isScale ? undefined : rows.map((row) => label(row[choice.along])),
      datasets: choice.series.map((at, number) => ({
        label: names[number],
        data: rows.map((row) => (isScale ? { x: position(row), y: value(row[at]) } : value(row[at]))),
        backgroundColor: color(COLORS[number]), borderColor: color(COLORS[number]),
        borderWidth: choice.kind === "line" ? 2 : 0, borderRadius: 3, maxBarThickness: 56, pointRadius: rows.length > 100 ? 0 : 2.5, tension: 0,
      })),
    },
    options: {
      animation: false, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
      font: { family: getComputedStyle(document.body).fontFamily },
      plugins: {
        legend: { display: names.length > 1, align: "start", labels: { color: color("--text"), boxWidth: 14, boxHeight: 14 } },
        tooltip: isTime ? { callbacks: { title: (items) => moment(items[0].parsed.x) } } : {},
      },
      scales: {
        x: { ...axis, ...(isScale ? { type: "linear" } : {}), grid: { display: false }, title: { display: true, text: shown(column.name), color: color("--soft") },
          ticks: { ...axis.ticks, maxRotation: 45, autoSkipPadding: 12, ...(isTime ? { callback: moment } : {}) },
          // Times are marked where there are rows.
          ...(isTime ? { min: places[0], max: places.at(-1), afterBuildTicks: (scale) => { scale.ticks = ticks; } } : {}) },
        y: { ...axis, beginAtZero: choice.kind === "bar", title: { display: names.length === 1, text: names[0], color: color("--soft") } },
      },
    },
  });
}

// A timestamp without a zone is drawn as if in UTC, as all times of the page.
function zoned(text) {
  return /Z$/.test(text) ? text : `${text}Z`;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.querySelector("[data-tab=Chart][aria-selected=true]")?.click();
});
