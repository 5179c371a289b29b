package provenance

// PAE is what is signed, for tests.
var PAE = pae
