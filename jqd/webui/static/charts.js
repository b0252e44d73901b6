// Draws the last hour from the table on the page; without this file the table is all there is.
"use strict";

const charts = [
  { id: "chart-counts", columns: [[1, "--link"], [2, "--warn"], [3, "--good"], [4, "--bad"]] },
  { id: "chart-seconds", columns: [[5, "--link", [4, 4]], [6, "--link"], [7, "--good", [4, 4]], [8, "--good"]], log: true },
];
const dark = matchMedia("(prefers-color-scheme: dark)");
let drawn = [];

function column(table, place) {
  return Array.from(table.tBodies[0].rows, (row) => {
    const said = row.cells[place].dataset.n;
    return said === "" ? null : Number(said);
  });
}

function options(chart, width, color) {
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
  const minutes = { ...axis, values: (_, splits) => splits.map((at) => new Date(at * 1000).toISOString().slice(11, 16)) };
  return {
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    width, height: 180, legend: { show: false }, cursor: { show: false },
    scales: { y: chart.log ? { distr: 3 } : { range: (_, low, high) => [0, Math.max(1, high)] } },
    axes: [minutes, { ...axis, size: 60 }],
    series: [{}, ...chart.columns.map(([, name, dash]) => ({ stroke: color(name), width: 2, dash, points: { show: false } }))],
  };
}

function draw() {
  const table = document.querySelector("#hour table");
  for (const each of drawn) each.destroy();
  drawn = [];
  if (!table) return;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  document.getElementById("charts").hidden = false;
  for (const chart of charts) {
    const place = document.getElementById(chart.id);
    const data = [0, ...chart.columns.map(([index]) => index)].map((index) => column(table, index));
    if (chart.log && data.slice(1).every((each) => each.every((value) => value === null))) continue;
    drawn.push(new uPlot(options(chart, place.clientWidth, color), data, place));
  }
}

draw();
dark.addEventListener("change", draw);
addEventListener("resize", draw);
document.addEventListener("htmx:after:swap", () => { if (document.getElementById("hour")) draw(); });
