// Applies a new configuration of the sandbox to a worker.
(() => {
  "use strict";
  let fresh = false;

  // renew changes variables and the directory, unless code has changed them.
  function renew(change, require) {
    for (const [name, { from, to }] of Object.entries(change.env ?? {})) {
      if (process.env[name] !== from) continue;
      if (to === undefined) delete process.env[name];
      else process.env[name] = to;
    }
    try {
      if (change.dir && process.cwd() === change.dir.from) {
        process.chdir(change.dir.to);
        globalThis.require = require("module").createRequire(process.cwd() + "/");
      }
    } catch {
      // The directory does not exist; code that uses it gets the error.
    }
    if (change.seed && !fresh) {
      fresh = true;
      replaceRandom(require);
    }
  }

  // replaceRandom makes all random functions use the kernel's generator. The
  // generators of Math.random and of OpenSSL cannot be reseeded, and other
  // copies of the sandbox have them in the same state.
  function replaceRandom(require) {
    const fs = require("fs");
    const crypto = require("crypto");
    const source = fs.openSync("/dev/urandom", "r");
    const fill = (bytes) => {
      for (let at = 0; at < bytes.length; ) at += fs.readSync(source, bytes, at, bytes.length - at, null);
      return bytes;
    };
    const store = new Float64Array(256);
    const words = new BigUint64Array(store.buffer);
    let unused = 0; // values left in store
    Math.random = function random() {
      if (unused === 0) {
        fill(new Uint8Array(store.buffer));
        // Set the bits to a number from 1 to 2. The caller subtracts 1.
        for (let i = 0; i < words.length; i++) words[i] = (words[i] >> 12n) | 0x3ff0000000000000n;
        unused = store.length;
      }
      return store[--unused] - 1;
    };

    // Each function calls the original first, which checks the arguments.
    const part = (buffer, offset = 0, size = undefined) => {
      const all = ArrayBuffer.isView(buffer)
        ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
        : new Uint8Array(buffer);
      const unit = buffer.BYTES_PER_ELEMENT ?? 1;
      return all.subarray(offset * unit, size === undefined ? undefined : (offset + size) * unit);
    };
    const { randomBytes, randomFill, randomFillSync, randomInt, randomUUID } = crypto;
    const bytes = (size, done) =>
      done === undefined
        ? fill(randomBytes(size))
        : randomBytes(size, (error, buffer) => done(error, error ? buffer : fill(buffer)));
    const below = (range) => {
      // Six bytes exceed any range. Values above the last multiple of the range
      // are skipped, because they would make some numbers more likely.
      const last = 2 ** 48 - (2 ** 48 % range);
      for (;;) {
        const n = Buffer.from(fill(new Uint8Array(6))).readUIntBE(0, 6);
        if (n < last) return n % range;
      }
    };
    const uuid = (options) => {
      randomUUID(options);
      const b = fill(new Uint8Array(16));
      b[6] = (b[6] & 0x0f) | 0x40;
      b[8] = (b[8] & 0x3f) | 0x80;
      return Buffer.from(b).toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
    };
    const replacements = {
      randomBytes: bytes,
      pseudoRandomBytes: bytes,
      prng: bytes,
      rng: bytes,
      randomFillSync(buffer, ...range) {
        randomFillSync(buffer, ...range);
        fill(part(buffer, ...range));
        return buffer;
      },
      randomFill(buffer, ...rest) {
        const done = rest.pop();
        randomFill(buffer, ...rest, (error) => {
          if (!error) fill(part(buffer, ...rest));
          done(error, error ? undefined : buffer);
        });
      },
      randomInt(...args) {
        const done = typeof args[args.length - 1] === "function" ? args.pop() : undefined;
        randomInt(...args);
        const [min, max] = args.length === 1 ? [0, args[0]] : args;
        const n = min + below(max - min);
        if (!done) return n;
        process.nextTick(done, undefined, n);
      },
      randomUUID: uuid,
    };
    for (const [name, value] of Object.entries(replacements)) {
      if (name in crypto) Object.defineProperty(crypto, name, { value, writable: true, configurable: true, enumerable: true });
    }
    const web = Object.getPrototypeOf(crypto.webcrypto);
    const { getRandomValues } = web;
    web.getRandomValues = function (array) {
      getRandomValues.call(this, array);
      fill(part(array));
      return array;
    };
    web.randomUUID = () => uuid();
    require("module").syncBuiltinESMExports();
  }

  return { renew };
})()
