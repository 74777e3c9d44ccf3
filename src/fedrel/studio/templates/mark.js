"use strict";
// The page on which text is tried: entities are marked, relations asked for, and kept as JSON.
(() => {
  const form = document.getElementById("try");
  if (!form) return;
  const { post } = window.studio;
  const [text, marked, status] = ["text", "marked", "status"].map((id) => document.getElementById(id));
  const [model, kind] = ["model", "kind"].map((id) => document.getElementById(id));
  let marks = []; // [start, end, type], in order, none overlapping
  let lines = null;

  const show = () => {
    marked.replaceChildren();
    let at = 0;
    marks.forEach(([start, end, type], number) => {
      marked.append(text.value.slice(at, start));
      const mark = document.createElement("mark");
      mark.textContent = text.value.slice(start, end);
      mark.tabIndex = 0;
      mark.setAttribute("role", "button");
      mark.setAttribute("aria-label", `Remove the mark of ${mark.textContent}`);
      if (type) mark.title = type;
      mark.addEventListener("click", () => remove(number));
      mark.addEventListener("keydown", ({ key }) => {
        if (key === "Enter" || key === "Delete" || key === " ") remove(number);
      });
      marked.append(mark);
      at = end;
    });
    marked.append(text.value.slice(at));
  };

  const remove = (number) => {
    if (!getSelection().isCollapsed) return; // a drag that ends on a mark is no click
    marks.splice(number, 1);
    show();
  };

  const add = (start, end, type = kind.value) => {
    while (start < end && /\s/.test(text.value[start])) start += 1;
    while (end > start && /\s/.test(text.value[end - 1])) end -= 1;
    if (start >= end) return;
    marks = marks.filter(([from, to]) => to <= start || from >= end);
    marks.push([start, end, type]);
    marks.sort(([a], [b]) => a - b);
    show();
  };

  // The place of a point of the shown text, in characters.
  const place = (node, offset) => {
    const before = document.createRange();
    before.selectNodeContents(marked);
    before.setEnd(node, offset);
    return before.toString().length;
  };

  marked.addEventListener("mouseup", () => {
    const selection = getSelection();
    if (selection.isCollapsed || !marked.contains(selection.anchorNode) || !marked.contains(selection.focusNode)) return;
    const ends = [
      place(selection.anchorNode, selection.anchorOffset),
      place(selection.focusNode, selection.focusOffset),
    ].sort((a, b) => a - b);
    selection.removeAllRanges();
    add(...ends);
  });
  document.getElementById("mark").addEventListener("click", () => add(text.selectionStart, text.selectionEnd));
  document.getElementById("everywhere").addEventListener("click", () => {
    const types = new Map(marks.map(([start, end, type]) => [text.value.slice(start, end), type]));
    for (const [name, type] of types) {
      for (let at = text.value.indexOf(name); at >= 0; at = text.value.indexOf(name, at + name.length)) {
        if (!marks.some(([from, to]) => from < at + name.length && at < to)) add(at, at + name.length, type);
      }
    }
  });

  const showTypes = () => {
    const types = model.selectedOptions[0].dataset.types.split("|").filter(Boolean);
    kind.replaceChildren(...types.map((type) => new Option(type)));
    document.getElementById("kinds").hidden = !types.length;
  };
  model.addEventListener("change", showTypes);
  showTypes();

  // Marks stay where their words are still the same.
  let before = text.value;
  text.addEventListener("input", () => {
    const words = marks.map(([start, end]) => before.slice(start, end));
    marks = marks.filter(([start, end], number) => text.value.slice(start, end) === words[number]);
    before = text.value;
    show();
  });

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    status.textContent = "reading…";
    try {
      const { kb, names, threshold } = form.elements;
      const found = await post("/try", {
        model: model.value,
        text: text.value,
        marks,
        names: names.value,
        kb: kb.value,
        threshold: threshold.value === "" ? null : Number(threshold.value),
      });
      lines = found.lines;
      document.getElementById("found").replaceWith(window.studio.element(found.html));
      status.textContent = "";
    } catch (error) {
      status.textContent = error.message;
    }
    button.disabled = false;
  });

  document.addEventListener("click", ({ target }) => {
    if (target.id !== "save") return;
    const file = new Blob([lines.map((line) => `${JSON.stringify(line)}\n`).join("")], { type: "application/json" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = "findings.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  show();
  form.querySelector("[type=submit]").disabled = false;
})();
