package sandbox

// PerSandbox is a store with one entry per sandbox ID.
type PerSandbox interface {
	List() ([]string, error)
	Remove(id string) error
}

// Sweep removes the entries of sandboxes that no longer need them.
func Sweep(entries PerSandbox, needed func(id string) (bool, error)) error {
	ids, err := entries.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		keep, err := needed(id)
		if err == nil && !keep {
			err = entries.Remove(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
