// The operators of a query as a graph from top to bottom. Whatever the mouse can do, the keyboard can do:
// arrows move, Enter edits, C connects, Delete removes, Ctrl+Z takes back.
const W = 212, H = 84, GAP_X = 26, GAP_Y = 46, PAD = 14;
const TYPING_MS = 250;
const HELP = "Arrow keys move, Enter edits, C connects, Delete removes, Ctrl+Z takes back.";

export default {
  props: { nodes: Array, edges: Array, selected: String, focus: Object },
  data: () => ({ connecting: null, pointer: null, target: null }),
  computed: {
    places() {
      const counts = {};
      for (const { layer } of this.nodes) counts[layer] = (counts[layer] || 0) + 1;
      const widest = Math.max(1, ...Object.values(counts));
      const found = {};
      for (const { name, layer, row } of this.nodes)
        found[name] = {
          x: PAD + ((widest - counts[layer]) / 2 + row) * (W + GAP_X),
          y: PAD + layer * (H + GAP_Y),
        };
      return found;
    },
    size() {
      const all = Object.values(this.places);
      return {
        width: Math.max(0, ...all.map(({ x }) => x)) + W + PAD,
        height: Math.max(0, ...all.map(({ y }) => y)) + H + PAD,
      };
    },
    current() {
      return this.nodes.some(({ name }) => name === this.selected) ? this.selected : this.nodes[0]?.name;
    },
  },
  render() {
    const h = Vue.h;
    const area = h("div", { class: "canvas-area", style: px(this.size) }, [
      h("svg", { ...this.size, "aria-hidden": "true" }, [...this.edges.map(this.drawEdge), this.drawPointer()]),
      ...this.edges.map(this.drawCut),
      ...this.nodes.map(this.drawNode),
    ]);
    const empty = h("p", { class: "canvas-empty" }, "Begin with a stream, or write SQL: the operators appear here.");
    return h("div", { class: "canvas-frame" }, [
      h(
        "div",
        {
          class: ["canvas", { connecting: this.connecting }],
          role: "group",
          "aria-label": "Operators",
          onKeydown: this.pressed,
          onDragover: this.over,
          onDragleave: () => (this.target = null),
          onDrop: this.dropped,
          onPointermove: this.moved,
          onPointerup: this.released,
        },
        [this.nodes.length ? area : empty],
      ),
      h("p", { class: "canvas-help", role: "status" }, this.connecting ? this.question() : HELP),
    ]);
  },
  mounted() {
    this.listeners = {
      dragstart: this.dragged,
      click: this.clicked,
      mousedown: (event) => event.target.closest("[data-insert]") && event.preventDefault(),
      focusin: (event) => {
        if (event.target.closest("#operator-form") && event.target.matches("input, textarea"))
          this.field = event.target;
      },
      input: this.typed,
      change: this.typed,
      submit: (event) => event.target.id === "operator-form" && event.preventDefault(),
    };
    for (const [kind, listener] of Object.entries(this.listeners)) document.addEventListener(kind, listener);
  },
  beforeUnmount() {
    for (const [kind, listener] of Object.entries(this.listeners)) document.removeEventListener(kind, listener);
  },
  watch: {
    "focus.count"() {
      this.moveFocus(this.focus.to, 20);
    },
    selected() {
      Vue.nextTick(() => this.reveal(this.selected));
    },
  },
  methods: {
    ends({ from, to, field }) {
      const above = this.places[from];
      const below = this.places[to];
      const side = { left: 0.3, right: 0.7 }[field] ?? 0.5;
      return { x1: above.x + W / 2, y1: above.y + H, x2: below.x + W * side, y2: below.y };
    },
    drawEdge(edge) {
      const { x1, y1, x2, y2 } = this.ends(edge);
      const label = [edge.output, edge.field === "left" || edge.field === "right" ? edge.field : ""]
        .filter(Boolean)
        .join(" → ");
      const key = `${edge.from}.${edge.output} ${edge.to} ${edge.field}`;
      const hot = this.target && this.target.from === edge.from && this.target.to === edge.to;
      return Vue.h("g", { key, class: ["canvas-edge", { target: hot }] }, [
        Vue.h("path", { d: curve(x1, y1, x2, y2) }),
        Vue.h("path", { class: "head", d: `M${x2 - 5} ${y2 - 8}L${x2} ${y2}L${x2 + 5} ${y2 - 8}` }),
        label ? Vue.h("text", { x: x2 + 8, y: y2 - 8 }, label) : null,
      ]);
    },
    drawPointer() {
      if (!this.connecting || !this.pointer) return null;
      const { x, y } = this.places[this.connecting];
      return Vue.h("path", {
        class: "canvas-pointer",
        d: curve(x + W / 2, y + H, this.pointer.x, this.pointer.y),
      });
    },
    drawCut(edge) {
      const { x1, y1, x2, y2 } = this.ends(edge);
      const from = edge.output ? `${edge.from}.${edge.output}` : edge.from;
      return Vue.h(
        "button",
        {
          key: `cut ${from} ${edge.to} ${edge.field}`,
          type: "button",
          class: "canvas-cut",
          // The keyboard disconnects in the form of the operator that reads.
          tabindex: -1,
          title: `Disconnect ${edge.to} from ${from}`,
          "aria-label": `Disconnect ${edge.to} from ${from}`,
          style: px({ left: (x1 + x2) / 2 - 9, top: (y1 + y2) / 2 - 9 }),
          onClick: () => this.$emit("action", { action: "disconnect", from, to: edge.to }),
        },
        "×",
      );
    },
    drawNode(node) {
      const h = Vue.h;
      const { name, op, detail, columns, errors, answer } = node;
      const about = [
        `${name}: ${op}`,
        detail,
        errors.length ? `wrong: ${errors.join("; ")}` : "",
        columns.length ? `gives ${columns.join(", ")}` : "columns not known yet",
        answer ? "the answer" : "",
      ];
      return h(
        "div",
        {
          key: name,
          class: ["op", `op-${op}`, { selected: name === this.selected, wrong: errors.length, target: this.target?.node === name }],
          style: px({ left: this.places[name].x, top: this.places[name].y, width: W, height: H }),
          role: "button",
          tabindex: name === this.current ? 0 : -1,
          "aria-pressed": String(name === this.selected),
          "aria-label": about.filter(Boolean).join(", "),
          title: [...errors, ...columns].join("\n"),
          "data-node": name,
          onClick: () => this.chosen(name),
          onFocus: () => this.connecting || this.select(name),
        },
        [
          h("div", { class: "op-head" }, [
            h("b", name),
            op === name ? null : h("span", { class: "op-kind" }, op),
            answer ? h("span", { class: "op-mark" }, "answer") : null,
            errors.length ? h("span", { class: "op-wrong" }, "✕") : null,
          ]),
          h("div", { class: "op-detail" }, detail || op),
          h("div", { class: "op-columns" }, columns.map((one) => one.split(" ")[0]).join(", ") || "…"),
          h("span", {
            class: "op-port",
            title: "Drag to the operator that reads this one",
            onPointerdown: (event) => this.pulled(event, name),
          }),
        ],
      );
    },
    question() {
      return `Choose the operator that reads ${this.connecting}: click it, or arrow keys and Enter. Escape cancels.`;
    },
    select(name) {
      if (name !== this.selected) this.$emit("action", { action: "select", node: name });
    },
    chosen(name) {
      if (this.connecting) this.connect(name);
      else this.select(name);
    },
    connect(name) {
      const from = this.connecting;
      this.connecting = this.pointer = this.target = null;
      if (name && name !== from) this.$emit("action", { action: "connect", from, to: name });
    },
    element(name) {
      return [...this.$el.querySelectorAll("[data-node]")].find((one) => one.dataset.node === name);
    },
    // Scrolls the canvas, and not the page.
    reveal(name) {
      const place = this.places[name];
      if (!place) return;
      const box = this.$el.querySelector(".canvas");
      box.scrollLeft = Math.min(Math.max(box.scrollLeft, place.x + W + PAD - box.clientWidth), place.x - PAD);
      box.scrollTop = Math.min(Math.max(box.scrollTop, place.y + H + PAD - box.clientHeight), place.y - PAD);
    },
    // The form is another element: it may get its content a little later.
    moveFocus(to, tries) {
      const form = document.getElementById("operator-form");
      const wanted = to === "node" ? this.element(this.selected) : form?.dataset.step === this.selected ? form : null;
      if (!wanted) {
        if (tries) requestAnimationFrame(() => this.moveFocus(to, tries - 1));
        return;
      }
      if (to === "node") return wanted.focus({ preventScroll: true });
      const fields = [...wanted.elements].filter((one) => one.name && one.name !== "name");
      (fields.find((one) => !one.value && one.required) ?? fields[0])?.focus();
    },
    pressed(event) {
      const name = event.target.closest("[data-node]")?.dataset.node;
      const key = event.key.toLowerCase();
      const act = (action) => (this.$emit("action", action), true);
      const done = (() => {
        if ((event.ctrlKey || event.metaKey) && key === "z") return act({ action: event.shiftKey ? "redo" : "undo" });
        if ((event.ctrlKey || event.metaKey) && key === "y") return act({ action: "redo" });
        if (event.ctrlKey || event.metaKey || event.altKey || !name) return false;
        if (key === "escape" && this.connecting) return this.connect(null), true;
        if (key === "enter" || key === " ") {
          if (this.connecting) return this.connect(name), true;
          return this.moveFocus("form", 20), true;
        }
        if (key === "delete" || key === "backspace") return act({ action: "remove", node: name });
        if (key === "c") return (this.connecting = name), true;
        const next = this.neighbour(name, key);
        if (next) this.element(next)?.focus();
        return key.startsWith("arrow");
      })();
      if (done) event.preventDefault();
    },
    neighbour(name, key) {
      if (key === "arrowdown") return this.edges.find(({ from }) => from === name)?.to ?? this.step(name, 1);
      if (key === "arrowup") return this.edges.find(({ to }) => to === name)?.from ?? this.step(name, -1);
      return { arrowright: this.step(name, 1), arrowleft: this.step(name, -1) }[key];
    },
    step(name, by) {
      return this.nodes[this.nodes.findIndex((one) => one.name === name) + by]?.name;
    },
    pulled(event, name) {
      event.preventDefault();
      event.stopPropagation();
      event.target.releasePointerCapture?.(event.pointerId);
      this.connecting = name;
      this.pointer = this.point(event);
    },
    moved(event) {
      if (this.pointer) this.pointer = this.point(event);
      if (this.pointer) this.target = { node: nodeAt(event) };
    },
    released(event) {
      if (!this.pointer) return;
      const node = nodeAt(event);
      // A click on the handle starts connecting: the next click chooses.
      if (node === this.connecting) this.pointer = null;
      else this.connect(node);
    },
    point(event) {
      const box = this.$el.querySelector(".canvas-area").getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    },
    dragged(event) {
      const source = event.target.closest?.("[data-op]");
      if (!source) return;
      const { op, stream, table } = source.dataset;
      this.drag = { op, ...(stream && { stream }), ...(table && { table }) };
      event.dataTransfer.setData("text/plain", op);
    },
    over(event) {
      if (!this.drag) return;
      event.preventDefault();
      this.target = this.under(event);
    },
    dropped(event) {
      if (!this.drag) return;
      event.preventDefault();
      const { node, from, to } = this.under(event) || {};
      this.$emit("action", { action: "add", ...this.drag, place: "drop", ...(node && { after: node }), ...(to && { from, to }) });
      this.drag = this.target = null;
    },
    // What is dropped on: an operator, or the edge whose middle is near.
    under(event) {
      const node = nodeAt(event);
      if (node || !this.nodes.length) return node ? { node } : null;
      const { x, y } = this.point(event);
      const near = this.edges.find((edge) => {
        const { x1, y1, x2, y2 } = this.ends(edge);
        return Math.hypot((x1 + x2) / 2 - x, (y1 + y2) / 2 - y) < 40;
      });
      return near ? { from: near.output ? `${near.from}.${near.output}` : near.from, to: near.to } : null;
    },
    clicked(event) {
      if (event.target.closest("[data-connect]")) {
        this.connecting = this.selected;
        this.element(this.selected)?.focus();
      }
      const column = event.target.closest("[data-insert]")?.dataset.insert;
      if (column) this.insert(column);
    },
    insert(column) {
      const field = this.field?.isConnected ? this.field : document.querySelector("#operator-form [data-expression]");
      if (!field) return;
      const { value, selectionStart: at, selectionEnd: end } = field;
      const listed = field.dataset.expression === "list" && value.slice(0, at).trim() && !/[,=]\s*$/.test(value.slice(0, at));
      const gap = listed ? ", " : /[\w)']$/.test(value.slice(0, at)) ? " " : "";
      field.focus();
      field.setRangeText(gap + column, at, end, "end");
      field.dispatchEvent(new Event("input", { bubbles: true }));
    },
    // Only the fields that were changed are sent: others may have changed in another way meanwhile.
    typed(event) {
      const form = event.target.closest?.("#operator-form");
      if (!form) return;
      const { name, value } = event.target;
      clearTimeout(this.timer);
      if (event.type === "change" && name === "name") {
        this.flush();
        this.$emit("action", { action: "rename", node: form.dataset.step, name: value });
      } else if (name !== "name") {
        if (this.changed?.node !== form.dataset.step) this.flush();
        this.changed ??= { node: form.dataset.step, texts: {} };
        this.changed.texts[name] = value;
        if (event.type === "change") this.flush();
        else this.timer = setTimeout(() => this.flush(), TYPING_MS);
      }
    },
    flush() {
      if (this.changed) this.$emit("action", { action: "fill", ...this.changed });
      this.changed = null;
    },
  },
};

function curve(x1, y1, x2, y2) {
  const bend = Math.max(18, (y2 - y1) / 2);
  return `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
}

function px(lengths) {
  return Object.fromEntries(Object.entries(lengths).map(([name, length]) => [name, `${length}px`]));
}

function nodeAt(event) {
  return document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-node]")?.dataset.node;
}
