// Volumes, skills and models: facts, versions, folders, and previews of files.

import { ask } from "./ask.js";
import { download } from "./downloads.js";
import { address, brief, comment, count, el, facts, fill, grid, hint, link, notes, number, problem, shown, shownLines, size, tell, when } from "./parts.js";

const WORDS = { allowed_tools: "Allowed tools", share_id: "Share id", run_id: "Run id" };
const SKIPPED = new Set(["name", "share", "schema", "comment", "description"]);
const VERSION_FACTS = ["source", "run_id", "id"];
// The protocol has no list of aliases. These are the usual ones.
const ALIASES = ["champion", "challenger"];
const TAGS = new Set("a p h1 h2 h3 h4 h5 h6 ul ol li blockquote table thead tbody tr th td em strong s hr br code pre span".split(" "));
// Titles of a document come below those of the page.
const BELOW = { h1: "h4", h2: "h5", h3: "h6", h4: "h6", h5: "h6" };

// `where` has the place in the asset that the address names: for a model a version, a folder, and a file.
export function showAsset(place, kind, path, where = []) {
  fill(place, `Describing the ${kind}`, async (signal) => {
    const told = await ask("asset", { kind, name: path }, signal);
    const about = told.facts;
    const inside = el("div");
    const base = { kind, name: path };
    const parts = [
      el("h2", {}, el("bdi", { title: hint(path[2]) }, brief(path[2])), " ", el("span", { class: "tag" }, kind)),
      el("p", { class: "soft" }, el("bdi", {}, path.map(brief).join("."))),
      comment(about.description || about.comment),
      facts(titled(Object.entries(about).filter(([name]) => !SKIPPED.has(name)))),
    ];
    if (kind === "model") parts.push(versions(told.versions, base, inside, where));
    else showFolder(inside, base, where[0] || "", where[1] || (kind === "skill" && !where.length ? "SKILL.md" : null));
    return [...parts, inside];
  });
}

