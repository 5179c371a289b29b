package approval

import "strconv"

// SecondPerson describes how another person can always vote. On the command line all people are the
// same caller, so a second crannog approve on this machine is not a second vote.
const SecondPerson = "another person, signed in by a link of crannog console --name SOMEBODY (needs crannog serve)"

// HowToGrant returns a hint about granting a request: the command, and, if several people must
// vote, also whose votes count.
func HowToGrant(id, owner string, quorum int) string {
	way := "crannog approve " + id
	if quorum <= 1 {
		return way
	}
	return strconv.Itoa(quorum) + " people must approve: " + way + ", and " + Others(owner)
}

// Others describes the people whose votes still count after one has voted. A sandbox of the
// machine's user has no key whose holder could vote.
func Others(owner string) string {
	if owner == "" {
		return SecondPerson
	}
	return "the holder of the sandbox's key, this server's user, or " + SecondPerson
}
