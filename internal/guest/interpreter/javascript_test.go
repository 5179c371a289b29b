package interpreter

import (
	"strings"
	"testing"
)

func (b *testServer) js(code string) outcome {
	b.t.Helper()
	return b.run(payload{"code": code, "language": "js"})
}

func TestJavaScriptValues(t *testing.T) {
	b := newTestServer(t)
	for _, c := range []struct{ code, want string }{
		{"6 * 7", "42"},
		{"let x = 1; const y = 2; class A { v() { return 9 } }", ""},
		{"let x = 3; const y = 4; class A { v() { return 10 } }\n[x, y, new A().v()]", "[ 3, 4, 10 ]"},
		{"'text'", "text"}, {"'a\\nb'", "a\\nb"}, {"undefined", ""}, {"null", "null"}, {"({a: {b: [1]}})", "{ a: { b: [ 1 ] } }"},
		{"{a: 1}", "{ a: 1 }"},
		{"const v = await Promise.resolve(5)\nv + 1", "6"}, {"v", "5"},
		{"const {p, q: [r], ...s} = await Promise.resolve({p: 1, q: [2], z: 3}), t = 4;\np + r + s.z + t;", "10"},
		{"p + r + s.z + t", "10"},
		{"for (const i of [1, 2])\n  await i\n", ""},
		{"if (true)\n  await 1\nx\n  + 1", "4"},
		{"async function f() { return await 7 }\nfunction g() { return 8 }\nawait f() + g()", "15"},
		{"g()", "8"}, {"f()", "7"},
		{"import os, { EOL as eol } from 'os'\nimport * as path from 'node:path';\n[typeof os.cpus, eol, path.join('a', 'b')]", "[ 'function', '\\n', 'a/b' ]"},
		{"const { sep } = await import('path'); sep", "/"},
		{"const crypto = require('crypto'); crypto.createHash('md5').update('').digest('hex')", "d41d8cd98f00b204e9800998ecf8427e"},
		{"const re = /[/'\"`]{1}/g, s2 = `a${`b${1 + 1}`}c/`; 'x/y'.replace(re, '-') + s2", "x-yab2c/"},
		{"class B extends A { constructor() { super() } }\n(new B()).v()", "10"},
		{"let z = 1\n;[2].map(i => z + i)", "[ 3 ]"},
		{"var n = 1; n++\nn", "2"},
		{"[1,2,3].map(async i => await i).length", "3"},
		{"// nothing", ""}, {"", ""}, {"#!/usr/bin/node\n1", "1"},
		{"typeof Buffer + typeof fetch + typeof setTimeout", "functionfunctionfunction"},
	} {
		if got := b.js(c.code).wantOK(t).text(); got != c.want {
			t.Errorf("%q shows %q, want %q", c.code, got, c.want)
		}
	}
}

func TestJavaScriptErrors(t *testing.T) {
	b := newTestServer(t)
	for _, c := range []struct{ code, name, value, trace string }{
		{"const a = 1\nthrow new TypeError('no')", "TypeError", "no", "at <cell 1>:2:7"},
		{"await 1\nnull.x", "TypeError", "Cannot read properties of null (reading 'x')", "<cell 2>:2:"},
		{"let q = ;", "SyntaxError", "Unexpected token ';'", "let q = ;"},
		{"await 1; let q = ;", "SyntaxError", "Unexpected token ';'", "<cell 4>:1"},
		{"throw 'text'", "Uncaught", "text", "Uncaught text"},
		{"await Promise.reject(new RangeError('r'))", "RangeError", "r", "RangeError: r"},
		{"missing", "ReferenceError", "missing is not defined", "<cell 7>:1:1"},
		{"await import('no-such-package')", "Error", "Cannot find package 'no-such-package'", ""},
	} {
		o := b.js(c.code)
		if o.err == nil || o.err.Name != c.name {
			t.Errorf("error of %q: got %+v, want %s", c.code, o.lines, c.name)
			continue
		}
		contains(t, c.code, o.err.Value, c.value)
		contains(t, c.code, o.err.Traceback, c.trace)
		for _, ours := range []string{"<crannog", "node:vm"} {
			if strings.Contains(o.err.Traceback, ours) {
				t.Errorf("%q: the traceback shows the worker: %s", c.code, o.err.Traceback)
			}
		}
	}
}

func TestJavaScriptOutput(t *testing.T) {
	b := newTestServer(t)
	o := b.js("console.log('out', {a: 1}); console.error('err'); display({html: '<b>', png: Buffer.from('x')}, 5)\nrequire('child_process').execSync('echo child', {stdio: 'inherit'}); undefined").wantOK(t)
	if o.stdout != "out { a: 1 }\nchild\n" || o.stderr != "err\n" {
		t.Errorf("output: got stdout %q, stderr %q", o.stdout, o.stderr)
	}
	if len(o.results) != 2 || o.results[0].HTML != "<b>" || o.results[0].PNG != "eA==" || o.results[1].Text != "5" || *o.results[0].IsMain {
		t.Errorf("shown results: got %+v, want HTML with a picture, and the value 5", o.results)
	}
	o = b.js("setTimeout(() => { throw new Error('late') }, 1); await new Promise(r => setTimeout(r, 20)); Promise.reject(3); 'alive'").wantOK(t)
	if o.text() != "alive" {
		t.Errorf("after an error in the background: %+v", o.lines)
	}
	contains(t, "stderr", o.stderr, "Uncaught Error: late")
}

func TestTypeScript(t *testing.T) {
	b := newTestServer(t)
	ts := func(code string) outcome { return b.run(payload{"code": code, "language": "typescript"}) }
	if o := ts("const a = [1, 2]; a.length").wantOK(t); o.text() != "2" {
		t.Errorf("code without types: %+v", o.lines)
	}
	o := ts("const a: number = 3\na + 1")
	if o.err == nil {
		if o.text() != "4" {
			t.Errorf("code with types: %+v", o.lines)
		}
		return
	}
	if o.err.Name != "TypeScriptUnsupported" {
		t.Errorf("code with types: %+v", o.lines)
	}
	contains(t, "the error", o.err.Value, "Node 22.13")
}
