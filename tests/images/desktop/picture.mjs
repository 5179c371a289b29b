// Pictures of the screen, as PNG files, and probes of their pixels.
import { PNG } from 'pngjs'

export function decode(data) {
  const { width, height, data: pixels } = PNG.sync.read(Buffer.from(data))
  const at = (x, y) => [...pixels.subarray((y * width + x) * 4, (y * width + x) * 4 + 3)]
  return { width, height, at, pixels }
}

// colours returns how many different colours a picture has.
export function colours(picture) {
  const seen = new Set()
  for (let i = 0; i < picture.pixels.length; i += 4) seen.add(picture.pixels.readUIntBE(i, 3))
  return seen.size
}

// share returns which part of a rectangle has a colour.
export function share(picture, [left, top, right, bottom], colour) {
  let n = 0
  for (let y = top; y < bottom; y++) {
    for (let x = left; x < right; x++) {
      if (picture.at(x, y).every((v, i) => v === colour[i])) n++
    }
  }
  return n / ((right - left) * (bottom - top))
}

// changed returns which part of the pixels differs between two pictures of one size.
export function changed(a, b) {
  let n = 0
  for (let i = 0; i < a.pixels.length; i += 4) {
    if (a.pixels.readUIntBE(i, 3) !== b.pixels.readUIntBE(i, 3)) n++
  }
  return n / (a.width * a.height)
}
