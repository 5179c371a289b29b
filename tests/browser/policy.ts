/** The outside host in the tests' network. */
export const upstream = "api.example.test";

/** Reading is allowed, writing needs an approval, everything else is denied. */
export const asking = `policy: v1
level: light
network: {unlisted: deny, hosts: [{host: ${upstream}, ports: [80], rules: [{methods: [GET], do: allow}, {methods: [POST], do: ask}]}]}
`;
