// Draws what evaluate found (data.js: the constant dashboard), as Grafana lays it out.
'use strict';

const palette = ['#73bf69', '#f2cc0c', '#8ab8ff', '#ff780a', '#f2495c', '#5794f2', '#b877d9', '#e0b400', '#96d98d', '#ffa6b0', '#c0d8ff', '#705da0'];

// scaled writes a number with a prefix of its unit: three digits that count.
function scaled(v, base, prefixes, unit) {
  let i = 0;
  for (; Math.abs(v) >= base && i < prefixes.length - 1; i++) v /= base;
  return `${+v.toPrecision(3)}${prefixes[i] || unit ? ' ' : ''}${prefixes[i]}${unit}`;
}

function seconds(v) {
  if (v === 0) return '0 s';
  const [size, unit] = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's'], [1e-3, 'ms'], [1e-6, 'µs']].find(([size]) => Math.abs(v) >= size) ?? [1e-9, 'ns'];
  return `${+(v / size).toPrecision(3)} ${unit}`;
}

// units are Grafana's, by their identifiers, as far as the dashboard has them.
const units = {
  short: v => scaled(v, 1000, ['', 'K', 'Mil', 'Bil'], ''),
  cps: v => scaled(v, 1000, ['', 'K', 'M', 'G'], 'c/s').replace(' Kc', ' kc'),
  pps: v => scaled(v, 1000, ['', 'k', 'M', 'G'], 'p/s'),
  Bps: v => scaled(v, 1000, ['', 'k', 'M', 'G'], 'B/s'),
  bytes: v => scaled(v, 1024, ['', 'Ki', 'Mi', 'Gi'], 'B'),
  percentunit: v => `${+(v * 100).toPrecision(3)}%`,
  s: seconds,
};

// increments are the steps of axes whose unit does not count by tens.
const increments = {
  bytes: Array.from({ length: 50 }, (_, i) => 2 ** i),
  s: [...Array.from({ length: 9 }, (_, i) => [1, 2, 5].map(n => n * 10 ** (i - 9))).flat(), 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400],
};

function element(tag, parent, text = '', className = '') {
  const out = document.createElement(tag);
  out.textContent = text;
  out.className = className;
  parent.append(out);
  return out;
}

// stacked adds each line to those below it.
function stacked(lines) {
  const below = dashboard.times.map(() => 0);
  return lines.map(values => values.map((v, i) => (v === null ? null : (below[i] += v))));
}

function plot(panel, into) {
  const { unit, min, custom } = panel.fieldConfig.defaults;
  const format = units[unit];
  if (!format) throw new Error(`${panel.title}: no unit ${unit}`);
  const stacking = custom.stacking.mode === 'normal';
  let lines = panel.series.map(s => s.values);
  if (stacking) lines = stacked(lines);
  const opacity = Math.round(custom.fillOpacity * 2.55).toString(16).padStart(2, '0');
  const axis = { stroke: '#ccccdc', font: '11px "DejaVu Sans"', grid: { stroke: 'rgba(204,204,220,0.08)', width: 1 }, ticks: { show: false } };
  new uPlot({
    width: into.clientWidth, height: into.clientHeight, padding: [8, 12, 0, 0],
    tzDate: at => uPlot.tzDate(new Date(at * 1e3), 'Etc/UTC'),
    cursor: { show: false },
    scales: { y: { range: (_, low, high) => {
      const from = min ?? low;
      return [from, high > from ? from + (high - from) * 1.08 : from + 1];
    } } },
    axes: [
      { ...axis, space: 60, size: 24, values: (_, ticks) => ticks.map(at => new Date(at * 1e3).toISOString().slice(11, 16)), incrs: [60, 120, 300, 600, 1800] },
      { ...axis, space: 28, size: 66, ...(increments[unit] && { incrs: increments[unit] }), values: (_, ticks) => ticks.map(format) },
    ],
    series: [{}, ...panel.series.map((_, i) => ({
      stroke: palette[i % palette.length], fill: palette[i % palette.length] + opacity, width: 1.25, points: { show: false },
    }))],
    bands: stacking ? lines.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })) : [],
  }, [dashboard.times, ...lines], into);
}

function draw(panel, main) {
  const { x, y, w, h } = panel.gridPos;
  const box = element('section', main);
  box.style.gridArea = `${y + 1} / ${x + 1} / span ${h} / span ${w}`;
  if (panel.type === 'row') {
    box.className = 'row';
    box.append(panel.title);
    return;
  }
  if (panel.type !== 'timeseries') throw new Error(`${panel.title}: panels of type ${panel.type} cannot be drawn`);
  element('h2', box, panel.title);
  if (!panel.series) {
    element('div', box, 'No data', 'none');
    return;
  }
  const into = element('div', box, '', 'plot');
  const legend = element('ul', box);
  panel.series.forEach((s, i) => element('li', legend, s.legend).style.setProperty('--color', palette[i % palette.length]));
  plot(panel, into);
}

const header = document.querySelector('header');
const clock = at => new Date(at * 1e3).toISOString().slice(11, 19);
element('b', header, dashboard.title);
dashboard.variables.forEach(label => element('span', header, `${label}: All`));
element('span', header, `${clock(dashboard.times[0])} to ${clock(dashboard.times.at(-1))} UTC`);
dashboard.panels.forEach(panel => draw(panel, document.querySelector('main')));
