"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const stage = document.getElementById("stage"), say = document.getElementById("say");
const hues = 8;
const state = {view: 0, layer: 0, heads: new Set(), show: "lines", pick: null};
let hover = null, board = null;

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
const view = () => data.views[state.view];
const layerIndex = () => Math.max(0, view().layers.indexOf(state.layer));
const chosenHeads = () => view().heads.map((head, i) => i).filter(i => state.heads.has(view().heads[i]));
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const headVariable = head => "--h" + (head - 1) % hues;
const rowHeight = () => parseFloat(colour("--row"));
// More words than this are set closer, so that more of them are seen at a time.
const manyWords = 30;
// Heads of one hue differ by their dashes: none, dashes, dots, and then a dash with ever more dots.
function dashes(head) {
  const round = Math.floor((head - 1) / hues), dot = [1, 4];
  return [[], [5, 4], dot][round] ?? [9, 4, ...Array.from({length: round - 2}, () => dot).flat()];
}
function barFill(head) {
  const round = Math.floor((head - 1) / hues), full = 1 + 3 / round;
  return round ? `repeating-linear-gradient(var(--c) 0 ${full}px, transparent ${full}px ${full + 2}px)` : "var(--c)";
}

// Weights are 16-bit numbers, the low byte first, in base64: [layers, heads, queries, keys].
function numbers(view) {
  if (!view.numbers) {
    const bytes = atob(view.weights);
    view.numbers = new Uint16Array(bytes.length / 2);
    for (let i = 0; i < view.numbers.length; ++i) {
      view.numbers[i] = bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8;
    }
  }
  return view.numbers;
}
function weight(layer, head, query, key) {
  const v = view();
  return numbers(v)[((layer * v.heads.length + head) * v.queries.length + query) * v.keys.length + key] / 65535;
}
function mean(query, key) {
  const heads = chosenHeads();
  return heads.reduce((sum, head) => sum + weight(layerIndex(), head, query, key), 0) / Math.max(1, heads.length);
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = text => Number.parseInt(text, 10);
  // Without an address, and where no word of the first view was asked for: what the output took from the source.
  const start = location.hash || data.picked === null ? "cross" : "";
  const place = kind => data.views.findIndex(v => v.kind === kind);
  state.view = Math.max(0, place(given.get("view")) < 0 ? place(start) : place(given.get("view")));
  state.layer = view().layers.includes(number(given.get("layer"))) ? number(given.get("layer")) : view().start;
  const heads = (given.get("heads") ?? "").split(",").map(number).filter(head => view().heads.includes(head));
  state.heads = new Set(heads.length ? heads : view().heads);
  state.show = ["lines", "map", "overview"].includes(given.get("show")) ? given.get("show") : "lines";
  const [, side, index] = /^([qk])(\d+)$/.exec(given.get("pick") ?? "") ?? [];
  const words = side === "q" ? view().queries : view().keys;
  state.pick = side && number(index) < words.length ? {side, i: number(index)} : null;
  if (!location.hash) state.pick = {side: "q", i: data.picked ?? 0};
}
function writeAddress() {
  const parts = [`view=${view().kind}`, `layer=${view().layers[layerIndex()]}`];
  if (state.heads.size < view().heads.length) parts.push(`heads=${[...state.heads].sort((a, b) => a - b)}`);
  if (state.show !== "lines") parts.push(`show=${state.show}`);
  if (state.pick) parts.push(`pick=${state.pick.side}${state.pick.i}`);
  try {
    history.replaceState(null, "", "#" + parts.join("&"));
  } catch {
    // Not allowed here: the page works without.
  }
}

function choice(type, name, label, checked, change, head) {
  const input = element("input", {type, name, checked});
  input.addEventListener("change", () => change(input.checked));
  const className = head ? "choice head" : "choice";
  const made = element("label", {className}, input, element("span", {textContent: label}));
  if (head) made.style.setProperty("--c", `var(${headVariable(head)})`);
  return made;
}
function controls() {
  const fill = (id, title, parts) => {
    const set = document.getElementById(id);
    set.replaceChildren(element("legend", {textContent: title}), ...parts);
    set.hidden = parts.length < 2;
  };
  fill("views", "Attention", data.views.map((v, i) => choice("radio", "view", v.name, i === state.view, () => {
    const layer = state.layer;
    state.view = i;
    state.layer = view().layers.includes(layer) ? layer : view().start;
    state.pick = null;
    controls();
    render();
  })));
  fill("layers", "Layer", view().layers.map((layer, i) =>
    choice("radio", "layer", layer, i === layerIndex(), () => { state.layer = layer; render(); })));
  const heads = view().heads.map(head => choice("checkbox", "head", head, state.heads.has(head), on => {
    if (on) state.heads.add(head); else state.heads.delete(head);
    render();
  }, head));
  for (const [title, every] of view().heads.length > 1 ? [["all", true], ["none", false]] : []) {
    const button = element("button", {type: "button", className: "plain", textContent: title});
    button.addEventListener("click", () => {
      state.heads = new Set(every ? view().heads : []);
      controls();
      render();
    });
    heads.push(button);
  }
  fill("heads", "Heads", heads);
  fill("shows", "Show", [["lines", "Lines"], ["map", "Heat map"], ["overview", "All layers and heads"]].map(
    ([show, title]) => choice("radio", "show", title, show === state.show, () => { state.show = show; render(); })));
}

