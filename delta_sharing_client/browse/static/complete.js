// Completion of names in a query: a list of names below the text, moved through by arrows.

import { ask } from "./ask.js";
import { el, shown, tell } from "./parts.js";

const PAUSE = 150;

// Returns the list of names for `input`, hidden as long as there are none.
export function complete(input) {
  const list = el("ul", { class: "names", id: "names", role: "listbox", "aria-label": "Names", hidden: true });
  let found = null;
  let at = 0;
  let timer = 0;
  let control = new AbortController();
  input.setAttribute("aria-autocomplete", "list");
  input.setAttribute("aria-controls", "names");
  input.setAttribute("aria-haspopup", "listbox");
  const close = () => {
    clearTimeout(timer);
    control.abort();
    list.hidden = true;
    found = null;
    input.removeAttribute("aria-activedescendant");
  };
  const mark = (next) => {
    at = (next + found.names.length) % found.names.length;
    [...list.children].forEach((one, place) => one.setAttribute("aria-selected", String(place === at)));
    list.children[at].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", list.children[at].id);
  };
  const take = (place) => {
    const { from, to, names } = found;
    close();
    input.focus();
    input.setSelectionRange(from, to);
    // In this way the browser's own undo works.
    if (!document.execCommand("insertText", false, names[place].text)) input.setRangeText(names[place].text, from, to, "end");
    input.dispatchEvent(new Event("input"));
    // After a share or a schema, its content follows.
    if (names[place].text.endsWith(".")) request(0);
    else close();
  };
  const show = (answer) => {
    if (!answer.names.length) return close();
    found = answer;
    list.replaceChildren(...answer.names.map((one, place) => el("li", { id: `name-${place}`, role: "option", onmousedown: (event) => { event.preventDefault(); take(place); } },
      el("span", {}, el("bdi", {}, shown(one.shown))), el("span", { class: "soft" }, shown(one.kind)))));
    list.hidden = false;
    list.style.top = `${below(input)}px`;
    mark(0);
    tell(`${answer.names.length} names; the first is ${shown(answer.names[0].shown)}.`);
  };
  const request = (pause, isForced = false) => {
    clearTimeout(timer);
    control.abort();
    control = new AbortController();
    const { signal } = control;
    timer = setTimeout(async () => {
      if (document.activeElement !== input || input.selectionStart !== input.selectionEnd) return;
      try {
        const answer = await ask("query-names", { sql: input.value, at: input.selectionStart, all: isForced }, signal);
        if (!signal.aborted) show(answer);
      } catch {
        // Names are a help only: what is wrong is told when the query is planned.
        if (!signal.aborted) close();
      }
    }, pause);
  };
  input.addEventListener("input", (event) => {
    if (event.isTrusted !== false) request(PAUSE);
  });
  input.addEventListener("blur", close);
  input.addEventListener("click", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      return request(0, true);
    }
    if (!found) return;
    const act = {
      ArrowDown: () => mark(at + 1), ArrowUp: () => mark(at - 1), Escape: close,
      Enter: () => take(at), Tab: () => take(at),
    }[event.ctrlKey || event.metaKey || event.shiftKey ? "" : event.key];
    if (!act) {
      if (/^(Arrow|Home|End|Page)/.test(event.key)) close();
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    act();
  });
  return list;
}

// The position below the line of the cursor, in pixels from the top of the text's frame.
function below(input) {
  const style = getComputedStyle(input);
  const line = input.value.slice(0, input.selectionStart).split("\n").length;
  const top = parseFloat(style.paddingTop) + line * parseFloat(style.lineHeight) - input.scrollTop + 4;
  return Math.min(Math.max(top, 0), input.offsetHeight + 4);
}
