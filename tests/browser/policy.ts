/** The host outside that the tests' network has. */
export const upstream = "api.example.test";

/** Reading is allowed, writing is asked about, all else is denied. */
export const asking = `policy: v1
level: light
network: {unlisted: deny, hosts: [{host: ${upstream}, ports: [80], rules: [{methods: [GET], do: allow}, {methods: [POST], do: ask}]}]}
`;
