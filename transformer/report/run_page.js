"use strict";
const choices = {over: ["step", "time"], show: ["worst", "best"]};
const state = {};

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, values] of Object.entries(choices)) {
    state[name] = values.includes(given.get(name)) ? given.get(name) : values[0];
  }
}
function render() {
  for (const [name, values] of Object.entries(choices)) {
    for (const part of document.querySelectorAll(`[data-${name}]`)) part.hidden = part.dataset[name] !== state[name];
    for (const input of document.querySelectorAll(`input[name="${name}"]`)) {
      input.checked = values.includes(input.value) && input.value === state[name];
    }
  }
}
document.addEventListener("change", event => {
  if (!(event.target.name in choices)) return;
  state[event.target.name] = event.target.value;
  render();
  const parts = Object.keys(choices).filter(name => state[name] !== choices[name][0]);
  try {
    history.replaceState(null, "", "#" + parts.map(name => `${name}=${state[name]}`).join("&"));
  } catch {
    // Not allowed here: the page works without.
  }
});
document.addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;  // the browser's
  const item = event.target.closest?.(".sentences li");
  if (!item) return;
  const next = {ArrowUp: item.previousElementSibling, ArrowDown: item.nextElementSibling,
                Home: item.parentElement.firstElementChild, End: item.parentElement.lastElementChild}[event.key];
  if (!next) return;
  event.preventDefault();
  item.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
addEventListener("hashchange", () => { readAddress(); render(); });
readAddress();
render();
const seconds = Number(document.querySelector("main").dataset.reload);
if (seconds > 0) setTimeout(() => location.reload(), 1000 * seconds);
