// A client of VNC (RFB 3.8, RFC 6143) over a WebSocket, as noVNC is one in the page of the stream.
import { createCipheriv } from 'node:crypto'

import { WebSocket } from 'undici'

// connect authenticates with a password, or with none, and returns the screen's size and a function
// that fetches its pixels.
export async function connect(url, headers, password) {
  const socket = new WebSocket(url, { headers, protocols: ['binary'] })
  socket.binaryType = 'arraybuffer'
  const read = reader(socket)
  const send = (...bytes) => socket.send(Buffer.from(bytes))
  try {
    await read(12)
    socket.send(Buffer.from('RFB 003.008\n'))
    const types = [...(await read((await read(1))[0]))]
    const type = password === undefined ? 1 : 2
    if (!types.includes(type)) throw new Error(`the server offers the security types ${types}, not ${type}`)
    send(type)
    if (password !== undefined) socket.send(response(await read(16), password))
    if ((await read(4)).readUInt32BE() !== 0) throw new Error('the password was refused')
    send(1)
    const init = await read(24)
    const [width, height] = [init.readUInt16BE(0), init.readUInt16BE(2)]
    await read(init.readUInt32BE(20))
    return { width, height, close: () => socket.close(), pixels: () => pixels(socket, read, width, height) }
  } catch (error) {
    socket.close()
    throw error
  }
}

// reader returns a function that resolves to the next bytes of a socket.
function reader(socket) {
  let data = Buffer.alloc(0)
  let wake = () => {}
  let failed
  socket.addEventListener('message', (event) => {
    data = Buffer.concat([data, Buffer.from(event.data)])
    wake()
  })
  socket.addEventListener('close', () => {
    failed ??= new Error('the connection was closed')
    wake()
  })
  socket.addEventListener('error', (event) => {
    failed ??= event.error ?? new Error('the connection failed')
    wake()
  })
  const opened = new Promise((resolve) => {
    socket.addEventListener('open', resolve)
    socket.addEventListener('close', resolve)
  })
  return async (n) => {
    await opened
    while (data.length < n) {
      if (failed) throw failed
      await new Promise((resolve) => (wake = resolve))
    }
    const part = data.subarray(0, n)
    data = data.subarray(n)
    return part
  }
}

// response encrypts a challenge with DES. A key has the bits of each byte of the password reversed,
// and DES is triple DES with three equal keys, which every build of OpenSSL has.
function response(challenge, password) {
  const key = Buffer.alloc(8)
  key.write(password.slice(0, 8), 'latin1')
  for (const [i, byte] of key.entries()) key[i] = parseInt(byte.toString(2).padStart(8, '0').split('').reverse().join(''), 2)
  const cipher = createCipheriv('des-ede3', Buffer.concat([key, key, key]), null).setAutoPadding(false)
  return Buffer.concat([cipher.update(challenge), cipher.final()])
}

// pixels fetches the whole screen without compression.
async function pixels(socket, read, width, height) {
  const request = Buffer.from([3, 0, 0, 0, 0, 0, 0, 0, 0, 0])
  request.writeUInt16BE(width, 6)
  request.writeUInt16BE(height, 8)
  socket.send(Buffer.from([2, 0, 0, 1, 0, 0, 0, 0]))
  socket.send(request)
  const picture = Buffer.alloc(width * height * 4)
  for (let left = width * height; left > 0;) {
    const type = (await read(1))[0]
    if (type !== 0) throw new Error(`a message of type ${type}, want an update`)
    for (let n = (await read(3)).readUInt16BE(1); n > 0; n--) {
      const head = await read(12)
      const [x, y, w, h] = [0, 2, 4, 6].map((i) => head.readUInt16BE(i))
      const data = await read(w * h * 4)
      for (let row = 0; row < h; row++) data.copy(picture, ((y + row) * width + x) * 4, row * w * 4, (row + 1) * w * 4)
      left -= w * h
    }
  }
  return picture
}
