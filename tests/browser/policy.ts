/** The outside host in the tests' network. */
export const upstream = "api.example.test";

/** A policy that allows reading, requires approvals for writing, and denies everything else. */
export const askPolicy = `policy: v1
level: light
network: {unlisted: deny, hosts: [{host: ${upstream}, ports: [80], rules: [{methods: [GET], do: allow}, {methods: [POST], do: ask}]}]}
`;
