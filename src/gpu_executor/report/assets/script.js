"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const showTheme = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(isDark()));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);
  showTheme();

  const STAGES = ["fill", "copy in", "compute", "copy out", "drain"];
  const ROW = 26, TITLE = 24, AXIS = 26, SPACE = 12, END = 12;

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function formatTime(microseconds) {
    const digits = (value) => Number(value.toPrecision(3)).toString();
    return microseconds < 1000 ? `${digits(microseconds)} µs` : `${digits(microseconds / 1000)} ms`;
  }

  function listTracks(spans) {
    const group = (track) => (track.startsWith("calling") ? 0 : track.startsWith("copy thread") ? 1 : 2);
    const first = (track) =>
      Math.min(...spans.filter((span) => span.track === track).map((span) => STAGES.indexOf(span.stage)));
    const order = (track) => 10 * group(track) + (group(track) === 2 ? first(track) : 0);
    const tracks = [...new Set(spans.map((span) => span.track))];
    return tracks.sort((a, b) => order(a) - order(b) || a.localeCompare(b));
  }

  class Timeline {
    constructor(figure) {
      this.figure = figure;
      this.box = figure.querySelector(".timeline");
      this.range = figure.querySelector(".range");
      this.panels = JSON.parse(figure.querySelector(".timeline-data").textContent);
      for (const panel of this.panels) {
        panel.tracks = listTracks(panel.spans);
        // Short stages last: they are drawn wider than they are, and longer ones would cover them.
        panel.spans.sort((a, b) => (b.end_us - b.begin_us) - (a.end_us - a.begin_us));
      }
      this.end = Math.max(...this.panels.flatMap((panel) => panel.spans.map((span) => span.end_us)));
      this.from = 0;
      this.to = this.end;
      this.chunk = null;
      this.pointers = new Map();
      this.listen();
      this.draw();
      new ResizeObserver(() => {
        if (this.measure() !== this.width) this.draw();
      }).observe(this.box);
    }

    get length() { return this.to - this.from; }

    show(from, to) {
      const length = Math.min(Math.max(to - from, this.end / 2000), this.end);
      this.from = Math.min(Math.max(from, 0), this.end - length);
      this.to = this.from + length;
      this.draw();
    }

    zoom(factor, at = 0.5) {
      const fixed = this.from + at * this.length, length = this.length * factor;
      this.show(fixed - at * length, fixed - at * length + length);
    }

    move(share) { this.show(this.from + share * this.length, this.to + share * this.length); }

    act(action) {
      const actions = {
        in: () => this.zoom(0.5), out: () => this.zoom(2),
        left: () => this.move(-0.25), right: () => this.move(0.25), reset: () => this.show(0, this.end),
      };
      actions[action]();
    }

    listen() {
      for (const each of this.figure.querySelectorAll("[data-action]")) {
        each.addEventListener("click", () => this.act(each.dataset.action));
      }
      const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "reset", Home: "reset" };
      this.box.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
        event.preventDefault();
        this.act(keys[event.key]);
      });
      this.box.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.share(event.clientX));
      }, { passive: false });
      this.box.addEventListener("pointerdown", (event) => {
        this.pointers.set(event.pointerId, event.clientX);
        this.box.setPointerCapture(event.pointerId);
        this.box.classList.add("moving");
      });
      this.box.addEventListener("pointermove", (event) => this.drag(event));
      for (const name of ["pointerup", "pointercancel"]) {
        this.box.addEventListener(name, (event) => {
          this.pointers.delete(event.pointerId);
          if (this.pointers.size === 0) this.box.classList.remove("moving");
        });
      }
      this.box.addEventListener("pointerover", (event) => this.mark(event.target.dataset.chunk));
      this.box.addEventListener("pointerleave", () => this.mark(undefined));
    }

    share(clientX) {
      const box = this.box.getBoundingClientRect();
      const x = ((clientX - box.left) / box.width) * this.width;
      return Math.min(Math.max((x - this.labels) / (this.width - this.labels - END), 0), 1);
    }

    drag(event) {
      if (!this.pointers.has(event.pointerId)) return;
      const before = this.share(this.pointers.get(event.pointerId)), now = this.share(event.clientX);
      if (this.pointers.size === 1) {
        this.move(before - now);
      } else {
        const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => this.share(x));
        const spread = Math.max(Math.abs(now - other), 0.01);
        this.zoom(Math.abs(before - other) / spread, other);
      }
      this.pointers.set(event.pointerId, event.clientX);
    }

    mark(chunk) {
      if (this.chunk === chunk) return;
      this.chunk = chunk;
      for (const each of this.box.querySelectorAll(".span")) {
        each.classList.toggle("dim", chunk !== undefined && each.dataset.chunk !== chunk);
      }
    }

    measure() { return Math.max(this.box.clientWidth, 260); }

    draw() {
      this.width = this.measure();
      this.labels = this.width < 520 ? 0 : 112;
      const titles = this.labels ? 0 : 15;
      const height = this.panels.reduce(
        (sum, panel) => sum + TITLE + panel.tracks.length * (ROW + titles) + SPACE, AXIS);
      const svg = element("svg", { viewBox: `0 0 ${this.width} ${height}`, width: this.width, height, "aria-hidden": "true" });
      svg.append(this.clip(height));
      let y = 0;
      for (const panel of this.panels) y = this.drawPanel(svg, panel, y, titles) + SPACE;
      this.drawAxis(svg, y);
      this.box.replaceChildren(svg);
      this.chunk = undefined;
      this.range.textContent = `${formatTime(this.from)} to ${formatTime(this.to)} of ${formatTime(this.end)}`;
    }

    clip(height) {
      const clip = element("clipPath", { id: "timeline-clip" });
      clip.append(element("rect", { x: this.labels, y: 0, width: this.width - this.labels - END, height }));
      return clip;
    }

    at(microseconds) {
      return this.labels + ((microseconds - this.from) / this.length) * (this.width - this.labels - END);
    }

    drawPanel(svg, panel, top, titles) {
      const end = Math.max(...panel.spans.map((span) => span.end_us));
      svg.append(element("text", { x: 0, y: top + 16, class: "label panel-title" }, `${panel.mode}: ${formatTime(end)}`));
      let y = top + TITLE;
      for (const track of panel.tracks) {
        const anchor = this.labels ? { x: this.labels - 8, y: y + 17, "text-anchor": "end" } : { x: 0, y: y + 11 };
        svg.append(element("text", { ...anchor, class: "tick" }, track));
        y += titles;
        svg.append(element("rect", { x: this.labels, y, width: this.width - this.labels - END, height: ROW - 4, class: "track" }));
        const group = element("g", { "clip-path": "url(#timeline-clip)" });
        for (const span of panel.spans) {
          if (span.track === track && span.end_us >= this.from && span.begin_us <= this.to) {
            group.append(this.drawSpan(span, y, panel.mode));
          }
        }
        svg.append(group);
        y += ROW;
      }
      return y;
    }

    drawSpan(span, y, mode) {
      const x = this.at(span.begin_us), width = Math.max(this.at(span.end_us) - x, 2.5);
      const group = element("g", { class: "span" });
      group.dataset.chunk = `${mode} ${span.chunk}`;
      const style = STAGES.indexOf(span.stage);
      const rect = element("rect", { x, y: y + 1, width, height: ROW - 6, class: `bar s${style}` });
      rect.dataset.chunk = group.dataset.chunk;
      const text = `${span.stage} ${span.chunk + 1}`;
      const length = formatTime(span.end_us - span.begin_us);
      rect.append(element("title", {}, `job ${span.chunk + 1}, ${span.stage}: ${length}, from ${formatTime(span.begin_us)}`));
      group.append(rect);
      const visible = Math.max(x, this.labels);
      const room = Math.min(x + width, this.width - END) - visible;
      const written = text.length * 6.4 + 8 < room ? text : room > 12 + 6 * String(span.chunk + 1).length ? `${span.chunk + 1}` : "";
      if (written) group.append(element("text", { x: visible + 4, y: y + 15, class: "on-bar" }, written));
      return group;
    }

    drawAxis(svg, y) {
      const most = Math.max(Math.floor((this.width - this.labels) / 90), 2);
      const rough = this.length / most, power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
      for (let value = Math.ceil(this.from / step) * step; value <= this.to; value += step) {
        const x = this.at(value);
        svg.append(element("line", { x1: x, x2: x, y1: y - 6, y2: y, class: "axis" }));
        const [at, anchor] = x > this.width - 40 ? [this.width, "end"] : x < 24 ? [0, "start"] : [x, "middle"];
        svg.append(element("text", { x: at, y: y + 14, "text-anchor": anchor, class: "tick" }, formatTime(value)));
      }
    }
  }

  for (const figure of document.querySelectorAll("#timeline")) new Timeline(figure);
})();
