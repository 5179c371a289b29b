// Makes the module fs: reading and writing of whole files, at once or with
// promises.
(() => {
  "use strict";
  const { Object, String, Uint8Array, Date, Error, JSON } = globalThis;

  const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding);

  // decode returns bytes as a string.
  function decode(bytes, encoding) {
    switch (String(encoding).toLowerCase().replace("-", "")) {
      case "utf8": return utf8(bytes);
      case "base64": return bytes.toBase64();
      case "hex": return bytes.toHex();
      case "latin1": case "binary": case "ascii": {
        let text = "";
        for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
        return text;
      }
      default: throw new TypeError(`Unknown encoding: ${encoding}`);
    }
  }

  function utf8(bytes) {
    const chunks = [];
    let text = "";
    for (let i = 0; i < bytes.length; ) {
      const b = bytes[i++];
      const size = b < 0x80 ? 0 : b >= 0xc2 && b < 0xe0 ? 1 : b >= 0xe0 && b < 0xf0 ? 2 : b >= 0xf0 && b < 0xf5 ? 3 : -1;
      let point = size < 0 ? 0xfffd : size === 0 ? b : b & (0x3f >> size);
      for (let k = 0; k < size; k++) {
        if ((bytes[i] & 0xc0) !== 0x80) {
          point = 0xfffd;
          break;
        }
        point = (point << 6) | (bytes[i++] & 0x3f);
      }
      text += String.fromCodePoint(point > 0x10ffff ? 0xfffd : point);
      if (text.length > 65536) {
        chunks.push(text);
        text = "";
      }
    }
    return chunks.join("") + text;
  }

  const content = (data) => {
    if (typeof data === "string" || data instanceof Uint8Array) return data;
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    return String(data);
  };

  const describe = (e) => ({
    name: e.name, size: e.size, mode: e.mode, mtimeMs: e.mtimeMs, mtime: new Date(e.mtimeMs),
    isFile: () => !e.dir && !e.link, isDirectory: () => e.dir, isSymbolicLink: () => e.link,
  });

  // make returns the module. resolve returns the absolute path of a path.
  function make(host, resolve) {
    const call = (operation, path, ...rest) => {
      try {
        return host(operation, resolve(path), ...rest);
      } catch (e) {
        e.code = /^E[A-Z]+/.exec(e.message)?.[0];
        e.path = String(path);
        throw e;
      }
    };
    const stat = (path) => describe(JSON.parse(call("stat", path)));
    const sync = {
      readFile: (path, options) => {
        const bytes = call("read", path);
        const encoding = encodingOf(options);
        return encoding ? decode(bytes, encoding) : bytes;
      },
      writeFile: (path, data) => void call("write", path, content(data)),
      appendFile: (path, data) => void call("append", path, content(data)),
      readdir: (path, options) => {
        const list = JSON.parse(call("list", path));
        return options?.withFileTypes ? list.map(describe) : list.map((e) => e.name);
      },
      stat,
      access: (path) => void stat(path),
      mkdir: (path, options) => void call(options?.recursive ? "mkdirs" : "mkdir", path),
      unlink: (path) => void call("remove", path),
      rmdir: (path) => void call("remove", path),
      rm: (path, options) => {
        if (options?.recursive) return void call("removeAll", path);
        try {
          call("remove", path);
        } catch (e) {
          if (!(options?.force && e.code === "ENOENT")) throw e;
        }
      },
    };
    const fs = { promises: {} };
    for (const [name, f] of Object.entries(sync)) {
      fs[`${name}Sync`] = f;
      fs.promises[name] = async (...args) => f(...args);
    }
    fs.existsSync = (path) => {
      try {
        call("stat", path);
        return true;
      } catch {
        return false;
      }
    };
    return fs;
  }
  return { make };
})()
