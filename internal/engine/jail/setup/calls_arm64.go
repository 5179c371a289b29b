package setup

// machineCalls are the calls that only this architecture has.
var machineCalls = []call{}