function wordButton(text, side, i) {
  const button = element("button", {type: "button", className: "word", textContent: text, title: text, dir: "auto",
                                    tabIndex: i === 0 ? 0 : -1});
  button.dataset.side = side;
  button.dataset.i = i;
  return button;
}
function column(side, words, bars) {
  const list = element("ol", {className: "column " + (side === "q" ? "left" : "right")});
  words.forEach((text, i) => {
    const parts = [wordButton(text, side, i)];
    if (bars) {
      const box = element("span", {className: "bars"});
      for (const head of view().heads) {
        const bar = element("i", {title: `head ${head}`});
        bar.style.setProperty("--c", `var(${headVariable(head)})`);
        bar.style.background = barFill(head);
        bar.style.opacity = 0;
        box.append(bar);
      }
      parts.push(box);
    }
    if (side === "k") parts.reverse();
    list.append(element("li", {}, ...parts));
  });
  return list;
}
function treePicture(side) {
  const nodes = data.tree, row = rowHeight();
  const wide = Math.max(30, ...nodes.map(node => 8 + 7 * [...node.label].length));
  const width = (nodes[0].level + 1) * wide, left = side === "left";
  const x = level => left ? width - level * wide : level * wide, y = r => (r + .5) * row, sign = left ? -1 : 1;
  const escape = text => text.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
  const height = y(data.treeRows);
  let out = `<svg class="tree ${side}" role="img" aria-label="Parse tree" width="${width}" height="${height}">`;
  for (const node of nodes) {
    const own = x(node.level), parent = node.parent < 0 ? own + sign * wide * .9 : x(nodes[node.parent].level);
    out += `<path d="M${own} ${y(node.first)}V${y(node.last)}M${own} ${y(node.row)}H${parent}`;
    out += node.leaves.map(leaf => `M${own} ${y(leaf)}H${x(0)}`).join("") + `"/>`;
    out += `<text x="${own + sign * 3}" y="${y(node.row) - 3}" text-anchor="${left ? "end" : "start"}">`;
    out += escape(node.label) + "</text>";
  }
  const holder = element("template");
  holder.innerHTML = out + "</svg>";
  return holder.content.firstChild;
}

function renderLines() {
  const v = view();
  const canvas = element("canvas", {className: "lines"});
  canvas.setAttribute("aria-hidden", "true");
  board = element("div", {className: "board"}, element("h2", {className: "left", textContent: v.left}),
                  element("h2", {className: "right", textContent: v.right}));
  if (data.tree.length && v.treeSide) board.classList.add("beside");
  board.style.setProperty("--bar", Math.max(2, Math.min(6, 44 / v.heads.length)) + "px");
  if (data.tree.length && v.treeSide === "left") board.append(treePicture("left"));
  board.append(column("q", v.queries, true), element("div", {className: "between"}, canvas), column("k", v.keys, true));
  if (data.tree.length && v.treeSide === "right") board.append(treePicture("right"));
  stage.replaceChildren(board);
  update();
}

