package setup

// machineCalls are the calls that this architecture has besides plainCalls.
var machineCalls = []call{}
