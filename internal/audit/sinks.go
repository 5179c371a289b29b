package audit

import (
	"context"
	"encoding/json"
	"errors"
	"log/syslog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// ParseSink returns the sink for a setting: "file:/path" appends notes to a file, and "syslog:" is
// this host's syslog. "syslog:udp://host:514", "syslog:tcp://host:601" and "syslog:unix:///dev/log"
// name another one.
func ParseSink(text string) (Sink, error) {
	kind, rest, _ := strings.Cut(text, ":")
	bad := fault.Newf(fault.Invalid, "sink_invalid", "%q is not a valid destination for signed tree heads", text).
		WithHint("use file:/absolute/path, syslog: or syslog:udp://host:514")
	switch kind {
	case "file":
		if !filepath.IsAbs(rest) {
			return nil, bad
		}
		return fileSink{rest}, nil
	case "syslog":
		if rest == "" {
			return syslogSink{}, nil
		}
		u, err := url.Parse(rest)
		if err != nil {
			return nil, bad
		}
		switch {
		case (u.Scheme == "udp" || u.Scheme == "tcp") && u.Port() != "" && u.Path == "":
			return syslogSink{u.Scheme, u.Host}, nil
		case u.Scheme == "unix" && filepath.IsAbs(u.Path) && u.Host == "":
			return syslogSink{"unixgram", u.Path}, nil
		}
	}
	return nil, bad
}

// fileSink appends notes to a file, which should be on another disk or host.
type fileSink struct{ path string }

func (s fileSink) Put(_ context.Context, c Checkpoint) error {
	f, err := openAt(s.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = f.WriteString(c.Note + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// syslogSink sends each tree head as one line of JSON.
type syslogSink struct{ network, address string }

func (s syslogSink) Put(_ context.Context, c Checkpoint) error {
	line, err := json.Marshal(storedTreeHead{c.Note})
	if err != nil {
		return err
	}
	w, err := syslog.Dial(s.network, s.address, syslog.LOG_NOTICE|syslog.LOG_AUTHPRIV, "crannog")
	if err != nil {
		return err
	}
	return errors.Join(w.Notice(string(line)), w.Close())
}
