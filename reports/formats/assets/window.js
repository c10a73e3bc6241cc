// A part of the run, judged again from the columns in the page by the rules of plimsoll.slo.statistics. Nothing is fetched.
"use strict";
(() => {
  // -- numbers as plimsoll.reports.wording.units writes them --------------------------------------------------------

  const fixed = (x, digits) => {
    const text = x.toFixed(digits), long = x.toFixed(Math.min(100, digits + 60));
    if (!/50{59}$/.test(long.slice(0, long.length))) return text;
    const down = long.slice(0, long.length - 60).replace(/\.$/, "");  // a tie goes to the even digit
    return Number(down.at(-1)) % 2 ? text : down;
  };
  const significant = (x, digits = 3) => {
    if (x === 0) return "0";
    const places = (v) => Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(v))));
    let decimals = places(x), text = fixed(x, Math.min(decimals, 12));
    const rounded = Number(text);
    if (rounded !== 0 && decimals > 0) { decimals = places(rounded); text = fixed(x, Math.min(decimals, 12)); }
    return text;
  };
  const STEPS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  const duration = (ns) => {
    if (ns === Infinity) return "∞";
    if (ns === -Infinity || Number.isNaN(ns)) return "–";
    if (ns === 0) return "0 ms";
    if (Math.abs(ns) >= 6e11) {
      const s = Math.round(ns / 1e9), two = (n) => String(n).padStart(2, "0");
      return s >= 3600 ? `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min` : `${Math.floor(s / 60)} min ${two(s % 60)} s`;
    }
    for (const [scale, name] of STEPS) {
      if (name === "s" || Number(significant(Math.abs(ns) / scale)) < 1000)
        return name === "ns" ? `${fixed(ns, 0)} ns` : `${significant(ns / scale)} ${name}`;
    }
  };
  const percent = (share) => {
    if (share === 0 || share === 1) return `${share * 100} %`;
    let digits = 4, text = significant(share * 100, digits);
    while (Number(text) >= 100 && digits < 12) text = significant(share * 100, ++digits);
    return (text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text) + " %";
  };
  const count = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
  const clock = (ns) => {
    if (ns === 0) return "0 s";
    if (Math.abs(ns) < 1e9) return duration(ns).replace(/\.0+ /, " ");
    const s = ns / 1e9;
    return s < 120 || s % 60 ? Number(s.toFixed(3)) + " s" : s % 3600 || s < 7200 ? s / 60 + " min" : s / 3600 + " h";
  };

  // -- the binomial, by the incomplete beta function ----------------------------------------------------------------

  const LANCZOS = [676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
  const lgamma = (z) => {
    if (z > 15) {  // Stirling's series
      const r = 1 / z, q = r * r;
      return (z - 0.5) * Math.log(z) - z + 0.91893853320467274 + r * (1 / 12 - q * (1 / 360 - q * (1 / 1260 - q * (1 / 1680 - q / 1188))));
    }
    if (z < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * z)) - lgamma(1 - z);
    let sum = 0.99999999999980993;
    LANCZOS.forEach((c, i) => { sum += c / (z + i); });
    const t = z + 6.5;
    return 0.91893853320467274 + (z - 0.5) * Math.log(t) - t + Math.log(sum);
  };
  const fraction = (a, b, x) => {  // Lentz
    let c = 1, d = 1 / (1 - (a + b) * x / (a + 1) || 1e-300), h = d;
    for (let m = 1; m < 100000; m++) {
      let step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
      d = 1 / (1 + step * d || 1e-300); c = 1 + step / c || 1e-300; h *= d * c;
      step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
      d = 1 / (1 + step * d || 1e-300); c = 1 + step / c || 1e-300;
      const last = d * c;
      h *= last;
      if (Math.abs(last - 1) < 1e-15) break;
    }
    return h;
  };
  const beta = (a, b, x) => {
    if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
    const front = Math.exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * Math.log(x) + b * Math.log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * fraction(a, b, x) / a : 1 - front * fraction(b, a, 1 - x) / b;
  };
  const atMost = (k, n, q) => k < 0 ? 0 : k >= n ? 1 : beta(n - k, k + 1, 1 - q);
  const atLeast = (k, n, q) => k <= 0 ? 1 : k > n ? 0 : beta(k, n - k + 1, q);
  const studentBelow = (df, t) => {
    const half = beta(df / 2, 0.5, df / (df + t * t)) / 2;
    return t > 0 ? 1 - half : half;
  };
  const edge = (inside, outside, holds, times = 60) => {
    for (let i = 0; i < times; i++) {
      const middle = (inside + outside) / 2;
      if (holds(middle)) outside = middle; else inside = middle;
    }
    return outside;
  };
  const first = (holds, start, most) => {
    if (start > most) return null;
    if (holds(start)) return start;
    let bad = start, step = 1;
    while (bad + step < most && !holds(bad + step)) { bad += step; step *= 2; }
    let good = Math.min(bad + step, most);
    if (good === most && !holds(most)) return null;
    while (good - bad > 1) { const middle = Math.floor((bad + good) / 2); if (holds(middle)) good = middle; else bad = middle; }
    return good;
  };

  // -- what is known of some values: memory.py, distance.py ---------------------------------------------------------

  const memoryOf = (requests, [time, own, doubt]) => {
    if (requests < 30) [time, own, doubt] = [1, 1, 0];
    const held = requests / Math.max(1, (2 * own) ** doubt), m = requests / (2 * time);
    const design = doubt === 0 ? 1 : Math.min(Math.max(1, 2 * time * (1 + 8 / m)), requests) ** doubt;
    return { requests, held, design };
  };
  const blocksOf = (flags) => {  // flags of 0 and 1 in order of due time
    const n = flags.length, number = Math.max(1, Math.min(30, Math.floor(n / 10))), bad = [], size = [];
    let total = 0;
    for (let i = 0; i < number; i++) {
      const from = Math.floor(i * (n / number)), to = i === number - 1 ? n : Math.floor((i + 1) * (n / number));
      let sum = 0;
      for (let j = from; j < to; j++) sum += flags[j];
      bad.push(sum); size.push(to - from); total += sum;
    }
    return { n, total, bad, size };
  };
  const pOfBlocks = (seen, limit, few) => {
    const bare = (few ? atMost : atLeast)(seen.total, seen.n, limit);
    if (seen.size.length < 8) return bare;
    let sum = 0, most = 0, square = 0;
    seen.bad.forEach((bad, i) => {
      const excess = (few ? 1 : -1) * (bad - limit * seen.size[i]), against = Math.max(excess, 0);
      sum += excess; most = Math.max(most, against); square += against * against;
    });
    const gap = -sum - most;
    if (gap <= 0) return 1;
    const spread = Math.sqrt(3 * square);
    return Math.max(bare, spread ? studentBelow(seen.size.length - 1, -gap / spread) : 0);
  };
  const CALM = 0.05, reachFor = (alpha) => Math.sqrt(Math.log(alpha) / Math.log(CALM));
  const bulkOf = (values, memory, allowed) => {
    const share = Math.min(0.75 - 1.4 * Math.min(allowed, 0.5) ** 2, 0.5 + 0.04 * memory.held * Math.min(1, memory.requests / 1000)) * allowed;
    return values.at(values.n - 1 - Math.floor(share * values.n));
  };
  const leastOf = (values) => Math.max(values.at(Math.floor(0.01 * (values.n - 1))), 0);
  const required = (memory, allowed) => {
    const times = 1.6 - Math.log(allowed) - 3.4 * Math.min(allowed, 0.5) ** 2;
    const length = Math.min(0.885 * (1000 / memory.requests) ** 0.6, 5.5 / Math.sqrt(memory.held));
    return Math.max(1.25, times * Math.max(0.6, length)) * Math.max(1, 0.5 / memory.held);
  };
  const chance = (reach) => reach > 0 ? CALM ** Math.min(reach * reach, 100) : 1;
  const reach = (values, limit, memory, allowed) => {
    const base = leastOf(values) / limit, bulk = bulkOf(values, memory, allowed) / limit;
    const from = base < 1 && bulk > base ? (1 - base) / (bulk - base) / 3 : 0;
    const far = bulk <= 0 ? Infinity : Math.max(1 / bulk, from);
    return far >= 1.25 ? far / required(memory, allowed) : 0;
  };
  const wholeBeyond = (values) => {
    const [low, middle, high] = [0.1, 0.5, 0.9].map((q) => values.at(Math.floor(q * (values.n - 1))));
    if (values.n < 30 || middle === Infinity || high === Infinity) return -Infinity;
    return Math.min(low * (1 - 2 ** -53), middle - 3 * (high - low));
  };
  const MULTIPLES = [2, 4, 8, 16, 32];
  const farMany = (values, limit, allowed) => {
    let found = 1;
    for (const multiple of MULTIPLES) {
      const share = (values.finite - values.upTo(multiple * limit)) / values.n;
      if (share > 0) found = Math.min(found, allowed / multiple / share);
    }
    return wholeBeyond(values) / limit >= 1 ? Math.min(found, CALM) : found;
  };

  // -- the verdict: share.py ----------------------------------------------------------------------------------------

  const byNumber = (seen, limit, few) => {
    if (seen.blocks) return pOfBlocks(seen.blocks, limit, few);
    const exactly = few ? atMost : atLeast, bare = exactly(seen.bad, seen.n, limit);
    return seen.design === 1 ? bare : Math.max(bare, exactly(seen.bad / seen.design, seen.n / seen.design, limit));
  };
  const pFew = (seen, limit, far) => {
    if (!seen.n) return 1;
    let number = byNumber(seen, limit, true);
    if (far) number = Math.max(atMost(seen.bad, seen.n, limit), Math.min(number, chance(reach(far.values, far.limit, far.memory, limit))));
    return seen.errors ? Math.max(number, pOfBlocks(seen.errors, limit, true)) : number;
  };
  const pMany = (seen, limit, far) => {
    if (!seen.n) return 1;
    const bare = atLeast(seen.bad, seen.n, limit);
    if (seen.growing) return bare;
    let number = byNumber(seen, limit, false);
    if (seen.errors) number = Math.min(number, pOfBlocks(seen.errors, limit, false));
    if (seen.blocks || !seen.bad) return number;
    return Math.max(bare, Math.min(number, limit * seen.n / seen.bad, far ? farMany(far.values, far.limit, limit) : 1));
  };
  const shareBounds = (seen, alpha, far) => {
    const { n, bad } = seen, share = bad / n, a = alpha * (1 + 1e-9);
    let low = bad ? edge(share, 0, (q) => atLeast(bad, n, q) <= alpha) : 0;
    let high = bad < n ? edge(share, 1, (q) => atMost(bad, n, q) <= alpha) : 1;
    if (high < 1 && pFew(seen, high, far) > a) high = edge(high, 1, (q) => pFew(seen, q, far) <= a, 40);
    if (low > 0 && pMany(seen, low, far) > a) low = edge(low, 0, (q) => pMany(seen, q, far) <= a, 40);
    return [Math.min(low, share), Math.max(high, share)];
  };
  const percentileBounds = (values, allowed, alpha, evidence) => {
    const n = values.n, memory = evidence.memory, seen = (bad) => ({ ...evidence, n, bad });
    const lower = first((k) => atMost(k, n, 1 - allowed) > alpha, 0, n);
    const upper = first((k) => atLeast(k, n, 1 - allowed) <= alpha, 0, n + 1);
    const above = first((rank) => pFew(seen(n - values.upTo(values.at(rank - 1))), allowed) <= alpha, upper, n);
    const below = first((rank) => pMany(seen(n - values.below(values.at(n - rank))), allowed) <= alpha, n + 1 - lower, n);
    let low = below === null ? -Infinity : values.at(n - below), high = above === null ? Infinity : values.at(above - 1);
    if (lower >= 1) {
      let near = -Infinity;
      for (const multiple of [1, ...MULTIPLES]) {
        const of = multiple === 1 ? n : values.finite, rank = of - Math.ceil(allowed / multiple / alpha * n);
        if (rank >= 0 && rank < of) near = Math.max(near, values.at(rank) / multiple);
      }
      if (alpha >= CALM) near = Math.max(near, wholeBeyond(values));
      low = Math.max(low, Math.min(values.at(lower - 1), near));
    }
    if (upper <= n && pFew({ ...seen(0), design: 1 }, allowed) <= alpha) {
      const base = leastOf(values), bulk = bulkOf(values, memory, allowed);
      let far = Math.max(bulk, 0);
      if (bulk > base && bulk !== Infinity) {
        const factor = Math.max(1.25, required(memory, allowed) * reachFor(alpha));
        far = Math.min(bulk * factor, base + (bulk - base) * factor * 3);
      }
      high = Math.min(high, Math.max(values.at(upper - 1), far));
    }
    return [Math.max(low, 0), high];
  };

  // -- the columns --------------------------------------------------------------------------------------------------

  const data = JSON.parse(document.getElementById("columns").textContent);
  const unpack = async () => {
    const packed = Uint8Array.from(atob(data.columns), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    let at = 0;
    const next = ([n, width]) => {
      const found = new Float64Array(n);
      for (let k = 0, scale = 1; k < width; k++, scale *= 256) for (let i = 0; i < n; i++) found[i] += bytes[at++] * scale;
      return found;
    };
    for (const one of data.series) {
      // As they were packed: counts of cells, groups, sizes, steps.
      const order = ["counts", "groups", "sizes", "steps"].filter((key) => one[key]);
      for (const key of order) one[key] = next(one[key]);
      one.begins = new Float64Array(data.buckets + 1);
      for (let i = 0; i < data.buckets; i++) one.begins[i + 1] = one.begins[i] + one.sizes[i];
      one.values = one.steps.map((steps) => steps ? (steps - 1) * one.step : Infinity);
    }
  };

  // Values of some buckets, ascending, each with how often it came; +Infinity for what failed.
  const part = (series, from, to, group) => {
    const first = series.begins[from], last = series.begins[to], chosen = (column) => {
      const all = column.subarray(first, last);
      return group ? all.filter((_, i) => series.groups[first + i] === group) : all;
    };
    const rows = chosen(series.values);
    if (series.unit === "flag") return { n: rows.length, rows };
    let ordered = rows.slice(), sums = null, n = rows.length;
    if (series.counts) {
      const counts = chosen(series.counts), places = Uint32Array.from(rows, (_, i) => i);
      places.sort((a, b) => rows[a] === rows[b] ? 0 : rows[a] - rows[b]);
      ordered = Float64Array.from(places, (i) => rows[i]);
      n = 0;
      sums = Float64Array.from(places, (i) => n += counts[i]);
    } else ordered.sort();
    const search = (array, holds) => { let low = 0, high = array.length; while (low < high) { const m = (low + high) >> 1; if (holds(array[m])) high = m; else low = m + 1; } return low; };
    const upto = (place) => sums ? place ? sums[place - 1] : 0 : place;
    const found = {
      n, rows: sums ? null : rows,
      at: (rank) => sums ? ordered[search(sums, (sum) => sum > rank)] : ordered[rank],
      below: (x) => upto(search(ordered, (v) => v >= x)),
      upTo: (x) => upto(search(ordered, (v) => v > x)),
    };
    found.finite = found.below(Infinity);
    return found;
  };
  const quantile = (values, num, den) => values.n ? values.at(Math.max(0, Math.ceil(num * values.n / den) - 1)) : NaN;

  const judgeOne = (goal, from, to, chosen) => {
    if (goal.why) return goal;
    if (goal.group && chosen && goal.group !== chosen) return { ...goal, why: `it is not about ${data.values[chosen - 1]}` };
    const series = data.series[goal.series], group = goal.group || chosen, values = part(series, from, to, group);
    const { allowed } = goal, n = values.n;
    if (!n) return { ...goal, outcome: "INCONCLUSIVE", n, bad: 0, observed: NaN, interval: [NaN, NaN], few: 1, many: 1 };
    const memory = memoryOf(n, goal.memory), evidence = { n, memory, design: memory.design, growing: data.growing };
    let far = null;
    if (series.unit === "flag") {
      evidence.blocks = blocksOf(values.rows);
      evidence.bad = evidence.blocks.total;
    } else {
      evidence.bad = n - values.upTo(goal.limit);
      if (values.finite < n) {
        const failed = values.rows ? values.rows.map((v) => v === Infinity ? 1 : 0) : failures(from, to, group);
        if (failed.length !== n) return { ...goal, why: "too many requests for the page to hold which failed" };
        evidence.errors = blocksOf(failed);
      }
      if (goal.far) far = { values, limit: goal.limit, memory };
    }
    const few = pFew(evidence, allowed, far), many = pMany(evidence, allowed, far);
    const outcome = many <= data.alpha ? "FAIL" : few <= data.alpha ? "PASS" : "INCONCLUSIVE";
    const bad = evidence.bad;
    let observed = bad / n, interval;
    if (goal.ratio) {
      interval = shareBounds(evidence, data.alpha, far);
      if (goal.down) { observed = (n - bad) / n; interval = [1 - interval[1], 1 - interval[0]]; }
    } else {
      observed = quantile(values, ...goal.p);
      interval = percentileBounds(values, allowed, data.alpha, evidence);
    }
    return { ...goal, outcome, n, bad, observed, interval, few, many };
  };
  const failures = (from, to, group) => {
    const flags = data.series.find((one) => one.name === "error");
    return flags ? part(flags, from, to, group).rows : [];
  };
  // Holm: a FAIL stands only where it does among all objectives of the run, those that are not judged here as well.
  const judge = (from, to, group = 0) => {
    const found = data.objectives.map((goal) => judgeOne(goal, from, to, group));
    const ordered = found.filter((one) => one.many !== undefined).sort((a, b) => a.many - b.many);
    let stands = true;
    ordered.forEach((one, step) => {
      stands = stands && one.many * (data.tests - step) <= data.alpha;
      if (one.outcome === "FAIL" && !stands) one.outcome = "INCONCLUSIVE";
    });
    return found;
  };
  const measure = (from, to, group = 0) => data.series.filter((one) => one.unit === "ns").map((one) => {
    const values = part(one, from, to, group);
    return { name: one.name, title: one.title, n: values.n, p: [[1, 2], [9, 10], [99, 100], [999, 1000]].map((p) => quantile(values, ...p)) };
  });

  // -- the panel ----------------------------------------------------------------------------------------------------

  const panel = document.getElementById("window"), all = [0, data.buckets];
  let chosen = null, group = 0, whole = null;
  const ns = (edge) => edge === data.buckets ? data.end : data.start + edge * data.width;
  const el = (tag, attributes, ...inside) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...inside);
    return node;
  };
  const SIGNS = { PASS: "✓", FAIL: "✕", INCONCLUSIVE: "?" };
  const chip = (outcome) => el("span", { class: "chip " + outcome.toLowerCase() }, el("b", { "aria-hidden": "true" }, SIGNS[outcome]), " " + outcome);
  const shown = (goal, value) => Number.isNaN(value) ? "–" : goal.ratio ? percent(value) : duration(value);
  const row = (tag, cells) => el("tr", {}, ...cells.map((cell, i) => el(i && tag === "td" ? "td" : "th", i ? { class: "num" } : { scope: tag === "td" ? "row" : "col" }, cell)));
  const table = (head, rows) => el("div", { class: "scroll" }, el("table", { class: "figures" }, el("thead", {}, row("th", head)), el("tbody", {}, ...rows)));

  const metrics = () => {
    const here = measure(...(chosen ?? all), group);
    whole ??= measure(...all);
    const rows = here.map((one, i) => row("td", [one.title, count(one.n), ...one.p.map((v, k) =>
      el("span", {}, duration(v), el("span", { class: "aside" }, duration(whole[i].p[k]))))]));
    return table(["", "n", "p50", "p90", "p99", "p99.9"], rows);
  };
  const goals = () => {
    const rows = judge(...(chosen ?? all), group).map((goal) => {
      if (goal.why) return el("tr", { class: "unknown" }, el("th", { scope: "row" }, el("code", {}, goal.text)), el("td", { colspan: "4" }, `not judged here: ${goal.why}`));
      const [low, high] = goal.interval.map((v) => shown(goal, v));
      return row("td", [el("code", {}, goal.text), chip(goal.outcome), shown(goal, goal.observed), `${low} to ${high}`, `${count(goal.bad)} of ${count(goal.n)}`]);
    });
    return table(["objective", "in this part", "observed", `bounds, ${percent(1 - data.alpha)} each`, "bad"], rows);
  };
  const requests = () => {
    const flags = data.series.find((one) => one.name === "error");
    if (!flags) return "";
    const { rows } = part(flags, ...(chosen ?? all), group), failed = rows.reduce((a, b) => a + b, 0);
    const [from, to] = (chosen ?? all).map(ns);
    return `${count(rows.length)} requests due (${significant(rows.length / (to - from) * 1e9)}/s), ${count(failed)} failed`;
  };

  const render = () => {
    const about = data.values[group - 1], [from, to] = chosen ?? all, active = chosen || group;
    const held = panel.contains(document.activeElement) ? document.activeElement.tagName : "";
    const title = chosen ? `${clock(ns(from))} to ${clock(ns(to))}` : "The whole run";
    const heading = about ? `${title}, ${data.label} ${about}` : title;
    document.getElementById("said").textContent = active ? `${heading}: ${requests()}` : heading;
    const clear = el("button", { type: "button" }, "Clear");
    clear.addEventListener("click", () => { group = 0; select(null); });
    const head = el("div", { class: "window-head" }, el("h3", {}, heading), el("span", { class: "requests" }, active ? requests() : "Drag across a chart below to judge a part of the run. On a chart with the keyboard: arrows, then Shift and arrows."));
    if (data.label) {
      const choose = el("select", { "aria-label": data.label }, el("option", { value: "0" }, `every ${data.label}`), ...data.values.map((value, i) => el("option", { value: i + 1 }, value)));
      choose.value = String(group);
      choose.addEventListener("change", () => { group = Number(choose.value); select(chosen); });
      head.append(choose);
    }
    if (active) head.append(clear);
    panel.replaceChildren(head);
    if (active) {
      panel.append(metrics());
      if (data.objectives.length && !data.invalid) panel.append(goals());
      const exact = data.cells ? `Of so many requests the page holds counts: percentiles are to ${percent(data.cells)}, what breaks a limit is exact` : "Times are rounded up to a step that no limit falls between";
      const why = data.invalid ? "The run is invalid, so no part of it is judged." : "Requests count where they were due; small numbers are of the whole run. Each objective is judged as measured, by the rules of the whole run and its memory. A part that was chosen after looking proves nothing: the verdict of the run stands.";
      panel.append(el("p", { class: "fine" }, `${why} ${exact}.`));
    }
    if (held) (panel.querySelector(held) ?? panel.querySelector("select") ?? panel).focus();  // whoever uses keys goes on here
  };

  // -- brushing -----------------------------------------------------------------------------------------------------

  const brushes = [];
  const select = (next) => {
    const kept = next?.map((edge) => Math.min(Math.max(edge, 0), data.buckets));
    chosen = kept && kept[0] < kept[1] ? kept : null;
    const [from, to] = chosen ?? all, about = group ? `,${group}` : "";
    const address = chosen || group ? `#t=${from}-${to}${about}` : location.pathname + location.search;
    if (location.protocol !== "blob:") history.replaceState(null, "", address);  // one kept by the live page has none
    for (const brush of brushes) brush.paint();
    render();
  };
  const brush = (node) => {
    const read = JSON.parse(node.querySelector("script").textContent), svg = node.querySelector("svg");
    if (read.x.length !== data.buckets || read.x.length < 2) return;
    const half = (read.x[1] - read.x[0]) / 2, last = read.x.at(-1);
    const edgeAt = (i) => i < data.buckets ? read.x[0] - half + i * 2 * half : 2 * last - (read.x[0] - half + (i - 1) * 2 * half);
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ class: "brush", y: read.top, height: read.base - read.top, visibility: "hidden" })) rect.setAttribute(name, value);
    svg.prepend(rect);
    const bucket = (event) => {
      const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * read.width;
      return Math.min(Math.max(Math.floor((at - edgeAt(0)) / (2 * half)), 0), data.buckets - 1);
    };
    let start = null, from = 0, cursor = null, reading = false;
    const moved = (event) => Math.abs(event.clientX - from) > 4;
    node.addEventListener("pointerdown", (event) => { if (event.button) return;
      start = bucket(event);
      from = event.clientX;
      node.setPointerCapture(event.pointerId);
    });
    node.addEventListener("pointercancel", () => { start = null; paint(chosen); });
    node.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const end = bucket(event);
      if (moved(event)) paint([Math.min(start, end), Math.max(start, end) + 1]);
    });
    node.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const end = bucket(event), dragged = moved(event);
      if (dragged || chosen) select(dragged ? [Math.min(start, end), Math.max(start, end) + 1] : null);
      start = null;
      if (dragged) panel.scrollIntoView({ block: "nearest" });
    });
    node.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") { cursor = null; reading = false; select(null); }
      if (!step || !event.shiftKey) { cursor = null; reading ||= Boolean(step); return; }
      const read = Math.min(Math.max(Number(svg.dataset.at) - step, 0), data.buckets - 1);  // where the read-out stood
      if (reading) cursor = [read, read];
      reading = false;
      cursor = cursor ?? (chosen ? [chosen[0], chosen[1] - 1] : [step > 0 ? 0 : data.buckets - 1, step > 0 ? -1 : data.buckets]);
      cursor = [cursor[0], Math.min(Math.max(cursor[1] + step, 0), data.buckets - 1)];
      event.preventDefault();
      select([Math.min(...cursor), Math.max(...cursor) + 1]);
    });
    const paint = (edges) => {
      rect.setAttribute("visibility", edges ? "visible" : "hidden");
      if (!edges) return;
      rect.setAttribute("x", edgeAt(edges[0]));
      rect.setAttribute("width", edgeAt(edges[1]) - edgeAt(edges[0]));
    };
    node.classList.add("brushable");
    brushes.push({ paint: () => paint(chosen) });
  };

  document.addEventListener("DOMContentLoaded", async () => {
    if (!globalThis.DecompressionStream) return;
    await unpack();
    panel.hidden = false;
    for (const node of document.querySelectorAll('[data-group^="time"]')) brush(node);
    const follow = () => {
      const [, from, to, about] = location.hash.match(/^#t=(\d+)-(\d+)(?:,(\d+))?$/) ?? [];
      group = Number(about ?? 0) <= data.values.length ? Number(about ?? 0) : 0;
      select(from ? [Number(from), Number(to)] : null);
    };
    addEventListener("hashchange", follow);
    follow();
    globalThis.plimsoll = { judge, measure, words: { duration, percent }, select: (from, to, about = 0) => { group = about; select([from, to]); } };
  });
})();
