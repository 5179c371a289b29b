import { describe, expect, it } from "vitest";
import { maxImage, maxShown, modeText, shownAs } from "./filetype";

const bytes = (text: string) => new TextEncoder().encode(text);

describe("shownAs", () => {
  it("shows images by their bytes alone", () => {
    expect(shownAs(new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0]))).toEqual({ as: "image", type: "image/png" });
    expect(shownAs(new Uint8Array([0xff, 0xd8, 0xff, 0xe0]))).toEqual({ as: "image", type: "image/jpeg" });
    expect(shownAs(bytes("GIF89a"))).toEqual({ as: "image", type: "image/gif" });
    expect(shownAs(bytes("RIFF....WEBPVP8 "))).toEqual({ as: "image", type: "image/webp" });
    expect(shownAs(bytes("RIFF....WAVE"))).toMatchObject({ as: "text" });
  });

  it("shows formats that can contain scripts as text", () => {
    for (const source of ["<svg onload=alert(1)>", "<!doctype html><script>alert(1)</script>", "%PDF-1.7"]) {
      expect(shownAs(bytes(source))).toEqual({ as: "text", text: source, whole: true, exact: true });
    }
  });

  it("shows neither binary data nor huge images", () => {
    expect(shownAs(new Uint8Array([1, 0, 2]))).toEqual({ as: "bytes" });
    const huge = new Uint8Array(maxImage + 1);
    huge.set([0xff, 0xd8, 0xff]);
    expect(shownAs(huge)).toEqual({ as: "bytes" });
  });

  it("limits the text, and marks text that is not exact", () => {
    const long = shownAs(bytes("ä".repeat(maxShown)));
    expect(long).toMatchObject({ as: "text", whole: false, exact: true });
    expect(shownAs(new Uint8Array([0x61, 0xff]))).toMatchObject({ as: "text", text: "a\ufffd", exact: false });
    expect(shownAs(new Uint8Array())).toMatchObject({ as: "text", text: "", whole: true });
  });
});

it("shows permission bits as ls does", () => {
  expect([modeText("644"), modeText("0755"), modeText(0o600), modeText("drwx"), modeText(undefined)]).toEqual(["rw-r--r--", "rwxr-xr-x", "rw-------", "drwx", ""]);
});
