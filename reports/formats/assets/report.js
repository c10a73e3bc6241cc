// Read-outs under the pointer. Every value is already in the page; without this script only the read-outs are missing.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const tip = document.querySelector(".tip");
  const charts = [];

  const make = (tag, attributes) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };

  const nearest = (xs, at) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < at) low = middle; else high = middle;
    }
    return at - xs[low] <= xs[high] - at ? low : high;
  };

  const draw = (chart, index) => {
    const { data, hair, dots } = chart;
    hair.setAttribute("x1", data.x[index]);
    hair.setAttribute("x2", data.x[index]);
    hair.removeAttribute("visibility");
    data.series.forEach((line, i) => {
      const y = line.y[index];
      dots[i].setAttribute("visibility", y === null ? "hidden" : "visible");
      if (y !== null) { dots[i].setAttribute("cx", data.x[index]); dots[i].setAttribute("cy", y); }
    });
  };

  const say = (chart, index, x, y) => {
    const head = document.createElement("b");
    head.textContent = chart.data.head[index];
    const rows = chart.data.series.map((line) => {
      const row = document.createElement("div");
      for (const text of [line.label, line.text[index]]) {
        const cell = document.createElement("span");
        cell.textContent = text;
        row.append(cell);
      }
      return row;
    });
    tip.replaceChildren(head, ...rows);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - box.width - 16 : x + 16;
    tip.style.left = Math.max(6, left) + "px";
    tip.style.top = Math.min(Math.max(6, y - box.height / 2), innerHeight - box.height - 6) + "px";
  };

  const together = (chart) => chart.group ? charts.filter((other) => other.group === chart.group) : [chart];

  const show = (chart, index, x, y) => {
    chart.index = index;
    chart.svg.dataset.at = index;
    for (const other of together(chart)) draw(other, Math.min(index, other.data.x.length - 1));
    say(chart, index, x, y);
  };

  const hide = (chart) => {
    tip.hidden = true;
    for (const other of together(chart)) {
      other.hair.setAttribute("visibility", "hidden");
      for (const dot of other.dots) dot.setAttribute("visibility", "hidden");
    }
  };

  const onKey = (chart, event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") { hide(chart); return; }
    if (!step) return;
    event.preventDefault();
    const count = chart.data.x.length;
    const index = Math.min(Math.max((chart.index ?? (step > 0 ? -1 : count)) + step, 0), count - 1);
    const box = chart.svg.getBoundingClientRect();
    show(chart, index, box.left + (chart.data.x[index] / chart.data.width) * box.width, box.top + box.height / 2);
  };

  for (const node of document.querySelectorAll("[data-chart]")) {
    const data = JSON.parse(node.querySelector("script").textContent);
    if (!data.x.length) continue;
    const svg = node.querySelector("svg");
    const hair = make("line", { class: "cross-hair", y1: data.top, y2: data.base, visibility: "hidden" });
    const dots = data.series.map((line) => make("circle", { class: "reading " + line.class, r: 4, visibility: "hidden" }));
    svg.append(hair, ...dots);
    const chart = { data, svg, hair, dots, group: node.dataset.group };
    charts.push(chart);
    node.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * data.width;
      show(chart, nearest(data.x, at), event.clientX, event.clientY);
    });
    node.addEventListener("pointerleave", () => hide(chart));
    node.addEventListener("blur", () => hide(chart));
    node.addEventListener("keydown", (event) => onKey(chart, event));
  }
})();
