package provenance

// PAE exposes the bytes that are signed to tests.
var PAE = pae
