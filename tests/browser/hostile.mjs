// Texts that a sandbox or a registry can choose: names, output, paths, metadata. In a careless page,
// script would run code, and marks would forge or hide text.
export const script = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`;
export const marks = "\u202egnp.exe\u200b\u2066\u001b[31mred\u001b]8;;http://evil.example\u0007link\u001b]8;;\u0007";
export const hostileText = script + marks;
