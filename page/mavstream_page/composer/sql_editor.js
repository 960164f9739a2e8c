// An editor for SQL: coloured words, completion of what the server has, and errors where they are.
// Tab leaves it, so that the keyboard is never caught.
import * as CM from "nicegui-codemirror";

const DELAY_MS = 150;
const WORDS = /--.*|\/\*.*?\*\/|'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b|[A-Za-z_]\w*/g;
const SOURCE_NEXT = /\b(?:from|join|table)\s+\w*$|\b(?:tumble|hop|session)\s*\(\s*\w*$/i;

function colours(names) {
  const classOf = (text) => {
    if (text.startsWith("--") || text.startsWith("/*")) return "sql-comment";
    if (text.startsWith("'")) return "sql-text";
    if (/^\d/.test(text)) return "sql-number";
    const word = text.toLowerCase();
    if (names().keywords?.includes(word)) return "sql-word";
    return names().functions?.[word] ? "sql-function" : null;
  };
  const matcher = new CM.MatchDecorator({
    regexp: WORDS,
    decorate(add, from, to, match) {
      const found = classOf(match[0]);
      if (found) add(from, to, CM.Decoration.mark({ class: found }));
    },
  });
  return CM.ViewPlugin.define(
    (view) => ({
      decorations: matcher.createDeco(view),
      update(update) {
        const renamed = update.transactions.some((one) => one.effects.some((each) => each.is(namesChanged)));
        this.decorations = renamed
          ? matcher.createDeco(update.view)
          : matcher.updateDeco(update, this.decorations);
      },
    }),
    { decorations: (plugin) => plugin.decorations },
  );
}

const namesChanged = CM.StateEffect.define();
const setErrors = CM.StateEffect.define();
const errorField = CM.StateField.define({
  create: () => CM.Decoration.none,
  update(marks, transaction) {
    let now = marks.map(transaction.changes);
    for (const effect of transaction.effects) if (effect.is(setErrors)) now = CM.Decoration.set(effect.value, true);
    return now;
  },
  provide: (field) => CM.EditorView.decorations.from(field),
});

function errorAt(state, position) {
  let found = null;
  state.field(errorField).between(position, position, (from, to, mark) => {
    found = { from, to, message: mark.spec.message };
    return false;
  });
  return found;
}

const errorTooltip = CM.hoverTooltip((view, position) => {
  const error = errorAt(view.state, position);
  if (!error) return null;
  return {
    pos: error.from,
    end: error.to,
    create() {
      const dom = document.createElement("div");
      dom.className = "sql-tooltip";
      dom.textContent = error.message;
      return { dom };
    },
  };
});

function goToError(view) {
  const first = view.state.field(errorField).iter();
  if (!first.value) return false;
  view.dispatch({ selection: { anchor: first.from, head: first.to }, scrollIntoView: true });
  view.focus();
  return true;
}

// The columns that stand in front of a dot: of the source of that name, or of the one with that alias.
function columnsOf(qualifier, text, sources) {
  if (sources[qualifier]) return [qualifier];
  const named = Object.keys(sources).filter((name) =>
    new RegExp(`\\b${name}\\b(?:[^()]*\\))?\\s+(?:as\\s+)?${qualifier}\\b`, "i").test(text),
  );
  return named.length ? named : mentioned(text, sources);
}

function mentioned(text, sources) {
  return Object.keys(sources).filter((name) => new RegExp(`\\b${name}\\b`).test(text));
}

function columnOptions(names, sources) {
  const made = new Map();
  for (const name of names)
    for (const [column, type] of Object.entries(sources[name].columns))
      if (!made.has(column))
        made.set(column, { label: column, type: "property", detail: `${type} · ${name}`, boost: 3 });
  return [...made.values()];
}

function windowOptions(text) {
  if (!/\b(?:tumble|hop|session)\b/i.test(text)) return [];
  return ["window_start", "window_end"].map((label) => ({ label, type: "property", detail: "window", boost: 2 }));
}

function call(name, kind) {
  const apply = (view, _, from, to) =>
    view.dispatch({
      changes: { from, to, insert: `${name}()` },
      selection: { anchor: from + name.length + 1 },
      userEvent: "input.complete",
    });
  return { label: name, type: "function", detail: kind, boost: 1, apply };
}

function completion(names) {
  return (context) => {
    const { keywords = [], functions = {}, sources = {} } = names();
    const text = context.state.doc.toString();
    const before = text.slice(0, context.pos);
    if (/--[^\n]*$/.test(before) || (before.match(/'/g) || []).length % 2) return null;
    const word = context.matchBefore(/\w*/);
    const answer = (options) => ({ from: word.from, options, validFor: /^\w*$/ });
    const qualifier = /(\w+)\.\w*$/.exec(before)?.[1];
    if (qualifier) return answer(columnOptions(columnsOf(qualifier, text, sources), sources).concat(windowOptions(text)));
    const known = Object.entries(sources).map(([label, { kind }]) => ({ label, type: "class", detail: kind }));
    if (SOURCE_NEXT.test(before)) {
      const windows = ["TUMBLE", "HOP", "SESSION"].map((name) => call(name, "window"));
      return answer([...known.map((one) => ({ ...one, boost: 2 })), ...windows]);
    }
    if (word.from === word.to && !context.explicit) return null;
    const read = mentioned(text, sources);
    return answer([
      ...columnOptions(read.length ? read : Object.keys(sources), sources),
      ...windowOptions(text),
      ...Object.entries(functions).map(([name, kind]) => call(name, kind)),
      { label: "count(*)", type: "function", detail: "aggregate", boost: 1 },
      ...keywords.map((label) => ({ label: label.toUpperCase(), type: "keyword" })),
      ...known,
    ]);
  };
}

export default {
  props: { text: String, version: Number, names: Object, errors: Object, describedBy: String },
  render() {
    return Vue.h("div");
  },
  mounted() {
    this.edit = 0;
    const names = () => this.names || {};
    const typing = CM.EditorView.updateListener.of((update) => {
      if (!update.docChanged || this.replacing) return;
      this.edit += 1;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.say(), DELAY_MS);
    });
    const language = [
      { autocomplete: completion(names), closeBrackets: { brackets: ["(", "'"] }, commentTokens: { line: "--" } },
    ];
    this.described = new CM.Compartment();
    this.editor = new CM.EditorView({
      doc: this.text,
      parent: this.$el,
      extensions: [
        CM.Prec.high(
          CM.keymap.of([
            { key: "F8", run: goToError },
            { key: "Mod-Enter", run: () => (this.say(), this.$emit("run", {}), true) },
          ]),
        ),
        CM.basicSetup,
        CM.EditorView.lineWrapping,
        CM.EditorState.languageData.of(() => language),
        colours(names),
        errorField,
        errorTooltip,
        typing,
        CM.placeholder(
          "SELECT room, avg(celsius) AS mean, window_end\n" +
            "FROM TUMBLE(readings, at, INTERVAL '1' SECOND)\nGROUP BY room, window_end",
        ),
        this.described.of([]),
      ],
    });
    this.describe(false);
    this.mark();
  },
  beforeUnmount() {
    clearTimeout(this.timer);
    this.editor.destroy();
  },
  watch: {
    version() {
      this.replace();
    },
    names() {
      this.editor.dispatch({ effects: namesChanged.of(null) });
    },
    errors() {
      this.mark();
    },
  },
  methods: {
    say() {
      clearTimeout(this.timer);
      this.$emit("typed", { text: this.editor.state.doc.toString(), edit: this.edit });
    },
    // Only what differs is replaced, so that the caret stays where it is.
    replace() {
      const old = this.editor.state.doc.toString();
      const text = this.text;
      let start = 0;
      while (start < Math.min(old.length, text.length) && old[start] === text[start]) start += 1;
      let end = 0;
      while (end < Math.min(old.length, text.length) - start && old.at(-1 - end) === text.at(-1 - end)) end += 1;
      clearTimeout(this.timer);
      this.replacing = true;
      this.editor.dispatch({
        changes: { from: start, to: old.length - end, insert: text.slice(start, text.length - end) },
      });
      this.replacing = false;
      this.mark();
    },
    // Errors of a text that was changed since are not shown: those of the new text follow.
    mark() {
      const { edit, items = [] } = this.errors || {};
      if (edit !== undefined && edit < this.edit) return;
      const { doc } = this.editor.state;
      const marks = items
        .filter(({ line }) => line <= doc.lines)
        .map(({ line, column, message }) => {
          const at = doc.line(line);
          const from = Math.min(at.from + column - 1, at.to);
          const length = /^(?:\w+(?:\.\w+)*|.)/.exec(doc.sliceString(from, at.to))?.[0].length ?? 0;
          // Behind the last character there is nothing to underline: that character is marked.
          const start = length === 0 ? Math.max(0, from - 1) : from;
          return [start, from + length, CM.Decoration.mark({ class: "sql-wrong", message })];
        })
        .filter(([start, end]) => start < end)
        .map(([start, end, mark]) => mark.range(start, end));
      this.editor.dispatch({ effects: setErrors.of(marks) });
      this.describe(items.length > 0);
    },
    describe(wrong) {
      const attributes = {
        "aria-label": "SQL",
        "aria-describedby": this.describedBy,
        "aria-invalid": String(wrong),
        autocapitalize: "off",
        id: "sql",
      };
      this.editor.dispatch({ effects: this.described.reconfigure(CM.EditorView.contentAttributes.of(attributes)) });
    },
  },
};
