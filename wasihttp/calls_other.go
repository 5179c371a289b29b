//go:build !wasip1

package wasihttp

func send(string, string, string, []byte) (int, uint32, error) { return 0, 0, ErrUnsupported }

func headers(uint32, []byte) (int, error) { return 0, ErrUnsupported }

func read(uint32, []byte) (int, error) { return 0, ErrUnsupported }

func closeHandle(uint32) error { return ErrUnsupported }
