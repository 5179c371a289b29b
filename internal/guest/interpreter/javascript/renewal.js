// Brings a worker up to date when its sandbox has become another one.
(() => {
  "use strict";
  let fresh = false;

  // renew changes what the code has not changed itself.
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
      // The directory is gone, which the code will see.
    }
    if (change.seed && !fresh) {
      fresh = true;
      replace(require);
    }
  }

  // replace lets what draws at random ask the kernel: neither the generator
  // of Math.random nor OpenSSL's can be told to start again, and another
  // sandbox has the same.
  function replace(require) {
    const fs = require("fs");
    const crypto = require("crypto");
    const source = fs.openSync("/dev/urandom", "r");
    const fill = (bytes) => {
      for (let at = 0; at < bytes.length; ) at += fs.readSync(source, bytes, at, bytes.length - at, null);
      return bytes;
    };
    const store = new Float64Array(256);
    const words = new BigUint64Array(store.buffer);
    let left = 0;
    Math.random = function random() {
      if (left === 0) {
        fill(new Uint8Array(store.buffer));
        // The bits of a fraction from 1 to 2, of which 1 is taken away.
        for (let i = 0; i < words.length; i++) words[i] = (words[i] >> 12n) | 0x3ff0000000000000n;
        left = store.length;
      }
      return store[--left] - 1;
    };

    // Each asks the original first, which knows what arguments are right.
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
      // Six bytes are more than any range; what is above the last multiple of
      // it would make some numbers likelier than others.
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
    const own = {
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
    for (const [name, value] of Object.entries(own)) {
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
