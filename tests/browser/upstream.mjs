// The only outside host. It answers every request and logs it.
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";

const [address, log] = process.argv.slice(2);
createServer((request, response) => {
  appendFileSync(log, `${request.method} ${request.url}\n`);
  response.end("upstream says hello\n");
}).listen(80, address);
