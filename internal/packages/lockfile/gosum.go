package lockfile

import (
	"bufio"
	"bytes"
	"errors"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// parseGoSum reads a go.sum or go.work.sum.
func parseGoSum(text []byte, c *collector) error {
	scan := bufio.NewScanner(bytes.NewReader(text))
	scan.Buffer(nil, maxLine)
	for scan.Scan() {
		fields := strings.Fields(scan.Text())
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return errors.New("a line does not have three fields")
		}
		// Go ignores the sums of algorithms that it does not know.
		digest, ok := packages.ParseDigest(fields[2])
		if !ok || digest.Algorithm != packages.H1 {
			c.without++
			continue
		}
		if err := c.add(packages.Go, fields[0], fields[1], digest); err != nil {
			return err
		}
	}
	return scan.Err()
}
