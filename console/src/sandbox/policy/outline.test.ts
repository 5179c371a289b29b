import { describe, expect, it } from "vitest";
import { bindings, outline } from "./outline";

const document = `policy: v1
name: agent
filesystem:
    workspace:
        mode: overlay
        writable: true
    deny:
        - '**/.ssh/**'
        - "odd: \\"name\\""
network:
    unlisted: ask
    hosts:
        - host: api.github.com
          ports:
            - 443
            - 8443
          rules:
            - id: read
              methods:
                - GET
              do: allow
        - host: '*.example.com'
secrets:
    bind:
        - name: GITHUB_TOKEN
          host: api.github.com
          header: Authorization
          format: Bearer {}
          paths:
            - /repos/**
        - name: NPM
          host: registry.example
          port: 8443
          basic: user
    max_ttl: 8h
`;

describe("outline", () => {
  it("parses what the server writes", () => {
    const fields = outline(document);
    expect(fields["filesystem"]).toEqual({ workspace: { mode: "overlay", writable: "true" }, deny: ["**/.ssh/**", 'odd: "name"'] });
    expect(fields["network"]).toEqual({
      unlisted: "ask",
      hosts: [
        { host: "api.github.com", ports: ["443", "8443"], rules: [{ id: "read", methods: ["GET"], do: "allow" }] },
        { host: "*.example.com" },
      ],
    });
  });

  it("refuses text that it could interpret differently than the server", () => {
    for (const unsupported of ["", "- a", "a: &x 1", "a: *x", "a: |\n    text", "a: [1, 2]", "a:\nb: 1", "a: {b: 1}", "a:\n    b: 1\n  c: 2", "a: 'x", "a: !!int 3", "just text", "a:\n    - - b"]) {
      expect(() => outline(unsupported), unsupported).toThrow();
    }
  });

  it("has no prototype that a name in the document could reach", () => {
    expect(outline("__proto__: x\nconstructor: y")["constructor"]).toBe("y");
    expect(({} as Record<string, unknown>)["x"]).toBeUndefined();
  });
});

describe("bindings", () => {
  it("names secrets, and the requests that they are set on", () => {
    expect(bindings(document)).toEqual([
      { name: "GITHUB_TOKEN", host: "api.github.com", how: "Authorization", paths: ["/repos/**"] },
      { name: "NPM", host: "registry.example:8443", how: "Basic credential", paths: [] },
    ]);
    expect(bindings("policy: v1\n")).toEqual([]);
  });
});
