// The JavaScript driver of function mode: `node javascript_driver.js ENTRY` loads program.js beside it and answers
// requests. Frames and encoding are those of python_driver.py. It knows no expected result.
//
// An integral number is sent as an int, any other as a float; a BigInt as an int; Map and plain objects as a dict;
// undefined as None. A promise is awaited.
"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const DEPTH = 50;
const entryName = process.argv[2];
const { readSync, writeSync } = fs;

function text(tag, bytes) {
  return Buffer.concat([Buffer.from(`${tag}${bytes.length}:`), bytes]);
}

function several(tag, items, count = items.length) {
  return Buffer.concat([Buffer.from(`${tag}${count};`), ...items]);
}

function float(value) {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(value);
  return Buffer.from("d" + bytes.toString("hex"));
}

function encode(value, depth) {
  if (value === null || value === undefined) return Buffer.from("n");
  if (value === true || value === false) return Buffer.from(value ? "t" : "f");
  if (typeof value === "bigint") return Buffer.from(`i${value.toString(16)};`);
  if (typeof value === "number") {
    return Number.isSafeInteger(value) && !Object.is(value, -0) ? Buffer.from(`i${value.toString(16)};`) : float(value);
  }
  if (typeof value === "string") return text("s", Buffer.from(value, "utf8"));
  if (typeof value !== "object") throw new Error(typeof value);
  if (depth >= DEPTH) throw new Error(`nesting deeper than ${DEPTH}`);
  const inner = (item) => encode(item, depth + 1);
  const pair = ([key, item]) => Buffer.concat([inner(key), inner(item)]);
  switch (Object.getPrototypeOf(value)) {
    case Array.prototype:
      return several("l", Array.from(value, inner));
    case Set.prototype:
      return several("e", Array.from(value, inner));
    case Map.prototype:
      return several("m", Array.from(value.entries(), pair));
    case Object.prototype:
    case null:
      return several("m", Object.entries(value).map(pair));
    case Buffer.prototype:
    case Uint8Array.prototype:
      return text("b", Buffer.from(value));
    default:
      throw new Error(String(value.constructor && value.constructor.name));
  }
}

class Reader {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  until(stop) {
    const end = this.data.indexOf(stop, this.at);
    const found = this.data.toString("latin1", this.at, end);
    this.at = end + 1;
    return found;
  }

  take(count) {
    this.at += count;
    return this.data.subarray(this.at - count, this.at);
  }

  items(count) {
    return Array.from({ length: count }, () => this.value());
  }

  value() {
    const tag = this.take(1).toString("latin1");
    if (tag === "n") return null;
    if (tag === "t" || tag === "f") return tag === "t";
    if (tag === "d") return Buffer.from(this.take(16).toString("latin1"), "hex").readDoubleBE();
    if (tag === "i") {
      const digits = this.until(";");
      const whole = digits.startsWith("-") ? -BigInt("0x" + digits.slice(1)) : BigInt("0x" + digits);
      return Number.isSafeInteger(Number(whole)) ? Number(whole) : whole;
    }
    if (tag === "s") return this.take(Number(this.until(":"))).toString("utf8");
    if (tag === "b") return new Uint8Array(this.take(Number(this.until(":"))));
    const count = Number(this.until(";"));
    if (tag === "l" || tag === "u") return this.items(count);
    if (tag === "e" || tag === "z") return new Set(this.items(count));
    const pairs = Array.from({ length: count }, () => this.items(2));
    return pairs.every(([key]) => typeof key === "string") ? Object.fromEntries(pairs) : new Map(pairs);
  }
}

let pending = Buffer.alloc(0);

function receive(enough) {
  const chunk = Buffer.alloc(65536);
  while (!enough(pending)) {
    const count = readSync(0, chunk);
    if (count === 0) return false;
    pending = Buffer.concat([pending, chunk.subarray(0, count)]);
  }
  return true;
}

function request() {
  if (!receive((data) => data.includes("\n"))) return null;
  const end = pending.indexOf("\n");
  const [identity, length] = pending.toString("latin1", 0, end).split(" ");
  const whole = end + 1 + Number(length);
  if (!receive((data) => data.length >= whole)) return null;
  const body = pending.subarray(end + 1, whole);
  pending = pending.subarray(whole);
  return { identity, body };
}

function reply(identity, kind, body) {
  let rest = Buffer.concat([Buffer.from(`${identity} ${kind} ${body.length}\n`), body]);
  while (rest.length) rest = rest.subarray(writeSync(1, rest));
}

function load() {
  const source = fs.readFileSync(path.join(__dirname, "program.js"), "utf8");
  const module = { exports: {} };
  Object.assign(globalThis, { module, exports: module.exports, require });
  vm.runInThisContext(source, { filename: "program.js" });
  const declared = /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(entryName)
    ? vm.runInThisContext(`typeof ${entryName} === "undefined" ? undefined : ${entryName}`)
    : undefined;
  const found = declared === undefined ? module.exports[entryName] : declared;
  if (typeof found !== "function") throw new ReferenceError(entryName);
  return found;
}

async function main() {
  let entry = null;
  for (let asked = request(); asked; asked = request()) {
    let kind = "r";
    let body = Buffer.alloc(0);
    let result;
    try {
      if (entry === null) entry = load();
      else result = await entry(...new Reader(asked.body).value()[0]); // no keyword arguments here
    } catch (error) {
      kind = "e";
      body = Buffer.from(String((error && error.name) || typeof error).slice(0, 100));
    }
    if (kind === "r") {
      try {
        body = encode(result, 0);
      } catch (error) {
        kind = "u";
        body = Buffer.from(String(error && error.message).slice(0, 100));
      }
    }
    reply(asked.identity, kind, body);
  }
}

// whatever the program prints is no answer
process.stdout.write = process.stderr.write.bind(process.stderr);
globalThis.console = new console.Console(process.stderr, process.stderr);
main();
