package sandbox

// PerSandbox is a store with an entry for each sandbox, by its ID.
type PerSandbox interface {
	List() ([]string, error)
	Remove(id string) error
}

// Sweep removes the entries of sandboxes that do not need them any more.
func Sweep(of PerSandbox, needed func(id string) (bool, error)) error {
	ids, err := of.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		keep, err := needed(id)
		if err == nil && !keep {
			err = of.Remove(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
