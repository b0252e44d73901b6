// The web hook of the benchmarks: plain Node, does nothing with its job. Prints its port.
const http = require("http");

const server = http.createServer((request, response) => {
  let body = "";
  request.on("data", (part) => { body += part; });
  request.on("end", () => {
    JSON.parse(body);
    response.writeHead(204).end();
  });
});
server.keepAliveTimeout = 10_000; // longer than the daemon keeps an idle connection
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
