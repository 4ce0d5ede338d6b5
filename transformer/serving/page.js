// The page at /: translates while one types. Whatever comes from elsewhere becomes text nodes, never markup.
"use strict";

(() => {
  const PAUSE = 250; // milliseconds without a key, before what was typed is sent
  const AGAIN = 2000; // milliseconds until a server that was away is asked anew
  const OTHERS = 2; // translations besides the best
  const KEPT = 20; // earlier translations
  const STORE = "transformer-translations";

  const find = (id) => document.getElementById(id);
  const [pair, key, source, target, say] = ["pair", "key", "source", "target", "say"].map(find);
  const [sourceLanguage, targetLanguage] = ["from", "to"].map(find); // of a model that knows many languages
  let models = [];
  let asked = null; // the request that is under way, which a newer one ends
  let timer = 0;
  let lines = []; // of the answer: {source, hypotheses}, and which hypothesis is shown
  let picked = null; // the line whose attention is shown

  function element(name, text, className) {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  /** What is over in a while: the same is asked again. */
  class Away extends Error {
    constructor(message, seconds = 0) {
      super(message);
      this.pause = Math.max(AGAIN, seconds * 1000);
    }
  }

  async function answer(path, options) {
    const away = "The server does not answer";
    const response = await fetch(path, options).catch((error) => {
      throw error instanceof TypeError ? new Away(away) : error; // fetch says so where nobody answers
    });
    const json = await response.json().catch(() => null); // a proxy's own page, say
    const seconds = Number(response.headers.get("Retry-After"));
    if ([429, 503].includes(response.status) && json?.error && seconds) throw new Away(`The server is busy: ${json.error}`, seconds);
    if (json === null && (response.ok || response.status >= 500)) throw new Away(away);
    if (!response.ok) throw new Error(json?.error ?? `the server answered ${response.status}`);
    return json;
  }

  const words = (text) => text.split(/\s+/u).filter(Boolean);
  const shown = (line) => line.hypotheses[line.rank];

  /** Says what a word stands for, and offers the line's other translations. */
  function pick(line, index, button) {
    for (const other of target.querySelectorAll(".picked")) other.classList.remove("picked");
    button.classList.add("picked");
    const from = words(line.source);
    const links = shown(line).alignment.filter((link) => link[1] === index);
    const stands = links.map((link) => `“${from[link[0]] ?? ""}”`).join(", ");
    say.textContent = `“${button.textContent}” ${stands ? `stands for ${stands}.` : "stands for no single word."}`;
    offer(line);
    watch(line);
  }

  /** Offers a line's attention, and asks for it where it is looked at. */
  async function watch(line) {
    const details = find("attention");
    picked = line;
    details.hidden = !line?.source.trim() || line.parts > 1;
    find("heat").replaceChildren();
    if (details.hidden || !details.open) return;
    try {
      const found = await ask({ text: line.source, document: true, attention: true });
      const best = found.translations[0].lines[0].hypotheses[0];
      if (picked === line) find("heat").replaceChildren(heat(words(line.source), words(best.text), best.attention));
    } catch (error) {
      say.textContent = error.message;
    }
  }

  function heat(from, to, rows) {
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    head.append(element("td", ""));
    const named = (word, scope) => {
      const cell = element("th", word);
      cell.scope = scope;
      return cell;
    };
    head.append(...from.map((word) => named(word, "col")));
    const body = table.createTBody();
    for (const [index, row] of rows.entries()) {
      const line = body.insertRow();
      line.append(named(to[index], "row"));
      for (const [place, share] of row.entries()) {
        const cell = line.insertCell();
        cell.style.setProperty("--share", share / 1000);
        cell.title = `${to[index]} ← ${from[place]}: ${(share / 10).toFixed(1)} %`;
        cell.setAttribute("aria-label", `${(share / 10).toFixed(0)} %`);
      }
    }
    return table;
  }

  function earlier() {
    try {
      const kept = JSON.parse(localStorage.getItem(STORE)) ?? [];
      return kept.filter((one) => [one.text, one.translation, one.model].every((part) => typeof part === "string"));
    } catch {
      return []; // nothing may be kept here, or something else was
    }
  }

  function keep(list) {
    try {
      localStorage.setItem(STORE, JSON.stringify(list.slice(0, KEPT)));
    } catch {
      // Then this page goes without.
    }
    show();
  }

  /** What was typed on is one translation, not many. */
  function remember(entry) {
    const isAlike = (one) => ["model", "from", "to"].every((part) => one?.[part] === entry[part]);
    const list = earlier().filter((one) => one.text !== entry.text || !isAlike(one));
    const goes = isAlike(list[0]) && entry.text.startsWith(list[0].text);
    keep([entry, ...list.slice(goes ? 1 : 0)]);
  }

  function show() {
    const list = earlier();
    find("history").hidden = list.length === 0;
    find("earlier").replaceChildren(...list.map((one) => {
      const button = element("button", `${one.text} → ${one.translation}`);
      button.type = "button";
      button.dir = "auto";
      button.addEventListener("click", () => {
        const index = models.findIndex((model) => model.name === one.model);
        if (index >= 0) pair.selectedIndex = index;
        source.value = one.text;
        choose(one);
      });
      const item = element("li", "");
      item.append(button);
      return item;
    }));
  }

  /** The languages that are chosen of a model that knows many. */
  const chosen = (model) => (model.languages ? { from: sourceLanguage.value, to: targetLanguage.value } : {});

  /** An answer of the model that is chosen. */
  function ask(fields, signal) {
    const headers = { "Content-Type": "application/json" };
    if (key.value) headers.Authorization = `Bearer ${key.value}`;
    const model = models[pair.selectedIndex];
    const { from, to } = chosen(model);
    const body = JSON.stringify({ model: model.name, source: from, target: to, ...fields });
    return answer("v1/translate", { method: "POST", headers, body, signal });
  }

  function offer(line) {
    const list = find("alternatives");
    list.replaceChildren();
    for (const [rank, hypothesis] of line.hypotheses.entries()) {
      if (rank === line.rank || !hypothesis.text) continue;
      const button = element("button", hypothesis.text);
      button.type = "button";
      button.dir = "auto";
      button.addEventListener("click", () => {
        line.rank = rank;
        draw();
        offer(line);
        say.textContent = "";
      });
      const item = element("li", "");
      item.append(button);
      list.append(item);
    }
    find("others").hidden = list.children.length === 0;
  }

  function draw() {
    target.replaceChildren();
    for (const line of lines) {
      const paragraph = element("p", "");
      paragraph.dir = "auto";
      for (const [index, word] of words(shown(line).text).entries()) {
        const button = element("button", word, "word");
        button.type = "button";
        button.addEventListener("click", () => pick(line, index, button));
        if (index > 0) paragraph.append(" ");
        paragraph.append(button);
      }
      target.append(paragraph);
    }
    find("copy").disabled = !lines.some((line) => shown(line).text);
  }

  function clear() {
    lines = [];
    draw();
    find("others").hidden = true;
    watch(null);
  }

  async function translate() {
    asked?.abort();
    clearTimeout(timer);
    const model = models[pair.selectedIndex];
    if (!model) return;
    say.textContent = "";
    if (!source.value.trim()) {
      clear();
      target.setAttribute("aria-busy", "false");
      return;
    }
    const own = (asked = new AbortController());
    target.setAttribute("aria-busy", "true");
    const best = Math.min(1 + OTHERS, Number(model.decoding.beam));
    const text = source.value;
    try {
      const found = await ask({ text, document: true, alignments: true, decoding: { n_best: best } }, own.signal);
      lines = found.translations[0].lines;
      for (const line of lines) line.rank = 0;
      draw();
      const only = lines.filter((line) => shown(line).text);
      find("others").hidden = true;
      if (only.length === 1) offer(only[0]);
      watch(only.length === 1 ? only[0] : null);
      remember({ text, translation: found.translations[0].text, model: model.name, ...chosen(model) });
    } catch (error) {
      if (own.signal.aborted) return;
      const isAway = error instanceof Away;
      say.textContent = isAway ? `${error.message}; it is asked again.` : error.message;
      if (isAway) timer = setTimeout(translate, error.pause);
    }
    if (asked === own) target.setAttribute("aria-busy", "false");
  }

  function later() {
    find("count").textContent = [...source.value].length;
    asked?.abort(); // nobody waits for it any more
    clearTimeout(timer);
    timer = setTimeout(translate, PAUSE);
  }

  /** A code as pages have it: en for eng. */
  function tag(code) {
    try {
      return Intl.getCanonicalLocales(code.replace("_", "-"))[0];
    } catch {
      return "";
    }
  }

  function name(code) {
    try {
      return new Intl.DisplayNames([navigator.language, "en"], { type: "language" }).of(tag(code));
    } catch {
      return code;
    }
  }

  async function begin() {
    try {
      const [served, settings] = await Promise.all([answer("v1/models"), answer("frontend/settings")]);
      models = served.models;
      find("key-label").hidden = key.hidden = !settings.keyRequired;
      source.maxLength = settings.charLimit;
    } catch {
      models = [];
    }
    if (models.length === 0) {
      say.textContent = "The server is not ready; it is asked again.";
      setTimeout(begin, AGAIN);
      return;
    }
    say.textContent = "";
    pair.replaceChildren(...models.map((model) => {
      if (model.languages) return element("option", `${model.languages.length} languages (${model.name})`);
      const twins = models.filter((other) => other.source === model.source && other.target === model.target);
      const languages = `${name(model.source)} → ${name(model.target)}`;
      return element("option", twins.length > 1 ? `${languages} (${model.name})` : languages);
    }));
    choose();
  }

  /** Offers the languages of the model that is chosen, first those of an earlier translation or else the usual ones. */
  function choose({ from, to } = {}) {
    const model = models[pair.selectedIndex];
    find("many").hidden = !model.languages;
    for (const [list, usual, wanted] of [[sourceLanguage, model.source, from], [targetLanguage, model.target, to]]) {
      list.replaceChildren(...(model.languages ?? []).map((own, index) => {
        const code = model.language_codes[index];
        const option = element("option", name(code));
        option.value = code;
        option.selected = wanted ? code === wanted : own === usual;
        return option;
      }));
    }
    if (sourceLanguage.value === targetLanguage.value) targetLanguage.selectedIndex = targetLanguage.selectedIndex === 0 ? 1 : 0;
    start();
  }

  function start() {
    const model = models[pair.selectedIndex];
    source.lang = tag(model.languages ? sourceLanguage.value : model.source);
    target.lang = tag(model.languages ? targetLanguage.value : model.target);
    translate();
  }

  source.addEventListener("input", later);
  source.addEventListener("dragover", (event) => event.preventDefault());
  source.addEventListener("drop", async (event) => {
    const file = event.dataTransfer.files[0];
    if (!file) return;
    event.preventDefault();
    try {
      source.value = (await file.text()).slice(0, source.maxLength);
      later();
    } catch (error) {
      say.textContent = `The file cannot be read: ${error.message}`; // it may be a folder
    }
  });
  pair.addEventListener("change", () => choose());
  for (const list of [sourceLanguage, targetLanguage]) list.addEventListener("change", start);
  key.addEventListener("change", translate);
  find("form").addEventListener("submit", (event) => event.preventDefault());
  find("attention").addEventListener("toggle", () => watch(picked));
  find("forget").addEventListener("click", () => keep([]));
  find("copy").hidden = !navigator.clipboard; // which pages over plain HTTP have on the same machine alone
  find("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(lines.map((line) => shown(line).text).join("\n"));
      say.textContent = "Copied.";
    } catch (error) {
      say.textContent = `Nothing was copied: ${error.message}`;
    }
  });
  show();
  begin();
})();
