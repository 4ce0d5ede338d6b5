// The page at /: translates while one types. Whatever comes from elsewhere becomes text nodes, never markup.
"use strict";

(() => {
  const PAUSE = 250; // milliseconds without a key, before what was typed is sent
  const AGAIN = 2000; // milliseconds until a server that was away is asked anew
  const OTHERS = 2; // translations besides the best
  const KEPT = 20; // earlier translations
  const BYTES = 4; // of a character in UTF-8, at most
  const STORE = "transformer-translations";

  const find = (id) => document.getElementById(id);
  const [pair, key, source, target, say] = ["pair", "key", "source", "target", "say"].map(find);
  const [sourceLanguage, targetLanguage] = ["from", "to"].map(find); // of a model that knows many languages
  let models = [];
  let limit = Infinity; // characters of a text
  let asked = null; // the request that is under way, which a newer one ends
  let watched = null; // that for attention
  let timer = 0;
  let lines = []; // of the answer: {source, hypotheses}, and which hypothesis is shown
  let picked = null; // the line whose attention is shown
  let draft = null; // what was kept of the text that is being typed
  let typed = ""; // that text at the last key

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

  // Between blanks as the server has them, which counts words, too; \s has others.
  // oxlint-disable-next-line no-control-regex
  const words = (text) => text.split(/[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u).filter(Boolean);
  const isBlank = (text) => words(text).length === 0;
  const shown = (line) => line.hypotheses[line.rank];

  /** Says what a word stands for, and offers the line's other translations. */
  function pick(line, index, word) {
    for (const other of target.querySelectorAll(".picked")) other.classList.remove("picked");
    word.classList.add("picked");
    const from = words(line.source);
    const links = shown(line).alignment.filter((link) => link[1] === index);
    const stands = links.map((link) => `“${from[link[0]] ?? ""}”`).join(", ");
    say.textContent = `“${word.textContent}” ${stands ? `stands for ${stands}.` : "stands for no single word."}`;
    offer(line);
    watch(line);
  }

  /** Offers the attention of a line as it is shown, and asks for it where it is looked at. */
  async function watch(line) {
    watched?.abort();
    const details = find("attention");
    picked = line;
    details.hidden = !line || isBlank(line.source) || line.parts > 1;
    find("heat").replaceChildren();
    if (details.hidden || !details.open) return;
    const own = (watched = new AbortController());
    try {
      const found = await ask({ text: line.source, attention: true }, own.signal);
      const { text, attention } = found.translations[0].lines[0].hypotheses[line.rank];
      const isTold = attention?.length > 0; // not of every translation, nor of very long ones
      const content = isTold ? heat(words(line.source), words(text), attention) : "Nothing is told of this translation.";
      find("heat").replaceChildren(content);
    } catch (error) {
      if (!own.signal.aborted) say.textContent = error.message;
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

  const isTypedOn = (text, before) => text.startsWith(before) || before.startsWith(text);

  /** What was typed on, or corrected, is one translation, not many; one that was there before stays. */
  function remember(entry) {
    const isSame = (one, other) => ["text", "model", "from", "to"].every((part) => one[part] === other[part]);
    const others = earlier().filter((one) => !draft || !isSame(one, draft));
    const list = others.filter((one) => !isSame(one, entry));
    draft = list.length === others.length ? entry : null;
    typed = entry.text;
    keep([entry, ...list]);
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
    const model = models[pair.selectedIndex];
    const { from, to } = chosen(model);
    const decoding = { n_best: Math.min(1 + OTHERS, Number(model.decoding.beam), model.most_translations) };
    // A header would carry no character beyond Latin-1, and these as other bytes than the server's.
    const own = { model: model.name, source: from, target: to, api_key: key.value.trim(), document: true, decoding };
    const body = JSON.stringify({ ...own, ...fields });
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
        watch(line);
        say.textContent = "";
      });
      const item = element("li", "");
      item.append(button);
      list.append(item);
    }
    find("others").hidden = list.children.length === 0;
  }

  /** Makes a word the one at which the Tab key stops: they are many, and arrows lead from one to another. The others
      take no focus at all, because Chromium drops a selection that a mouse begins at the edge of a word that does. */
  function stopAt(word) {
    target.querySelector(".word[tabindex]")?.removeAttribute("tabindex");
    if (word) word.tabIndex = 0;
  }

  function draw() {
    target.replaceChildren();
    for (const line of lines) {
      const paragraph = element("p", "");
      paragraph.dir = "auto";
      for (const [index, text] of words(shown(line).text).entries()) {
        const word = element("span", text, "word"); // <button>s could not be selected, nor follow a script's direction
        word.setAttribute("role", "button");
        word.addEventListener("click", (event) => {
          const hasSelected = event.detail > 0 && !getSelection().isCollapsed; // by a mouse: keys click without detail
          if (!hasSelected) pick(line, index, word);
        });
        if (index > 0) paragraph.append(" ");
        paragraph.append(word);
      }
      target.append(paragraph);
    }
    stopAt(target.querySelector(".word"));
    allowCopy();
  }

  function allowCopy() {
    const isOutdated = target.getAttribute("aria-busy") === "true";
    find("copy").disabled = isOutdated || !lines.some((line) => shown(line).text);
  }

  function busy(isBusy) {
    target.setAttribute("aria-busy", isBusy);
    allowCopy();
  }

  function clear() {
    lines = [];
    draw();
    find("others").hidden = true;
    watch(null);
    busy(false);
  }

  /** Ends what is under way, for which nobody waits any more. */
  function cancel() {
    asked?.abort();
    watched?.abort();
    clearTimeout(timer);
  }

  async function translate() {
    cancel();
    const model = models[pair.selectedIndex];
    if (!model) return;
    const text = source.value;
    const length = [...text].length;
    const isTooLong = length > limit;
    const tooLong = `The text is too long: it has ${length} characters, and at most ${limit} are translated.`;
    say.textContent = isTooLong ? tooLong : "";
    if (isTooLong || isBlank(text)) {
      clear();
      return;
    }
    const own = (asked = new AbortController());
    busy(true);
    try {
      const found = await ask({ text, alignments: true }, own.signal);
      lines = found.translations[0].lines;
      for (const line of lines) line.rank = 0;
      draw();
      const only = lines.filter((line) => shown(line).text);
      find("others").hidden = true;
      if (only.length === 1) offer(only[0]);
      watch(only.length === 1 ? only[0] : null);
      remember({ text, translation: found.translations[0].text, model: model.name, ...chosen(model) });
      busy(false);
      say.textContent = "Translated.";
    } catch (error) {
      if (own.signal.aborted) return;
      if (error instanceof Away) {
        say.textContent = `${error.message}; it is asked again.`;
        timer = setTimeout(translate, error.pause);
        return;
      }
      clear();
      say.textContent = error.message;
    }
  }

  function later(event) {
    find("count").textContent = [...source.value].length;
    cancel();
    if (event?.isComposing) return; // its end is an event, too
    if (isBlank(source.value) || !isTypedOn(source.value, typed)) draft = null;
    typed = source.value;
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
      limit = settings.charLimit;
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
    draft = null;
    translate();
  }

  async function read(file) {
    if (file.size > BYTES * limit) throw new Error(`it has more than the ${limit} characters that are translated`);
    const bytes = await file.arrayBuffer();
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw new Error("it is no text in UTF-8");
    }
  }

  async function copy(text) {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return;
    }
    // Pages over plain HTTP have none, unless they are the same machine's. What is selected is copied there.
    const give = (event) => {
      event.clipboardData.setData("text/plain", text); // as paragraphs it would have more lines
      event.preventDefault();
    };
    document.addEventListener("copy", give);
    getSelection().selectAllChildren(target);
    const isCopied = document.execCommand("copy");
    getSelection().empty();
    document.removeEventListener("copy", give);
    if (!isCopied) throw new Error("the browser does not allow it");
  }

  source.addEventListener("input", later);
  source.addEventListener("compositionend", later);
  source.addEventListener("dragover", (event) => event.preventDefault());
  source.addEventListener("drop", async (event) => {
    const file = event.dataTransfer.files[0];
    if (!file) return;
    event.preventDefault();
    try {
      source.value = await read(file);
      later();
    } catch (error) {
      say.textContent = `The file cannot be read: ${error.message}`; // it may be a folder
    }
  });
  pair.addEventListener("change", () => choose());
  for (const list of [sourceLanguage, targetLanguage]) list.addEventListener("change", start);
  key.addEventListener("change", translate);
  target.addEventListener("keydown", (event) => {
    const word = event.target.closest(".word");
    if (!word || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const all = [...target.querySelectorAll(".word")];
    const here = all.indexOf(word);
    const right = getComputedStyle(word).direction === "rtl" ? -1 : 1;
    const steps = { ArrowLeft: -right, ArrowRight: right, ArrowUp: -1, ArrowDown: 1 };
    const next = { Home: all[0], End: all.at(-1) }[event.key] ?? all[here + steps[event.key]];
    const isPressed = event.key === "Enter" || event.key === " ";
    if (!next && !isPressed) return;
    event.preventDefault();
    if (isPressed) {
      word.click();
      return;
    }
    stopAt(next);
    next.focus();
  });
  find("form").addEventListener("submit", (event) => event.preventDefault());
  find("attention").addEventListener("toggle", () => watch(picked));
  find("forget").addEventListener("click", () => keep([]));
  find("copy").addEventListener("click", async () => {
    try {
      await copy(lines.map((line) => shown(line).text).join("\n"));
      say.textContent = "Copied.";
    } catch (error) {
      say.textContent = `Nothing was copied: ${error.message}`;
    }
  });
  show();
  begin();
})();
