// Pushes a job and waits for its result, by a client that is generated from what a daemon serves:
//
//     npm install openapi-fetch openapi-typescript typescript
//     npx openapi-typescript http://127.0.0.1:7420/openapi.json --default-non-nullable=false -o jqd.d.ts
//     npx tsc --strict --module nodenext --target es2022 client.ts
//     node client.js http://127.0.0.1:7420
//
// `--default-non-nullable=false`: what has a default may be left out. `jqd dev` runs the job `echo`.
import createClient from "openapi-fetch";
import type { paths } from "./jqd.js";

declare const process: { argv: string[] };

const jqd = createClient<paths>({ baseUrl: process.argv[2] });

const pushed = await jqd.POST("/v1/jobs", {
  headers: { "Idempotency-Key": "hello-1" }, // sent twice, it counts once
  body: { name: "echo", argument: { to: "ann", numbers: [1, 2] }, keep_result: true },
});
if (!pushed.data || !("job_id" in pushed.data)) throw new Error(pushed.error?.detail);

const told = await jqd.GET("/v1/jobs/{job_id}", {
  params: { path: { job_id: pushed.data.job_id }, query: { wait: 30 } },
});
if (!told.data) throw new Error(told.error.detail);

const refused = await jqd.POST("/v1/jobs", { body: { name: "" } });
console.log(JSON.stringify({ state: told.data.state, result: told.data.result, refused: refused.error?.errors?.[0].pointer }));
