package setup

// machineCalls lists the calls that only this architecture has. They are allowed with any
// arguments.
var machineCalls = []call{}