function update() {
  const v = view(), picked = hover ?? state.pick, heads = chosenHeads(), layer = layerIndex();
  if (state.show === "overview") return;
  for (const button of stage.querySelectorAll(".word")) {
    const own = picked && button.dataset.side === picked.side && Number(button.dataset.i) === picked.i;
    button.classList.toggle("on", Boolean(own));
    button.setAttribute("aria-pressed", Boolean(own));
  }
  if (state.show === "lines") {
    const rows = Math.max(v.queries.length, v.keys.length), row = rowHeight();
    const canvas = board.querySelector("canvas"), width = canvas.clientWidth, height = rows * row;
    canvas.parentElement.style.height = canvas.style.height = height + "px";
    // Browsers refuse canvases beyond some size.
    const scale = Math.min(window.devicePixelRatio || 1, 12000 / height);
    canvas.width = width * scale;
    canvas.height = height * scale;
    const brush = canvas.getContext("2d");
    brush.scale(scale, scale);
    brush.lineWidth = 1.8;
    brush.lineCap = "round";
    const spread = Math.min(row * .45, 1.6 * heads.length);
    heads.forEach((head, place) => {
      brush.strokeStyle = colour(headVariable(v.heads[head]));
      brush.setLineDash(dashes(v.heads[head]));
      // Beside each other, or heads that agree would hide one another.
      const offset = heads.length < 2 ? 0 : (place / (heads.length - 1) - .5) * spread;
      for (let q = 0; q < v.queries.length; ++q) {
        if (picked?.side === "q" && picked.i !== q) continue;
        for (let k = 0; k < v.keys.length; ++k) {
          if (picked?.side === "k" && picked.i !== k) continue;
          const w = weight(layer, head, q, k);
          if (w < .02) continue;
          brush.globalAlpha = w;
          brush.beginPath();
          brush.moveTo(2, (q + .5) * row + offset);
          brush.lineTo(width - 2, (k + .5) * row + offset);
          brush.stroke();
        }
      }
    });
    for (const side of ["q", "k"]) {
      const lists = board.querySelectorAll(side === "q" ? ".column.left li" : ".column.right li");
      lists.forEach((item, i) => {
        let most = 0;
        item.querySelectorAll("i").forEach((bar, head) => {
          let w = 0;
          if (picked && heads.includes(head)) {
            if (picked.side === side) w = picked.i === i ? 1 : 0;
            else w = side === "k" ? weight(layer, head, picked.i, i) : weight(layer, head, i, picked.i);
          }
          most = Math.max(most, w);
          bar.style.opacity = w;
        });
        item.querySelector(".word").classList.toggle("faint", Boolean(picked) && most < .05);
      });
    }
  }
  describe(picked);
}
function describe(picked) {
  const v = view(), heads = chosenHeads().map(i => v.heads[i]);
  const whose = heads.length === 1 ? `head ${heads[0]}` : `mean of ${heads.length} heads`;
  say.replaceChildren();
  if (!heads.length) { say.append("No head is chosen."); return; }
  if (state.show === "overview") {
    say.append("Each picture is a head of a layer: who attends downwards, to what across. Choose one for its lines.");
    return;
  }
  if (!picked) {
    say.append(`${v.title}, layer ${v.layers[layerIndex()]} of ${v.layerCount}, ${whose}. `,
               state.show === "map" ? "Point at a cell, or choose a word." : "Hover over, tap or walk to a word.");
    return;
  }
  const asks = picked.side === "q", others = asks ? v.keys : v.queries;
  const weights = others.map((text, i) => ({text, w: asks ? mean(picked.i, i) : mean(i, picked.i)}));
  weights.sort((a, b) => b.w - a.w);
  say.append(element("b", {textContent: (asks ? v.queries : v.keys)[picked.i], dir: "auto"}),
             asks ? ` attends to (${whose}): ` : ` is attended to by (${whose}): `);
  for (const {text, w} of weights.slice(0, 6)) {
    if (w < .01) continue;
    say.append(element("span", {}, element("b", {textContent: text, dir: "auto"}), " " + w.toFixed(2)), " ");
  }
}

