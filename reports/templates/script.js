"use strict";
// The page reads without this. It opens what a link points at, unfolds everything for print, and folds on demand.
(() => {
  const openTo = (element) => {
    for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  };
  const follow = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (!target) return;
    openTo(target);
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();

  const answers = () => document.querySelectorAll("details.prompt, details.alike");
  const bar = document.createElement("div");
  bar.className = "fold-all";
  for (const [label, open] of [["Unfold all answers", true], ["Fold all answers", false]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => answers().forEach((one) => { one.open = open; }));
    bar.append(button);
  }
  document.querySelector("#overview").append(bar);

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details.prompt:not([open]), .fold details:not([open])")]
      .filter((one) => !one.closest("details.alike"));
    folded.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));
})();
