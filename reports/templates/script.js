"use strict";
// The page reads without this. It opens what a link points at, filters answers, and unfolds what differs for print.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  const answers = all("details.prompt").map((element) => ({
    element,
    task: element.closest("[data-task]").dataset.task,
    arms: element.dataset.arms.split("\n"),
    is: element.dataset.is.split(" "),
    text: null,
  }));

  // The filter: task, arm that differs, what became of it, and any text in it.
  const select = (label, options) => {
    const box = make("select", {}, ...options.map(([value, text]) => make("option", { value, textContent: text })));
    box.addEventListener("change", () => filter());
    return [make("label", {}, make("span", { textContent: label }), box), box];
  };
  const names = (key) => [...new Set(answers.flatMap((one) => one[key]))].filter(Boolean).map((name) => [name, name]);
  const [taskLabel, task] = select("Task", [["", "all"], ...names("task")]);
  const [armLabel, arm] = select("Arm that differs", [["", "any"], ...names("arms")]);
  const [stateLabel, state] = select("Outcome", [
    ["", "all"], ["differs", "answers differ"], ["alike", "all alike"], ["lost", "a case lost"],
    ["gained", "a case gained"], ["failing", "a case not passed"], ["missing", "no answer"],
  ]);
  const text = make("input", { type: "search", placeholder: "in prompts and answers", autocomplete: "off" });
  const textLabel = make("label", {}, make("span", { textContent: "Text" }), text);
  const count = make("output", { textContent: `${answers.length} prompts` });

  const matches = (one, wanted) => {
    if (task.value && one.task !== task.value) return false;
    if (arm.value && !one.arms.includes(arm.value)) return false;
    if (state.value && !one.is.includes(state.value)) return false;
    if (!wanted) return true;
    one.text ??= one.element.textContent.toLowerCase();
    return one.text.includes(wanted);
  };
  const filter = () => {
    const wanted = text.value.trim().toLowerCase();
    const active = Boolean(wanted || task.value || arm.value || state.value);
    let shown = 0;
    for (const one of answers) {
      const hit = matches(one, wanted);
      one.element.hidden = !hit;
      shown += hit;
    }
    for (const group of all("details.alike")) {
      group.hidden = !group.querySelector("details.prompt:not([hidden])");
      if (active && !group.hidden) group.open = true;
    }
    for (const section of all("section.task")) {
      section.hidden = active && !section.querySelector("details.prompt:not([hidden])");
    }
    count.textContent = active ? `${shown} of ${answers.length} prompts` : `${answers.length} prompts`;
  };
  let pending = 0;
  text.addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(filter, 120);
  });

  const clear = make("button", { type: "button", textContent: "Show all" });
  clear.addEventListener("click", () => {
    for (const box of [task, arm, state, text]) box.value = "";
    filter();
  });
  const fold = (label, open) => {
    const button = make("button", { type: "button", textContent: label });
    button.addEventListener("click", () => {
      for (const one of answers) if (!one.element.hidden) one.element.open = open;
      if (open) for (const group of all("details.alike:not([hidden])")) group.open = true;
    });
    return button;
  };
  if (answers.length) {
    const bar = make("search", { className: "filter" }, taskLabel, armLabel, stateLabel, textLabel, clear,
      fold("Unfold answers", true), fold("Fold answers", false), count);
    bar.setAttribute("aria-label", "Filter the answers");
    document.querySelector("#overview").after(bar);
  }

  // A link unfolds what it leads to, also where the filter hides it.
  const follow = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (!target) return;
    if (target.closest("[hidden]")) clear.click();
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details.prompt:not([open])").filter((one) => !one.closest("details.alike"));
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
  });
})();