function paint(canvas, weights, rows, columns) {
  canvas.width = columns;
  canvas.height = rows;
  const brush = canvas.getContext("2d"), image = brush.createImageData(columns, rows);
  const [r, g, b] = colour("--s0").match(/[0-9a-f]{2}/gi).map(hex => parseInt(hex, 16));
  for (let q = 0, at = 0; q < rows; ++q) {
    for (let k = 0; k < columns; ++k, at += 4) image.data.set([r, g, b, Math.round(255 * weights(q, k))], at);
  }
  brush.putImageData(image, 0, 0);
}
function renderMap() {
  const v = view(), row = rowHeight(), canvas = element("canvas"), words = column("q", v.queries, false);
  paint(canvas, mean, v.queries.length, v.keys.length);
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    const q = Math.min(v.queries.length - 1, Math.max(0, Math.floor((event.clientY - box.top) / row)));
    const k = Math.min(v.keys.length - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * v.keys.length)));
    say.replaceChildren(element("b", {textContent: v.queries[q], dir: "auto"}), " → ",
                        element("b", {textContent: v.keys[k], dir: "auto"}), " " + mean(q, k).toFixed(3));
  });
  const across = element("div", {className: "across"});
  for (const text of v.keys) across.append(element("span", {textContent: text, title: text, dir: "auto"}));
  board = element("div", {className: "map"}, across, words, canvas);
  stage.replaceChildren(board);
  // As wide as there is room, but not so wide that a cell is a stripe.
  const room = (stage.clientWidth - words.offsetWidth) / v.keys.length;
  board.style.setProperty("--cell", Math.floor(Math.min(3 * row, Math.max(row, room))) + "px");
  canvas.style.width = `calc(${v.keys.length} * var(--cell))`;
  canvas.style.height = v.queries.length * row + "px";
  update();
}
function renderOverview() {
  const v = view();
  board = element("div", {className: "thumbs"});
  board.style.gridTemplateColumns = `repeat(${v.heads.length}, minmax(64px, 240px))`;
  v.layers.forEach((layer, l) => v.heads.forEach((head, h) => {
    const canvas = element("canvas");
    paint(canvas, (q, k) => weight(l, h, q, k), v.queries.length, v.keys.length);
    const button = element("button", {type: "button", className: "thumb"}, canvas, `layer ${layer}, head ${head}`);
    button.addEventListener("click", () => {
      Object.assign(state, {layer, heads: new Set([head]), show: "lines"});
      controls();
      render();
    });
    board.append(button);
  }));
  stage.replaceChildren(board);
  describe(null);
}
function caption() {
  const v = view(), unit = data.unit;
  const where = state.show === "overview" ? `${v.layers.length} of ${v.layerCount} layers, ${v.heads.length} heads`
                                          : `layer ${v.layers[layerIndex()]} of ${v.layerCount}`;
  const places = {lines: ["on the left", "on the right"], map: ["a row", "a column"],
                  overview: ["a row", "a column"]}[state.show];
  document.getElementById("shown").textContent =
    `${v.title}, ${where}: how much each ${unit} of ${v.asks} (${places[0]}) attends to each ${unit} of ${v.gives} ` +
    `(${places[1]}); the weights of a head sum to 1.`;
  for (const hint of document.querySelectorAll("[data-show]")) hint.hidden = hint.dataset.show !== state.show;
}
function render() {
  hover = null;
  document.documentElement.classList.toggle("dense", Math.max(view().queries.length, view().keys.length) > manyWords);
  caption();
  ({lines: renderLines, map: renderMap, overview: renderOverview})[state.show]();
  writeAddress();
}

const wordAt = event => event.target.closest?.(".word");
const placeOf = button => ({side: button.dataset.side, i: Number(button.dataset.i)});
stage.addEventListener("pointerover", event => {
  if (event.pointerType !== "mouse") return;
  const button = wordAt(event), next = button ? placeOf(button) : null;
  if (next?.side === hover?.side && next?.i === hover?.i) return;
  hover = next;
  update();
});
stage.addEventListener("pointerleave", () => { if (hover) { hover = null; update(); } });
stage.addEventListener("focusin", event => {
  const button = wordAt(event);
  if (button?.matches(":focus-visible")) { hover = placeOf(button); update(); }
});
stage.addEventListener("focusout", () => { hover = null; update(); });
stage.addEventListener("click", event => {
  const button = wordAt(event);
  if (!button) return;
  const place = placeOf(button);
  state.pick = state.pick?.side === place.side && state.pick.i === place.i ? null : place;
  hover = null;
  update();
  writeAddress();
});
document.addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;  // the browser's
  if (event.key === "Escape") { state.pick = hover = null; update(); writeAddress(); return; }
  const button = wordAt(event);
  if (!button) return;
  const place = placeOf(button);
  const length = side => stage.querySelectorAll(`.word[data-side="${side}"]`).length;
  if (event.key === "ArrowUp") --place.i;
  else if (event.key === "ArrowDown") ++place.i;
  else if (event.key === "Home") place.i = 0;
  else if (event.key === "End") place.i = length(place.side) - 1;
  else if (event.key === "ArrowLeft" && place.side === "k") place.side = "q";
  else if (event.key === "ArrowRight" && place.side === "q") place.side = "k";
  else return;
  if (!length(place.side)) return;
  event.preventDefault();
  place.i = Math.min(length(place.side) - 1, Math.max(0, place.i));
  for (const other of stage.querySelectorAll(`.word[data-side="${place.side}"]`)) other.tabIndex = -1;
  const next = stage.querySelector(`.word[data-side="${place.side}"][data-i="${place.i}"]`);
  next.tabIndex = 0;
  next.focus();
  hover = place;
  update();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
addEventListener("resize", () => { if (state.show === "lines") update(); else if (state.show === "map") render(); });
addEventListener("hashchange", () => { readAddress(); controls(); render(); });
readAddress();
controls();
render();
