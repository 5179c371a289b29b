package census

import (
	"encoding/json"
	"errors"
	"io"
)

const (
	// maxProcess is an upper bound for the size of one encoded process.
	maxProcess = 64 << 10
	// maxElements is the number of elements that are read from a list.
	maxElements = 64 << 10
)

// errNotCensus is returned for data that is not an encoded census.
var errNotCensus = errors.New("the data is not an encoded census")

// Read decodes a census with the limits of Take. An attacker who is root in a sandbox may have
// replaced the program that answers, and two bytes of JSON can become more than a hundred bytes in
// memory: without limits, the attacker could exhaust the memory of the server.
func Read(r io.Reader) (Census, error) {
	c := Census{Processes: []Process{}, Ports: []int{}}
	d := json.NewDecoder(io.LimitReader(r, MaxBytes))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return c, errors.Join(errNotCensus, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return c, err
		}
		switch key {
		case "processes":
			err = eachElement(d, func(element json.RawMessage) error {
				if len(c.Processes) == MaxProcesses || len(element) > maxProcess {
					c.Cut = true
					return nil
				}
				c.Processes = append(c.Processes, Process{})
				return json.Unmarshal(element, &c.Processes[len(c.Processes)-1])
			})
		case "ports":
			err = eachElement(d, func(element json.RawMessage) error {
				if len(c.Ports) == MaxPorts {
					c.Cut = true
					return nil
				}
				c.Ports = append(c.Ports, 0)
				return json.Unmarshal(element, &c.Ports[len(c.Ports)-1])
			})
		case "cut":
			var cut bool
			err = d.Decode(&cut)
			c.Cut = c.Cut || cut
		default:
			var unknown json.RawMessage // a guest of a later version may add fields
			err = d.Decode(&unknown)
		}
		if err != nil {
			return c, err
		}
	}
	if _, err := d.Token(); err != nil {
		return c, err
	}
	c.Bound()
	return c, nil
}

// eachElement calls take for each element of a list.
func eachElement(d *json.Decoder, take func(json.RawMessage) error) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil:
		return nil // null is an empty list
	case t != json.Delim('['):
		return errNotCensus
	}
	var element json.RawMessage
	for n := 0; d.More(); n++ {
		if n == maxElements {
			return errNotCensus
		}
		element = element[:0]
		if err := d.Decode(&element); err != nil {
			return err
		}
		if err := take(element); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}
