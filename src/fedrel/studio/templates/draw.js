"use strict";
// Draws every plot of the page in the colours of its style, again when the style changes: dark, light, print.
(() => {
  if (typeof Plotly === "undefined") {
    document.getElementById("no-plots").hidden = false;
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
  const draw = () => {
    for (const { place, figure } of plots) {
      const { data, layout } = painted(figure);
      Plotly.react(place, data, { ...layout, ...room(place) }, config);
    }
  };

  draw();
  for (const change of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(change).addEventListener("change", draw);
  }
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) Plotly.relayout(target, room(target));
  });
  for (const { place } of plots) sizes.observe(place);
})();
