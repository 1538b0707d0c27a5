// Volumes, skills and models: facts, folders, and previews of files.

import { ask } from "./ask.js";
import { download } from "./downloads.js";
import { count, el, facts, fill, grid, notes, number, problem, shown, shownLines, size, tell, when } from "./parts.js";

const WORDS = { allowed_tools: "Allowed tools", share_id: "Share id", run_id: "Run id" };
const SKIPPED = new Set(["name", "share", "schema", "comment", "description"]);

export function showAsset(place, kind, path) {
  fill(place, `Describing the ${kind}`, async (signal) => {
    const told = await ask("asset", { kind, name: path }, signal);
    const about = told.facts;
    const inside = el("div");
    const base = { kind, name: path };
    const parts = [
      el("h2", {}, el("bdi", {}, shown(path[2])), " ", el("span", { class: "tag" }, kind)),
      el("p", { class: "soft" }, el("bdi", {}, shown(path.join(".")))),
      about.comment || about.description ? el("p", { class: "comment" }, shownLines(about.description || about.comment)) : null,
      facts(Object.entries(about).filter(([name, value]) => !SKIPPED.has(name) && !isEmpty(value)).map(([name, value]) => [WORDS[name] || name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "), value])),
    ];
    if (kind === "model") parts.push(versions(told.versions, base, inside));
    else showFolder(inside, base, "", kind === "skill" ? "SKILL.md" : null);
    return [...parts, inside];
  });
}

function isEmpty(value) {
  return value === null || value === "" || (typeof value === "object" && !Object.keys(value).length);
}

function versions(list, base, inside) {
  if (!list.length) return el("p", { class: "soft" }, "No version of this model is ready.");
  const rows = [...list].reverse().map((one) =>
    el("tr", {},
      el("td", { class: "amount" }, String(one.version)),
      el("td", {}, shown(one.status)),
      el("td", { class: "comment" }, shownLines(one.comment || "")),
      el("td", {}, el("button", { type: "button", "aria-label": `Files of version ${one.version}`, onclick: () => {
        inside.replaceChildren();
        showFolder(inside, { ...base, modelVersion: one.version }, "", null, `Files of version ${one.version}`);
      } }, "Files"))
    )
  );
  return [
    el("h3", {}, "Versions"),
    el("div", { class: "scroll" }, el("table", { class: "wide" }, el("thead", {}, el("tr", {}, ["Version", "Status", "Comment", ""].map((text) => el("th", { scope: "col", class: text === "Version" ? "amount" : "" }, text)))), el("tbody", {}, rows))),
  ];
}

function showFolder(place, base, folder, looked = null, title = "Files") {
  const list = el("div");
  const sight = el("div", { class: "look" });
  const go = (to) => {
    sight.replaceChildren();
    showFolder(place, base, to, null, title);
  };
  const names = folder ? folder.split("/") : [];
  const crumbs = el("nav", { class: "crumbs", "aria-label": "Folder" }, el("button", { type: "button", class: "link", onclick: () => go("") }, "All files"),
    names.map((name, at) => [el("span", { class: "soft" }, "/"), el("button", { type: "button", class: "link", onclick: () => go(names.slice(0, at + 1).join("/")) }, el("bdi", {}, shown(name)))]));
  place.replaceChildren(el("h3", {}, title), folder ? crumbs : "", list, sight);
  fill(list, "Listing the files", async (signal) => {
    const told = await ask("folder", { ...base, path: folder }, signal);
    if (looked && told.files.some((one) => one.path === looked)) look(sight, base, looked);
    if (!told.folders.length && !told.files.length) return el("p", { class: "soft" }, "There are no files.");
    const last = (path) => shown(path.split("/").pop());
    const body = el("tbody", {},
      told.folders.map((path) => el("tr", {}, el("td", { class: "name" }, el("button", { type: "button", class: "link", onclick: () => go(path) }, el("bdi", {}, `${last(path)}/`))), el("td"), el("td"), el("td"))),
      told.files.map((one) => el("tr", {},
        el("td", { class: "name" }, el("button", { type: "button", class: "link", "data-file": one.path, onclick: () => look(sight, base, one.path) }, el("bdi", {}, last(one.path)))),
        el("td", { class: "amount" }, size(one.size)),
        el("td", { class: "still" }, when(one.modified)),
        el("td", {}, el("button", { type: "button", "aria-label": `Download ${last(one.path)}`, onclick: (event) => take(event.target, base, one.path) }, "Download"))
      )));
    return [
      told.isCut ? el("p", { class: "note" }, "The folder has more than is listed here; the command 'delta-sharing ls' lists everything.") : null,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Files" },
        el("table", { class: "wide" }, el("thead", {}, el("tr", {}, ["Name", "Size", "Written (UTC)", ""].map((text) => el("th", { scope: "col", class: text === "Size" ? "amount" : "" }, text)))), body)),
    ];
  });
}

async function take(button, base, path) {
  button.disabled = true;
  const again = setTimeout(() => { button.disabled = false; }, 1000);
  const cell = button.parentElement;
  cell.querySelector(".problem")?.remove();
  try {
    await download("download-file", { ...base, path }, "");
  } catch (error) {
    cell.append(problem(error));
  } finally {
    clearTimeout(again);
    button.disabled = false;
  }
}

function look(place, base, path) {
  const result = el("div");
  place.replaceChildren(el("h3", { tabindex: "-1" }, el("bdi", {}, shown(path))), result);
  place.scrollIntoView({ block: "nearest" });
  const load = (agreed) => fill(result, "Reading the file", async (signal) => {
    const told = await ask("look", { ...base, path, agreed }, signal);
    if (told.asks) return el("p", { class: "note" }, `This picture downloads ${size(told.bytes)}. `, el("button", { type: "button", class: "main", onclick: () => load(true) }, "Show it"));
    tell(`${shown(path)} is shown.`);
    return [...notes(told.notes), ...sights(told)];
  });
  load(false);
}

function sights(told) {
  if (told.as === "picture") {
    return [el("img", { class: "picture", src: `/files/${encodeURIComponent(told.file)}`, alt: "The picture in this file" })];
  }
  if (told.as === "rows") {
    const parts = [];
    const rows = told.rowsInAll === undefined ? "" : ` of ${count(told.rowsInAll, "row")}`;
    if (told.isMore) parts.push(`The first ${number(told.rows.length)}${rows || " rows"} are shown.`);
    if (told.columnsInAll > told.columns.length) parts.push(`The first ${number(told.columns.length)} of ${number(told.columnsInAll)} columns are shown.`);
    return [parts.length ? el("p", { class: "soft" }, parts.join(" ")) : null, ...[grid(told)].flat()].filter(Boolean);
  }
  if (told.as === "nothing") {
    return [el("p", { class: "soft" }, `This file (${size(told.size)}) is neither text nor a picture that can be shown. Download it to open it.`)];
  }
  return [
    told.isCut ? el("p", { class: "note" }, `The beginning of the file (${size(told.size)}) is shown. Download it to see all of it.`) : null,
    told.text ? el("pre", { class: "wrap", tabindex: "0" }, shownLines(told.text)) : el("p", { class: "soft" }, "The file is empty."),
  ].filter(Boolean);
}
