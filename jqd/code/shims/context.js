// A context in node: the same as context.py, whose frames these are. `before` is a script of its own, whose names all
// code after it sees; the body, `beforeEach` and `afterEach` are bodies of async functions, so they may return and await.
'use strict'
const fs = require('node:fs')
const net = require('node:net')
const vm = require('node:vm')
const { createRequire } = require('node:module')

const [jobsFd, answersFd] = process.argv.slice(2).map(Number)
process.argv.length = 1
const AsyncFunction = (async () => {}).constructor
const functions = new Map()
let run = null
let after = null

class Broken extends Error {} // a text does not compile; its cause says why
class Failed extends Error {}
class Retry extends Error {
  constructor (message, after) {
    super(message)
    this.after = after === undefined ? null : Number(after)
  }
}
Object.assign(globalThis, { Failed, Retry, require: createRequire(process.cwd() + '/') })

function compiled (text, called) {
  const key = called + '\0' + text
  if (!functions.has(key)) {
    functions.set(key, new AsyncFunction('argument', 'payload', 'job', `${text}\n//# sourceURL=${called}`))
  }
  return functions.get(key)
}

async function answer (told) {
  if (told.job) {
    const { argument, ...job } = told.job
    return run(argument, typeof argument === 'string' ? argument : JSON.stringify(argument), job)
  }
  if ('before' in told) {
    if (told.before) await vm.runInThisContext(told.before, { filename: 'before' })
  } else if ('begin' in told) {
    let before
    try {
      run = compiled(told.body, told.called)
      before = compiled(told.begin, `beforeEach of ${told.called}`)
      after = compiled(told.end, `afterEach of ${told.called}`)
    } catch (error) {
      throw new Broken('', { cause: error })
    }
    await before()
  } else {
    await after()
  }
}

function failure (error) {
  if (error instanceof Broken) return { ...failure(error.cause), broken: true }
  const said = error instanceof Error ? `${error.name}: ${error.message}` : String(error)
  if (error instanceof Failed) return { status: 400, message: error.message || 'Failed', error: said }
  if (error instanceof Retry) {
    return { status: 100, message: error.message || 'Retry', error: said, retry_after: error.after ?? null }
  }
  return { status: 500, message: (error && error.stack) || said, error: said }
}

async function answered (told) {
  try {
    const result = await answer(told)
    return JSON.stringify({ status: 200, result: result === undefined || !told.job ? null : result })
  } catch (error) {
    return JSON.stringify(failure(error))
  }
}

function write (text) {
  const bytes = Buffer.from(text + '\n')
  for (let at = 0; at < bytes.length;) at += fs.writeSync(answersFd, bytes, at)
}

async function main () {
  let begun = []
  // A socket, as a read that waits in a thread would hold up process.exit().
  for await (const piece of new net.Socket({ fd: jobsFd, readable: true, writable: false })) {
    let from = 0
    for (let end; (end = piece.indexOf(10, from)) >= 0; from = end + 1) {
      begun.push(piece.subarray(from, end))
      const line = Buffer.concat(begun).toString()
      begun = []
      const told = JSON.parse(line)
      write(`${told.at} ${await answered(told)}`)
    }
    begun.push(piece.subarray(from))
  }
  process.exit(0)
}

main()
