"use strict";
// Draws every plot of the page in the colours of its style, again when the style changes: dark, light, print.
(() => {
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

  const config = {
    displaylogo: false,
    responsive: true,
    modeBarButtons: [["toImage", "resetScale2d"]],
  };

  const plots = Array.from(document.querySelectorAll(".plot"), (place) => ({
    place,
    figure: JSON.parse(place.nextElementSibling.textContent),
  }));

  const draw = () => {
    for (const { place, figure } of plots) {
      const { data, layout } = painted(figure);
      const { width, height } = place.getBoundingClientRect();
      Plotly.react(place, data, { ...layout, width, height }, config);
    }
  };

  draw();
  for (const change of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(change).addEventListener("change", draw);
  }
})();
