// An element whose markup comes from the server: changes are applied in place, so that the focus, the scroll
// position and what a user has typed survive; clicks, changes and forms with `data-action` are sent back.
function morph(old, fresh) {
  const same = old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName;
  if (!same || (old.nodeType === 1 && keyOf(old) !== keyOf(fresh))) return old.replaceWith(fresh);
  if (old.nodeType !== 1) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes])
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes])
    if (old.getAttribute(name) !== value && !(name === "open" && old.nodeName === "DETAILS"))
      old.setAttribute(name, value);
  if (!old.hasAttribute("data-keep")) morphChildren(old, fresh);
  assign(old);
}

// A field is overwritten only when the server says so: typing is never undone by a refresh.
function assign(field) {
  if (field.dataset?.version === undefined || field.dataset.version === field.known) return;
  if (field.known !== undefined || !field.value) field.value = field.dataset.text;
  field.known = field.dataset.version;
}

function keyOf(element) {
  return element.id || element.getAttribute("data-key") || "";
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const known = child.nodeType === 1 && keyOf(child) ? keyed.get(keyOf(child)) : null;
    if (known && known !== at) {
      old.insertBefore(known, at);
      morph(known, child);
    } else if (at) {
      const next = at.nextSibling;
      if (child.nodeType === 1 && keyOf(child) && !known) {
        old.insertBefore(child, at);
        continue;
      }
      morph(at, child);
      at = next;
    } else old.append(child);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function valuesOf(form) {
  const values = {};
  for (const [name, value] of new FormData(form)) if (typeof value === "string") values[name] = value;
  return values;
}

export default {
  props: { html: String },
  render() {
    return Vue.h("div");
  },
  mounted() {
    this.apply();
    const act = (event, kinds) => {
      const source = event.target.closest("[data-action]");
      if (!source || !this.$el.contains(source) || !kinds(source) || source.disabled) return;
      event.preventDefault();
      if (source.dataset.confirm && !window.confirm(source.dataset.confirm)) return;
      const form = source.nodeName === "FORM" ? source : null;
      const value = form ? {} : { value: source.type === "checkbox" ? source.checked : source.value };
      this.$emit("action", { ...source.dataset, ...value, ...(form ? valuesOf(form) : {}) });
    };
    const isField = (one) => ["SELECT", "INPUT", "TEXTAREA"].includes(one.nodeName);
    this.$el.addEventListener("click", (event) =>
      act(event, (one) => one.nodeName !== "FORM" && !isField(one)),
    );
    this.$el.addEventListener("submit", (event) => act(event, (one) => one.nodeName === "FORM"));
    const change = (event) => {
      const source = event.target;
      if (source.type === "file") return this.send(source);
      if (isField(source) && source.dataset.action && source.dataset.on !== "input") act(event, isField);
      const form = source.closest("form[data-change]");
      if (form && !source.dataset.action)
        this.$emit("action", { action: form.dataset.change, ...form.dataset, ...valuesOf(form) });
    };
    this.$el.addEventListener("change", change);
    this.$el.addEventListener("dragover", (event) => {
      if (event.target.closest("[data-drop]")) event.preventDefault();
    });
    this.$el.addEventListener("drop", (event) => {
      const field = event.target.closest("[data-drop]")?.querySelector("input[type=file]");
      if (!field) return;
      event.preventDefault();
      field.files = event.dataTransfer.files;
      this.send(field);
    });
    // The event does not bubble, so it is caught on its way down.
    const toggle = ({ target }) =>
      target.dataset.toggle &&
      this.$emit("action", { ...target.dataset, action: target.dataset.toggle, open: target.open });
    this.$el.addEventListener("toggle", toggle, true);
    this.$el.addEventListener("input", (event) => {
      const source = event.target;
      if (source.dataset.on !== "input") return;
      clearTimeout(this.typing);
      this.typing = setTimeout(
        () => this.$emit("action", { ...source.dataset, value: source.value, caret: source.selectionStart }),
        150,
      );
    });
  },
  watch: {
    html() {
      this.apply();
    },
  },
  methods: {
    async send(field) {
      const file = field.files[0];
      if (!file) return;
      if (field.dataset.upload) return this.upload(field, file);
      if (!field.dataset.action) return;
      const url = await new Promise((done) => {
        const reader = new FileReader();
        reader.onload = () => done(file.size > 700000 ? "," : reader.result);
        reader.readAsDataURL(file);
      });
      this.$emit("action", {
        ...field.dataset,
        file: file.name,
        size: file.size,
        content: url.slice(url.indexOf(",") + 1),
      });
      field.value = "";
    },
    // Sends a file as it is, beside the websocket; the view shows what becomes of it.
    async upload(field, file) {
      field.value = "";
      let problem = null;
      if (file.size > Number(field.dataset.most)) problem = `${file.name}${field.dataset.tooLarge}`;
      else
        try {
          const url = `${field.dataset.upload}/${encodeURIComponent(file.name)}`;
          const answer = await fetch(url, { method: "POST", body: file });
          if (!answer.ok) problem = await answer.text();
        } catch (error) {
          problem = `${file.name} could not be sent (${error.message}): try it again`;
        }
      if (problem !== null) this.$emit("action", { action: "refused", problem });
    },
    apply() {
      const fresh = document.createElement("template");
      fresh.innerHTML = this.html;
      morphChildren(this.$el, fresh.content);
      for (const field of this.$el.querySelectorAll("[data-version]")) assign(field);
    },
  },
};
