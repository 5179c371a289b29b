package abuse_test

var memoryAttacks, diskAttacks, outputAttacks []attack
