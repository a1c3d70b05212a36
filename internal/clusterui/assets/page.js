// Replaces the part of the page that is live, without a change of focus or scroll position. Without
// this script the page is complete, and is refreshed by the browser's own button.
"use strict";
const pause = document.getElementById("pause");
const seconds = Number(document.body.dataset.seconds) || 10;
let paused = false;
pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
});

// place returns where the focus is, so that it is found again in the new content.
function place(live) {
  const on = document.activeElement;
  if (!live.contains(on)) return null;
  if (on.id) return (root) => root.querySelector("#" + CSS.escape(on.id));
  const all = [...live.querySelectorAll("a, button, input, [tabindex]")];
  const at = all.indexOf(on);
  const href = on.getAttribute("href");
  return (root) => (href && root.querySelector(`a[href="${CSS.escape(href)}"]`)) || root.querySelectorAll("a, button, input, [tabindex]")[at];
}

async function refresh() {
  const live = document.getElementById("live");
  const typing = document.activeElement && document.activeElement.tagName === "INPUT";
  if (paused || typing || document.hidden) return;
  const answer = await fetch(location.href, { cache: "no-store" });
  const text = await answer.text();
  const next = new DOMParser().parseFromString(text, "text/html").getElementById("live");
  if (!next || paused) return;
  const find = place(live);
  const scrolls = [...live.querySelectorAll(".scroll")].map((e) => [e.scrollLeft, e.scrollTop]);
  const verdict = live.querySelector("#verdict");
  const said = next.querySelector("#verdict");
  // A status that is the same is kept as an element, so that a screen reader does not repeat it.
  if (verdict && said && verdict.textContent === said.textContent) said.replaceWith(verdict);
  live.replaceChildren(...next.childNodes);
  [...live.querySelectorAll(".scroll")].forEach((e, i) => scrolls[i] && e.scrollTo(...scrolls[i]));
  const on = find && find(live);
  if (on) on.focus({ preventScroll: true });
}

setInterval(() => refresh().catch(() => {}), seconds * 1000);
