"use strict";
// Draws every plot of the page in the colours of its style, again when the style changes: dark, light, print.
(() => {
  if (typeof Plotly === "undefined") {
    const missing = document.getElementById("no-plots");
    if (missing) missing.hidden = false;
    return;
  }
  const style = getComputedStyle(document.documentElement);

  // Replaces every "var(--name)" in a figure by what the page's style says it is.
  const painted = (value) => {
    if (typeof value === "string") {
      return value.startsWith("var(--") ? style.getPropertyValue(value.slice(4, -1)).trim() : value;
    }
    if (Array.isArray(value)) return value.map(painted);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, painted(inner)]));
  };

  const room = (place) => ({ width: place.clientWidth, height: place.clientHeight });

  const config = { displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };

  const plots = Array.from(document.querySelectorAll(".plot"), (place) => ({
    place,
    figure: JSON.parse(place.nextElementSibling.textContent),
  }));

  // Sizes are set here and at once: plotly's own resizing waits, and printing does not wait for it.
  const draw = (plot) => {
    const { data, layout } = painted(plot.figure);
    plot.size = room(plot.place);
    Plotly.react(plot.place, data, { ...layout, ...plot.size }, config);
  };
  const drawAll = () => plots.forEach(draw);

  drawAll();
  for (const change of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(change).addEventListener("change", drawAll);
  }
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = plots.find(({ place }) => place === target);
      const { width, height } = room(target);
      if (width !== plot.size.width || height !== plot.size.height) draw(plot);
    }
  });
  for (const { place } of plots) sizes.observe(place);

  // A page that is watched live gives new figures to its plots, by their titles; an unknown title is told.
  window.redraw = (figures) => {
    let all = true;
    for (const [title, figure] of Object.entries(figures)) {
      const plot = plots.find(({ place }) => place.dataset.plot === title);
      if (!plot) {
        all = false;
        continue;
      }
      plot.figure = figure;
      draw(plot);
    }
    return all;
  };
})();
