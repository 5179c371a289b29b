// Rewrites a cell to a script, so that later cells see its declarations and may
// repeat them, and so that it may use await and import. Lines keep their
// numbers. Code that this file does not understand runs unchanged.
(() => {
  "use strict";
  const WORD = /[\p{ID_Start}$_#\\][\p{ID_Continue}$\u200c\u200d\\]*/uy;
  const NUMBER = /0[xXbBoO][\da-fA-F_]+n?|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?[\d_]+)?n?/y;
  const STRING = /'(?:[^'\\\n\r]|\\(?:\r\n|[^]))*'|"(?:[^"\\\n\r]|\\(?:\r\n|[^]))*"/y;
  const SPACE = /(?:[\s\ufeff]+|\/\/[^\n\r]*|\/\*[^]*?\*\/|^#![^\n\r]*)+/y;
  const REGEX = /\/(?![*/])(?:[^\\/[\n\r]|\\[^\n\r]|\[(?:[^\]\\\n\r]|\\[^\n\r])*\])+\/[\p{ID_Continue}$]*/uy;
  const MARK = /\.\.\.|=>|\?\.(?!\d)|\+\+|--|&&=?|\|\|=?|\?\?=?|\*\*=?|>>>=?|<<=?|>>=?|[=!]==?|[-+*/%&|^<>]=?|[^]/y;

  // After these words an operand follows. A slash then begins a regular
  // expression, and a newline does not end the statement.
  const OPERATORS = new Set(("return typeof instanceof in of new delete void throw case do else await yield extends " +
    "default async").split(" "));
  const CONTROL = new Set(["if", "while", "for", "with"]);
  const STATEMENTS = new Set(("const let var class function if for while do switch try throw import export return " +
    "break continue debugger with").split(" "));
  const DECLARING = new Set(["const", "let", "var"]);

  // tokenize returns the tokens, or null if the text is not JavaScript.
  function tokenize(src) {
    const tokens = [];
    const open = []; // {mark, control, block, template}
    let at = 0;
    let newline = true;
    const match = (re) => {
      re.lastIndex = at;
      const m = re.exec(src);
      return m ? m[0] : "";
    };
    const push = (type, text, more) => {
      tokens.push({ type, text, start: at, end: at + text.length, newline, depth: open.length, ...more });
      at += text.length;
      newline = false;
    };
    // template reads a template literal to its end or its next expression.
    const template = (start) => {
      let i = start;
      for (; i < src.length; i++) {
        if (src[i] === "\\") i++;
        else if (src[i] === "`") return push("template", src.slice(at, i + 1)), true;
        else if (src[i] === "$" && src[i + 1] === "{") {
          push("mark", src.slice(at, i + 2), { opens: true });
          open.push({ template: true });
          return true;
        }
      }
      return false;
    };
    while (at < src.length) {
      const space = match(SPACE);
      if (space) {
        if (/[\n\r\u2028\u2029]/.test(space)) newline = true;
        at += space.length;
        continue;
      }
      const last = tokens[tokens.length - 1];
      const c = src[at];
      let text;
      if (c === "`") {
        if (!template(at + 1)) return null;
      } else if (c === "}" && open.length && open[open.length - 1].template) {
        open.pop();
        if (!template(at + 1)) return null;
      } else if ((text = match(WORD))) {
        push("word", text, { name: last && (last.text === "." || last.text === "?.") });
      } else if ((text = match(NUMBER))) {
        push("number", text);
      } else if (c === "'" || c === '"') {
        if (!(text = match(STRING))) return null;
        push("string", text);
      } else if (c === "/" && operandNext(last) && (text = match(REGEX))) {
        push("regex", text);
      } else {
        text = match(MARK);
        if ("([{".includes(text)) {
          push("mark", text, { opens: true });
          const word = last && last.type === "word" && !last.name ? last.text : "";
          const control = text === "(" && (CONTROL.has(word) || (word === "await" && isFor(tokens)));
          open.push({ mark: text, control, block: text === "{" && beginsBlock(last) });
        } else if (")]}".includes(text)) {
          const o = open.pop();
          if (!o || "([{".indexOf(o.mark) !== ")]}".indexOf(text)) return null;
          push("mark", text, { control: o.control, block: o.block });
        } else {
          push("mark", text);
        }
      }
    }
    return open.length ? null : tokens;
  }

  const isFor = (tokens) => tokens.length > 2 && tokens[tokens.length - 3].text === "for";

  function operandNext(last) {
    if (!last) return true;
    if (last.type === "word") return !last.name && OPERATORS.has(last.text);
    if (last.type !== "mark") return false;
    if (last.text === ")") return !!last.control;
    if (last.text === "}") return !!last.block;
    return !["]", "++", "--"].includes(last.text);
  }

  // beginsBlock reports whether a brace begins a block or an object: "sure" for
  // a block, "perhaps" if it may be the body of a function in an expression.
  function beginsBlock(last) {
    if (!last) return "sure";
    if (last.type === "word") return !last.name && ["else", "do", "try", "finally"].includes(last.text) && "sure";
    if (last.type !== "mark") return false;
    if (last.text === ";" || last.text === "{" || last.text === "}") return last.text !== "}" || last.block ? "sure" : false;
    if (last.text === ")") return last.control ? "sure" : "perhaps";
    return last.text === "=>" && "perhaps";
  }

  // begins reports whether a top-level statement begins at token i.
  function begins(tokens, i) {
    const t = tokens[i];
    const last = tokens[i - 1];
    if (t.depth !== 0) return false;
    if (!last || last.text === ";") return true;
    if (last.text === "}" && last.block === "sure") return !["else", "catch", "finally", "while"].includes(t.text);
    if (!t.newline || operandNext(last)) return false;
    if (last.type === "mark" && ![")", "]", "}", "++", "--"].includes(last.text)) return false;
    if (t.type === "word") return !["in", "of", "instanceof"].includes(t.text);
    return ["number", "string"].includes(t.type) || ["{", "!", "~", "++", "--"].includes(t.text);
  }

  // close returns the index of the token that closes the one at i.
  function close(tokens, i) {
    for (let j = i + 1; j < tokens.length; j++) {
      if (tokens[j].depth === tokens[i].depth) return ")]}".includes(tokens[j].text[0]) ? j : -1;
    }
    return -1;
  }

  // names returns the names that a declaration binds. i is the token after its
  // keyword.
  function names(tokens, i) {
    const found = [];
    for (;;) {
      const t = tokens[i];
      if (!t) return found;
      if (t.type === "word") {
        found.push(t.text);
        i++;
      } else if (t.text === "{" || t.text === "[") {
        const end = close(tokens, i);
        if (end < 0) return found;
        for (let j = i + 1; j < end; j++) {
          if (tokens[j].type === "word" && ["{", "[", ",", ":", "..."].includes(tokens[j - 1].text) &&
            [",", "}", "]", "="].includes(tokens[j + 1].text)) found.push(tokens[j].text);
        }
        i = end + 1;
      } else return found;
      while (tokens[i] && !(tokens[i].depth === 0 && (tokens[i].text === "," || tokens[i].text === ";"))) {
        if (begins(tokens, i)) return found;
        i++;
      }
      if (!tokens[i] || tokens[i].text === ";") return found;
      i++;
    }
  }

  // declarations lists the top-level declarations: {kind, at, names}.
  function declarations(tokens) {
    const found = [];
    for (let i = 0; i < tokens.length; i++) {
      const t = tokens[i];
      const next = tokens[i + 1];
      if (t.type !== "word" || t.name || !next || !begins(tokens, i)) continue;
      if (DECLARING.has(t.text) && (next.type === "word" || next.text === "{" || next.text === "[")) {
        found.push({ kind: t.text, at: i, names: names(tokens, i + 1) });
      } else if (t.text === "class" && next.type === "word") {
        const end = classEnd(tokens, i);
        if (end < 0) continue;
        tokens[end].block = "sure";
        found.push({ kind: "class", at: i, end, names: [next.text] });
      } else if (t.text === "function" || (t.text === "async" && next.text === "function")) {
        let j = t.text === "async" ? i + 2 : i + 1;
        if (tokens[j] && tokens[j].text === "*") j++;
        if (!tokens[j] || tokens[j].type !== "word") continue;
        found.push({ kind: "function", at: i, names: [tokens[j].text] });
        while (tokens[j] && !(tokens[j].depth === 0 && tokens[j].text === "{")) j++;
        const end = tokens[j] ? close(tokens, j) : -1;
        if (end > 0) tokens[end].block = "sure";
      } else if (t.text === "import" && ["word", "string"].includes(next.type) || t.text === "import" && ["{", "*"].includes(next.text)) {
        const parsed = importParts(tokens, i);
        if (parsed) found.push({ kind: "import", at: i, ...parsed });
      }
    }
    return found;
  }

  // classEnd returns the closing brace of a class, or -1 if its heritage is
  // more than a name or a call.
  function classEnd(tokens, i) {
    let j = i + 2;
    while (tokens[j] && !(tokens[j].depth === 0 && tokens[j].text === "{")) {
      if (["class", "function"].includes(tokens[j].text) && tokens[j].depth === 0) return -1;
      j++;
    }
    return tokens[j] ? close(tokens, j) : -1;
  }

  // importParts reads a static import: {end, names, code}.
  function importParts(tokens, i) {
    let j = i + 1;
    const bindings = [];
    let space = "";
    if (tokens[j].type !== "string") {
      if (tokens[j].type === "word" && tokens[j].text !== "from") {
        bindings.push(`default: ${tokens[j].text}`);
        j++;
        if (tokens[j] && tokens[j].text === ",") j++;
      }
      if (tokens[j] && tokens[j].text === "*") {
        if (!tokens[j + 2] || tokens[j + 1].text !== "as") return null;
        space = tokens[j + 2].text;
        j += 3;
      } else if (tokens[j] && tokens[j].text === "{") {
        const end = close(tokens, j);
        if (end < 0) return null;
        for (let k = j + 1; k < end; k++) {
          if (tokens[k].text === ",") continue;
          const renamed = tokens[k + 1].text === "as";
          bindings.push(renamed ? `${tokens[k].text}: ${tokens[k + 2].text}` : tokens[k].text);
          if (renamed) k += 2;
        }
        j = end + 1;
      }
      if (!tokens[j] || tokens[j].text !== "from") return null;
      j++;
    }
    const from = tokens[j];
    if (!from || from.type !== "string") return null;
    let code = `await import(${from.text})`;
    if (space) code = `${space} = ${code}`;
    if (bindings.length) code = `0, {${bindings.join(", ")}} = ${space ? `(${code})` : code}`;
    const bound = bindings.map((b) => b.split(": ").pop());
    return { end: j, code, names: space ? [space, ...bound] : bound };
  }

  // edit applies replacements [start, end, text] to a text.
  function edit(src, changes) {
    let out = "";
    let at = 0;
    for (const [start, end, text] of changes.sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
      out += src.slice(at, start) + text;
      at = end;
    }
    return out + src.slice(at);
  }

  // lines returns the line breaks of a text that is replaced.
  const lines = (src, start, end) => src.slice(start, end).replace(/[^\n]/g, "");

  // asScript returns the code with all declarations changed to var.
  function asScript(src, tokens, found) {
    const changes = [];
    for (const d of found) {
      const t = tokens[d.at];
      if (d.kind === "let" || d.kind === "const") changes.push([t.start, t.end, "var".padEnd(t.text.length)]);
      if (d.kind === "class") changes.push([t.start, t.start, `var ${d.names[0]} = `], [tokens[d.end].end, tokens[d.end].end, ";"]);
    }
    return edit(src, changes);
  }

  // asFunction returns the code as an async function. Declarations become
  // assignments to globals, and the function returns the last value.
  function asFunction(src, tokens, found, compiles) {
    const changes = [];
    let before = "";
    let inside = "";
    for (const d of found) {
      const t = tokens[d.at];
      for (const name of d.names) before += `var ${name};`;
      if (DECLARING.has(d.kind)) {
        const pattern = tokens[d.at + 1].type !== "word";
        changes.push([t.start, t.end, (pattern ? "0," : "").padEnd(t.text.length)]);
      } else if (d.kind === "class") {
        changes.push([t.start, t.start, `${d.names[0]} = `], [tokens[d.end].end, tokens[d.end].end, ";"]);
      } else if (d.kind === "function") {
        inside += `this.${d.names[0]} = ${d.names[0]};`;
      } else {
        changes.push([t.start, tokens[d.end].end, d.code + lines(src, t.start, tokens[d.end].end)]);
      }
    }
    const start = `${before}(async () => {${inside}`;
    const withoutValue = `${start}${edit(src, changes)}\n})()`;
    const tail = tailStart(tokens);
    for (const [from, to] of tail) {
      const returning = [...changes.map((c) => [...c]), [from, from, "return ("], [to, src.length, "\n)"]];
      const text = `${start}${edit(src, returning.filter((c) => !(c[0] >= to && c[2] === ";")))}\n})()`;
      if (compiles(text)) return text;
    }
    return withoutValue;
  }

  // tailStart lists possible begins of the last statement with its end, nearest
  // first. The list is empty if the statement is not an expression.
  function tailStart(tokens) {
    let end = tokens.length - 1;
    while (end >= 0 && tokens[end].text === ";" && tokens[end].depth === 0) end--;
    const found = [];
    for (let i = end; i >= 0 && found.length < 40; i--) {
      if (!begins(tokens, i)) continue;
      const t = tokens[i];
      if (t.type === "word" && STATEMENTS.has(t.text) && !(t.text === "import" && ["(", "."].includes(tokens[i + 1]?.text))) break;
      if (t.text === "async" && tokens[i + 1]?.text === "function") break;
      found.push([t.start, tokens[end].end]);
      if (tokens[i - 1]?.text === ";") break;
    }
    return found;
  }

  // awaits reports whether the code uses await at the top level.
  function awaits(tokens) {
    const mine = tokens.filter((t) => t.type === "word" && !t.name);
    const found = mine.filter((t) => t.text === "await");
    if (!found.length) return false;
    return !mine.some((t) => t.text === "async") || found.some((t) => t.depth === 0);
  }

  // rewrite returns {candidates, names}: texts to try, best first.
  function rewrite(src, compiles) {
    const tokens = tokenize(src);
    if (!tokens) return { candidates: [src], names: [] };
    const found = declarations(tokens);
    const bound = found.flatMap((d) => d.names);
    const candidates = [];
    const waits = found.some((d) => d.kind === "import") || awaits(tokens);
    if (tokens.length && tokens[0].text === "{" && tokens[tokens.length - 1].text === "}") candidates.push(`(${src}\n)`);
    if (!waits) candidates.push(asScript(src, tokens, found));
    if (waits || tokens.some((t) => t.text === "await")) candidates.push(asFunction(src, tokens, found, compiles));
    candidates.push(src);
    return { candidates, names: bound };
  }

  // prepare compiles the best candidate. If no candidate compiles, it throws
  // the error of the original code.
  function prepare(src, compile) {
    const compiles = (text) => {
      try {
        compile(text);
        return true;
      } catch {
        return false;
      }
    };
    const { candidates, names } = rewrite(src, compiles);
    let error = null;
    for (const text of candidates) {
      try {
        return { script: compile(text), names, text };
      } catch (e) {
        if (!error || !/await/.test(e.message)) error = e;
      }
    }
    throw error;
  }

  return { prepare, rewrite, tokenize };
})()