function titled(pairs) {
  return pairs.filter(([, value]) => !isEmpty(value)).map(([name, value]) => [WORDS[name] || name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "), value]);
}

function isEmpty(value) {
  return value === null || value === undefined || value === "" || (typeof value === "object" && !Object.keys(value).length);
}

// === Versions of a model ===

function versions(list, base, inside, where) {
  const [chosen, folder = "", file = null] = where;
  const tags = new Map(list.map((one) => [one.version, el("td")]));
  const open = (one, ...at) => {
    const own = el("div");
    inside.replaceChildren(facts(titled(VERSION_FACTS.map((name) => [name, one[name]]))), own);
    showFolder(own, { ...base, modelVersion: one.version }, ...at, `Files of version ${one.version}`);
  };
  const rows = [...list].reverse().map((one) =>
    el("tr", {},
      el("td", { class: "amount" }, String(one.version)),
      tags.get(one.version),
      el("td", {}, shown(one.status)),
      el("td", {}, comment(one.comment)),
      el("td", { class: "act" }, link(address("model", base.name, one.version), () => open(one, "", null), "Files", el("span", { class: "unseen" }, ` of version ${one.version}`)))
    )
  );
  const start = list.find((one) => String(one.version) === chosen);
  if (start) open(start, folder, file);
  else if (chosen) inside.append(el("p", { class: "note" }, `Version ${shown(chosen)} of this model is not listed.`));
  return [
    el("h3", {}, "Versions"),
    list.length ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Versions" }, el("table", { class: "wide" }, titles("Version", "Alias", "Status", "Comment", ""), el("tbody", {}, rows)))
      : el("p", { class: "soft" }, "No version of this model is ready."),
    aliases(base, tags),
  ];
}

function titles(...names) {
  return el("thead", {}, el("tr", {}, names.map((text) => (text ? el("th", { scope: "col", class: text === "Version" || text === "Size" ? "amount" : "" }, text) : el("td", { class: "act" })))));
}

// Marks the versions to which the usual aliases point, and finds that of another one.
function aliases(base, tags) {
  const told = el("span", { role: "status" });
  const mark = async (alias) => {
    const { version } = await ask("alias", { name: base.name, alias });
    const cell = tags.get(version);
    if (cell && ![...cell.children].some((one) => one.dataset.alias === alias)) cell.append(el("span", { class: "tag", "data-alias": alias }, brief(alias)), " ");
    return version;
  };
  for (const alias of ALIASES) mark(alias).catch(() => {});
  const input = el("input", { placeholder: ALIASES[0], autocomplete: "off", spellcheck: "false" });
  const find = async () => {
    const alias = input.value.trim();
    if (!alias) return input.focus();
    told.textContent = "…";
    try {
      const version = await mark(alias);
      told.textContent = version === null ? `No version has the alias '${brief(alias)}'.` : `'${brief(alias)}' is version ${version}.`;
    } catch (error) {
      told.textContent = shown(error.message);
    }
  };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") find(); });
  return el("p", { class: "line" }, el("label", {}, "Which version has the alias ", input), " ", el("button", { type: "button", onclick: find }, "Find"), " ", told);
}

// === Files ===

function showFolder(place, base, folder, looked = null, title = "Files") {
  const list = el("div");
  const sight = el("div", { class: "look" });
  const version = base.modelVersion === undefined ? [] : [base.modelVersion];
  const at = (to, file = "") => address(base.kind, base.name, ...version, to, file);
  const go = (to) => link(at(to), () => {
    showFolder(place, base, to, null, title);
    place.querySelector("h3").focus();
  });
  const open = (file) => look(sight, base, file, (to) => link(at(folder, to), () => open(to)));
  const last = (path) => brief(path.split("/").pop());
  const into = (node, ...inside) => { node.append(...inside); return node; };
  const names = folder ? folder.split("/") : [];
  const crumbs = el("nav", { class: "crumbs", "aria-label": "Folder" }, into(go(""), "All files"),
    names.map((name, place) => [el("span", { class: "soft" }, "/"), into(go(names.slice(0, place + 1).join("/")), el("bdi", {}, brief(name)))]));
  place.replaceChildren(el("h3", { tabindex: "-1" }, title), folder ? crumbs : "", list, sight);
  fill(list, "Listing the files", async (signal) => {
    const told = await ask("folder", { ...base, path: folder }, signal);
    if (looked && (looked !== "SKILL.md" || told.files.some((one) => one.path === looked))) open(looked);
    if (!told.folders.length && !told.files.length) return el("p", { class: "soft" }, "There are no files.");
    const body = el("tbody", {},
      told.folders.map((path) => el("tr", {}, el("td", { class: "name" }, into(go(path), el("bdi", {}, `${last(path)}/`))), el("td"), el("td"), el("td", { class: "act" }))),
      told.files.map((one) => {
        const file = link(at(folder, one.path), () => open(one.path), el("bdi", { title: hint(one.path) }, last(one.path)));
        file.dataset.file = one.path;
        return el("tr", {},
          el("td", { class: "name" }, file),
          el("td", { class: "amount" }, size(one.size)),
          el("td", { class: "still" }, when(one.modified)),
          el("td", { class: "act" }, el("button", { type: "button", "aria-label": `Download ${last(one.path)}`, onclick: (event) => take(event.target, base, one.path) }, "Download")));
      }));
    return [
      told.isCut ? el("p", { class: "note" }, "The folder has more than is listed here; the command 'delta-sharing ls' lists everything.") : null,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Files" }, el("table", { class: "wide" }, titles("Name", "Size", "Written (UTC)", ""), body)),
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

// Shows one file; `linked(path)` makes the link to another one.
function look(place, base, path, linked) {
  const result = el("div");
  const title = el("h3", { tabindex: "-1" }, el("bdi", { title: hint(path) }, brief(path)));
  // A link in the file shown before is removed with it.
  const isLeft = place.contains(document.activeElement);
  place.replaceChildren(title, result);
  if (isLeft) title.focus();
  place.scrollIntoView({ block: "nearest" });
  const load = (agreed) => fill(result, "Reading the file", async (signal) => {
    const told = await ask("look", { ...base, path, agreed }, signal);
    if (told.asks) return el("p", { class: "note" }, `Showing this file downloads ${size(told.bytes)}. `, el("button", { type: "button", class: "main", onclick: () => load(true) }, "Show it"));
    tell(`${brief(path)} is shown.`);
    return [...notes(told.notes), ...sights(told, path, linked)];
  });
  load(false);
}

function sights(told, path, linked) {
  if (told.as === "picture") {
    return [el("img", { class: "picture", src: `/files/${encodeURIComponent(told.file)}`, alt: `Picture: ${brief(path)}` })];
  }
  if (told.as === "pdf") {
    return [
      // With the attribute 'sandbox', Chromium shows no PDF; its viewer keeps a document from the page and the network.
      el("iframe", { class: "document", src: `/files/${encodeURIComponent(told.file)}`, title: `Document: ${brief(path)}` }),
      el("p", { class: "soft" }, "If your browser shows no PDF here, download the file."),
    ];
  }
  if (told.as === "markdown") return markdown(told, linked);
  if (told.as === "rows") {
    const parts = [];
    const rows = told.rowsInAll === undefined ? "" : ` of ${count(told.rowsInAll, "row")}`;
    if (told.isMore) parts.push(`The first ${number(told.rows.length)}${rows || " rows"} are shown.`);
    if (told.columnsInAll > told.columns.length) parts.push(`The first ${number(told.columns.length)} of ${number(told.columnsInAll)} columns are shown.`);
    return [parts.length ? el("p", { class: "soft" }, parts.join(" ")) : null, ...[grid(told)].flat()].filter(Boolean);
  }
  if (told.as === "nothing") {
    return [el("p", { class: "soft" }, `This file (${size(told.size)}) can not be shown. Download it to open it.`)];
  }
  return [cut(told), told.text ? text(told) : el("p", { class: "soft" }, "The file is empty.")].filter(Boolean);
}

function cut(told) {
  return told.isCut ? el("p", { class: "note" }, `The beginning of the file (${size(told.size)}) is shown. Download it to see all of it.`) : null;
}

function text(told) {
  return el("pre", { class: "wrap", tabindex: "0" }, shownLines(told.text));
}

function markdown(told, linked) {
  const body = el("div");
  const draw = (isText) => body.replaceChildren(isText ? text(told) : el("article", { class: "markdown" }, facts(Object.entries(told.fields)), told.tree.map((one) => made(one, linked))));
  const button = el("button", { type: "button", "aria-pressed": "false", onclick: () => {
    const isText = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(isText));
    draw(isText);
  } }, "Show as text");
  draw(false);
  return [cut(told), el("p", {}, button), body].filter(Boolean);
}

// The node of a part of a document, of which only the tag, the target of a link and the text are used.
function made(part, linked) {
  if (typeof part === "string") return shownLines(part);
  const [tag, to, ...inside] = part;
  const content = inside.map((one) => made(one, linked));
  if (tag === "a" && Array.isArray(to)) {
    const node = linked(to[1]);
    node.append(...content);
    return node;
  }
  if (tag === "a" && /^(https?|mailto):/i.test(to || "")) return el("a", { href: to, target: "_blank", rel: "noopener noreferrer", title: hint(to) }, content);
  if (tag === "a" || !TAGS.has(tag)) return el("span", {}, content);
  if (tag === "table") return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, el("table", {}, content));
  return el(BELOW[tag] || tag, tag === "pre" ? { tabindex: "0" } : {}, content);
}
