package approval

import "strconv"

// SecondPerson describes the way that always leads to another person. On the command line every
// person is the same caller, so a second crannog approve on this machine is not a second vote.
const SecondPerson = "somebody else, signed in by a link of crannog console --name SOMEBODY (needs crannog serve)"

// HowToGrant returns a hint how to grant a request: the command alone if one person is enough, and
// otherwise also whose votes count.
func HowToGrant(id, owner string, quorum int) string {
	way := "crannog approve " + id
	if quorum <= 1 {
		return way
	}
	return strconv.Itoa(quorum) + " people must approve: " + way + ", and " + Others(owner)
}

// Others describes the people who count beside one who has approved already. A sandbox that the
// machine's user created has no key whose holder could be one of them.
func Others(owner string) string {
	if owner == "" {
		return SecondPerson
	}
	return "who holds the sandbox's key, this server's user, or " + SecondPerson
}
