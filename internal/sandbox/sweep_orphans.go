package sandbox

// PerSandbox is what is kept for each sandbox, by its ID.
type PerSandbox interface {
	List() ([]string, error)
	Remove(id string) error
}

// Sweep removes what is kept for sandboxes that need it no longer.
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
