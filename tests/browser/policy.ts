/** The outside host in the tests' network. */
export const upstream = "api.example.test";

/** A policy that allows reading, requires approvals for writing, and denies everything else. */
export const askPolicy = `policy: v1
level: light
network: {unlisted: deny, hosts: [{host: ${upstream}, ports: [80], rules: [{methods: [GET], do: allow}, {methods: [POST], do: ask}]}]}
`;

/** A policy that has packages from the cache, which treats the outside host as npm's registry. */
export const packagePolicy = `policy: v1
level: light
network: {unlisted: deny, hosts: [{host: ${upstream}, ports: [80], encoded_slash: true, rules: [{methods: [GET, HEAD], do: allow}]}]}
packages: {cache: [npm], registries: [{host: ${upstream}, ecosystem: npm}], deny: ["npm:denied-package"]}
`;
