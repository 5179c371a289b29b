package guest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxConfig limits the size of a configuration, without a following archive.
const maxConfig = 4 << 20

// Unknown is the prefix of the error for a configuration with an unknown field.
const Unknown = "read configuration: json: unknown field"

// Decode decodes a configuration, which ends at the end of its line or of in. If Archive is set,
// rest is the data after the line. Otherwise Decode does not read beyond the line, because in may
// be a serial port that never ends.
func Decode(in io.Reader) (cfg Config, rest io.Reader, err error) {
	object := json.NewDecoder(io.LimitReader(in, maxConfig))
	object.DisallowUnknownFields()
	if err := object.Decode(&cfg); err != nil {
		return Config{}, nil, fmt.Errorf("read configuration: %w", err)
	}
	tail := bufio.NewReader(io.MultiReader(object.Buffered(), in))
	if cfg.Archive {
		if end, err := tail.ReadByte(); err != nil || end != '\n' {
			return Config{}, nil, errors.New("read configuration: an archive begins on a new line")
		}
		return cfg, tail, nil
	}
	for {
		switch c, err := tail.ReadByte(); {
		case errors.Is(err, io.EOF), err == nil && c == '\n':
			return cfg, nil, nil
		case err != nil:
			return Config{}, nil, fmt.Errorf("read configuration: %w", err)
		case c != ' ' && c != '\r' && c != '\t':
			return Config{}, nil, errors.New("read configuration: more than one object")
		}
	}
}
