package approval

import "strconv"

// SecondPerson names the way that always leads to another person. On the command line every
// person is the same caller, so a second crannog approve on this machine is no second vote.
const SecondPerson = "somebody else, signed in by a link of crannog console --name SOMEBODY (needs crannog serve)"

// HowToGrant returns, for a hint, what grants a request: the command alone where one
// person is enough, and who else counts where not.
func HowToGrant(id, owner string, quorum int) string {
	way := "crannog approve " + id
	if quorum <= 1 {
		return way
	}
	return strconv.Itoa(quorum) + " people must approve: " + way + ", and " + Others(owner)
}

// Others are the people beside one who has approved already. What the
// machine's user made has no key that could be one of them.
func Others(owner string) string {
	if owner == "" {
		return SecondPerson
	}
	return "who holds the sandbox's key, this server's user, or " + SecondPerson
}
