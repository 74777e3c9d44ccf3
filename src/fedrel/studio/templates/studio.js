"use strict";
// What happens on the studio's pages: events from the server, the list of runs, notes and tags.
(() => {
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));

  // A part of a page as the server wrote it, with every text escaped.
  const element = (html) => {
    const holder = document.createElement("template");
    holder.innerHTML = html.trim();
    return holder.content.firstElementChild;
  };

  const post = async (address, value) => {
    const answer = await fetch(address, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(value),
    });
    const found = await answer.json().catch(() => ({ problem: `the server answered ${answer.status}` }));
    if (!answer.ok) throw new Error([found.problem, found.hint].filter(Boolean).join(". "));
    return found;
  };
  window.studio = { all, element, post };

  // Events
  const { stream } = document.body.dataset;
  if (stream) {
    const source = new EventSource(stream);
    source.addEventListener("message", ({ data }) => {
      const event = JSON.parse(data);
      if (event.reload) {
        source.close();
        location.reload();
        return;
      }
      for (const [name, html] of Object.entries(event.parts || {})) {
        for (const place of all(`[data-part="${name}"]`)) place.replaceWith(element(html));
      }
      if (event.plots && window.redraw && !window.redraw(event.plots)) location.reload();
      if (event.rows) changeRows(event.rows);
    });
    addEventListener("pagehide", () => source.close());
  }

  // The list of runs
  const body = document.getElementById("rows");
  const filter = document.getElementById("filter");
  let order = null;

  const changeRows = (rows) => {
    if (!body) {
      location.reload();
      return;
    }
    for (const [id, html] of Object.entries(rows)) {
      const old = all("tr", body).find((row) => row.dataset.id === id);
      const chosen = old && old.querySelector("input:checked");
      if (html === null) {
        if (old) old.remove();
        continue;
      }
      const row = element(`<table><tbody>${html}</tbody></table>`).querySelector("tr");
      if (old) old.replaceWith(row);
      else body.prepend(row);
      if (chosen) for (const box of all("input", row)) box.checked = true;
    }
    if (order) sort();
    narrow();
    choose();
  };

  const narrow = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    const rows = all("tr", body);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    document.getElementById("shown").textContent = words.length ? `${shown} of ${rows.length}` : "";
  };

  const sort = () => {
    const { place, numbers, down } = order;
    const key = (row) => {
      const cell = row.cells[place];
      const value = cell.dataset.sort ?? cell.textContent.trim().toLowerCase();
      return numbers ? (value === "" ? null : Number(value)) : value;
    };
    const rows = all("tr", body).map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
    });
    body.append(...rows.map(([, row]) => row));
  };

  const choose = () => {
    const chosen = all("input:checked", body).length;
    const button = document.getElementById("compare");
    button.disabled = chosen === 0;
    button.textContent = chosen ? `Compare ${chosen}` : "Compare";
  };

  if (body) {
    filter.addEventListener("input", narrow);
    body.addEventListener("change", choose);
    for (const button of all("button.sort")) {
      button.addEventListener("click", () => {
        const place = button.closest("tr").cells;
        const at = Array.from(place).indexOf(button.parentElement);
        const numbers = button.dataset.kind === "number";
        order = { place: at, numbers, down: order && order.place === at ? !order.down : numbers };
        for (const cell of place) cell.removeAttribute("aria-sort");
        button.parentElement.setAttribute("aria-sort", order.down ? "descending" : "ascending");
        sort();
      });
    }
    addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
        event.preventDefault();
        filter.focus();
      }
    });
    choose();
  }

  // Parts that take a while to compute
  for (const place of all("[data-fetch]")) {
    fetch(place.dataset.fetch)
      .then((answer) => (answer.ok ? answer.text() : ""))
      .then((html) => {
        const holder = document.createElement("template");
        holder.innerHTML = html || "<p class=quiet>The differences could not be computed.</p>";
        place.replaceChildren(holder.content);
      });
  }

  // Notes and tags
  for (const form of all("form[data-remarks]")) {
    form.querySelector("[type=submit]").disabled = false; // before this script is loaded, it would send nothing
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const said = form.querySelector("[role=status]");
      try {
        const tags = form.elements.tags.value.split(",");
        await post("/remarks", { id: form.dataset.remarks, note: form.elements.note.value, tags });
        said.textContent = "kept";
      } catch (error) {
        said.textContent = error.message;
      }
    });
  }

  // Every plot can be saved as SVG, in a file that is named after it.
  for (const place of all("figure > .plot")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "save";
    button.textContent = "SVG";
    button.setAttribute("aria-label", `Save ${place.dataset.plot} as SVG`);
    button.addEventListener("click", () => {
      const filename = place.dataset.plot.toLowerCase().replace(/[^a-z0-9]+/g, "-");
      Plotly.downloadImage(place, { format: "svg", width: 900, height: 560, filename });
    });
    place.before(button);
  }
})();
