// The trace processor of Perfetto's page as a process: TraceProcessorRpcStream in by stdin and out by stdout.
// Run by perfetto_sql.py, with the path of the page's engine_bundle.js, which is written for a web worker.
const fs = require("fs"), path = require("path");

const bundle = process.argv[2];
class Fetched {
  open(_, name) { this.file = path.join(path.dirname(bundle), name); }
  send() { this.response = fs.readFileSync(this.file); }
}
const self = { location: { href: "file:///" } };
const said = { log: console.error, warn: console.error, error: console.error };
const worker = { self, process: undefined, console: said, WorkerGlobalScope: Object, XMLHttpRequest: Fetched };
new Function(...Object.keys(worker), fs.readFileSync(bundle, "utf8"))(...Object.values(worker));

const port = { postMessage: (bytes) => process.stdout.write(bytes) };
setImmediate(() => {
  self.onmessage({ data: port });
  process.stdin.on("data", (data) => port.onmessage({ data }));
});
