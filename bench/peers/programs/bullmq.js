// BullMQ: addBulk, completed jobs removed, one worker with 50 jobs at once. Pushes as drive.py says: `work` works.
"use strict";
const { openSync, writeSync } = require("node:fs");
const { createInterface } = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const { Queue, Worker } = require("bullmq");

const [host, port] = process.env.PEER_URL.split("/")[2].split(":");
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const OPTIONS = { removeOnComplete: true };
const ARRAY = 500, CONCURRENCY = 50;
const argument = (number) => String(number).padStart(12, "0").padEnd(200, "x");
const now = () => process.hrtime.bigint();
const over = (since, seconds) => Number(now() - since) >= seconds * 1e9;

function work() {
  const pipe = openSync(process.env.BENCH_MARKS, "w");
  new Worker("bench", async (job) => {
    const mark = Buffer.alloc(16);
    mark.writeBigInt64LE(BigInt(Number(job.data.slice(0, 12))), 0);
    mark.writeBigInt64LE(now(), 8);
    writeSync(pipe, mark);
  }, { connection, concurrency: CONCURRENCY });
}

const orders = {
  async many(queues, { first, count, seconds }) {
    const began = now();
    let pushed = 0;
    while (pushed < count && !over(began, seconds)) {
      const size = Math.min(ARRAY, count - pushed);
      const jobs = Array.from({ length: size }, (_, n) => ({ name: "noop", data: argument(first + pushed + n), opts: OPTIONS }));
      await queues[0].addBulk(jobs);
      pushed += size;
    }
    return { pushed, began };
  },
  async single(queues, { first, connections, seconds }) {
    const began = now();
    let pushed = 0;
    await Promise.all(Array.from({ length: connections }, async (_, place) => {
      while (!over(began, seconds)) {
        await queues[place].add("noop", argument(first + pushed++), OPTIONS);
      }
    }));
    return { pushed, began };
  },
  async paced(queues, { first, count, rate, delay }) {
    const began = now() + BigInt(Math.round(delay * 1e9));
    for (let n = 0; n < count; n++) {
      await sleep(Math.max(0, (n * 1e9 / rate - Number(now() - began)) / 1e6));
      await queues[0].add("noop", argument(first + n), OPTIONS);
    }
    return { pushed: count, began };
  },
};

async function drive() {
  const queues = [];
  const grow = async (number) => {
    while (queues.length < number) {
      queues.push(new Queue("bench", { connection }));
      await queues.at(-1).waitUntilReady();
    }
  };
  await grow(1);
  console.log('{"ready": true}');
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    await grow(order.connections ?? 1);
    const { pushed, began } = await orders[order.do](queues, order);
    console.log(`{"pushed": ${pushed}, "began_ns": ${began}}`);
  }
  process.exit(0);
}

process.argv[2] === "work" ? work() : drive();
