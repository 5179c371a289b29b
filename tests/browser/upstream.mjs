// The only outside host. It answers every request and logs it. It is also a registry of packages.
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { registryAnswer } from "./registry.mjs";

const [address, log] = process.argv.slice(2);
createServer((request, response) => {
  appendFileSync(log, `${request.method} ${request.url}\n`);
  response.end(registryAnswer(`http://${request.headers.host}`, request.url) ?? "upstream says hello\n");
}).listen(80, address);
