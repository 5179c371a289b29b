package observe

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/egress/redact"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

// Started is the data of an entry command.started.
type Started struct {
	N    int      `json:"n"`
	How  string   `json:"how"`
	Argv []string `json:"argv,omitempty"`
	// Cut reports whether arguments, names or code were omitted or shortened.
	Cut  bool     `json:"cut,omitempty"`
	Cwd  string   `json:"cwd,omitempty"`
	Env  []string `json:"env,omitempty"` // names, never values
	User string   `json:"user,omitempty"`
	TTY  bool     `json:"tty,omitempty"`
	Tag  string   `json:"tag,omitempty"`
	PID  uint32   `json:"pid,omitempty"` // of the command to which a caller attached

	// The fields below are for cells.
	Language string `json:"language,omitempty"`
	Context  string `json:"context,omitempty"`
	Code     string `json:"code,omitempty"`
	CodeSum  string `json:"code_sha256,omitempty"`

	term       string
	cols, rows int
}

// Ended is the data of an entry command.ended.
type Ended struct {
	N   int    `json:"n"`
	PID uint32 `json:"pid,omitempty"`
	// Exit is absent if unknown: the command did not run, or its stream broke.
	Exit     *int `json:"exit,omitempty"`
	Signal   int  `json:"signal,omitempty"`
	TimedOut bool `json:"timed_out,omitempty"`
	// Hit is the limit that was reached, as in the result of a call: timeout, disk_full, pids or
	// oom. All but timeout are inferred from the command's standard error, or from the cell's
	// error.
	Hit        string  `json:"hit,omitempty"`
	Error      string  `json:"error,omitempty"` // a code, or the name of a cell's error
	DurationMS float64 `json:"duration_ms"`
	Stdout     *Sum    `json:"stdout,omitempty"`
	Stderr     *Sum    `json:"stderr,omitempty"`
	PTY        *Sum    `json:"pty,omitempty"`
	// Truncated means that the recording omits output; Sum covers all of it.
	Truncated bool `json:"truncated,omitempty"`
	Lost      bool `json:"lost,omitempty"` // the caller, or the sandbox, went away
}

// Sum contains the size and the hash of one delivered stream.
type Sum struct {
	Bytes int64  `json:"bytes"`
	Sum   string `json:"sha256"`
}

// Moved is the data of an entry about an uploaded or downloaded file.
type Moved struct {
	Do       string `json:"do"`      // file.upload or file.download
	Outcome  string `json:"outcome"` // ok, or http_ and a status
	Path     string `json:"path"`
	User     string `json:"user,omitempty"`
	Bytes    int64  `json:"bytes"`
	Sum      string `json:"sha256"`
	Encoding string `json:"encoding,omitempty"` // of the archive that it was part of
	Range    string `json:"range,omitempty"`
	Lost     bool   `json:"lost,omitempty"` // the transfer was interrupted
	// Sparse means that the sum is not the hash of the whole content: holes beyond 256 MiB are
	// hashed as offset and length instead of zeros.
	Sparse bool `json:"sparse,omitempty"`
}

// FileChange is the data of an entry about files that were created, moved, removed or joined
// through the guest's services.
type FileChange struct {
	Do string `json:"do"` // file.mkdir, file.move, file.remove or file.compose
	// Outcome is ok, a Connect error code, or http_ and a status. It is absent if no answer came.
	Outcome string   `json:"outcome,omitempty"`
	Path    string   `json:"path,omitempty"`
	To      string   `json:"to,omitempty"`   // of a move or a join
	From    []string `json:"from,omitempty"` // of a join
	Cut     bool     `json:"cut,omitempty"`
	User    string   `json:"user,omitempty"`
	Lost    bool     `json:"lost,omitempty"` // the result is unknown
}

// limit bounds each of arguments, names and code in an entry.
const limit = 8 << 10

// bounded redacts text and returns its first bytes.
func bounded(text string, mask *redact.Redactor, left *int) (string, bool) {
	text = strings.ToValidUTF8(mask.String(text), "\uFFFD")
	if len(text) <= *left {
		*left -= len(text)
		return text, false
	}
	end := *left
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	*left = 0
	return text[:end] + "…", true
}

func boundedAll(texts []string, mask *redact.Redactor) (out []string, cut bool) {
	left := limit
	for i, text := range texts {
		one, short := bounded(text, mask, &left)
		if out = append(out, one); short || left == 0 && i+1 < len(texts) || i >= limit {
			return out, true
		}
	}
	return out, false
}

func short(text string, mask *redact.Redactor) string {
	left := limit / 8
	text, _ = bounded(text, mask, &left)
	return text
}

func names(env map[string]string, mask *redact.Redactor) ([]string, bool) {
	return boundedAll(slices.Sorted(maps.Keys(env)), mask)
}

func startOf(c Call, m *pb.StartRequest, user string) Started {
	config, mask := m.GetProcess(), c.Mask.Record()
	s := Started{How: c.How, User: short(user, mask), Cwd: short(config.GetCwd(), mask), Tag: short(m.GetTag(), mask)}
	if s.How == "" {
		s.How = HowStart
	}
	if m.Pty != nil {
		s.TTY, s.cols, s.rows = true, int(m.GetPty().GetSize().GetCols()), int(m.GetPty().GetSize().GetRows())
		s.term = short(config.GetEnvs()["TERM"], mask)
		if s.How == HowStart {
			s.How = HowTerminal
		}
	}
	var cut bool
	s.Argv, s.Cut = boundedAll(append([]string{config.GetCmd()}, config.GetArgs()...), mask)
	s.Env, cut = names(config.GetEnvs(), mask)
	s.Cut = s.Cut || cut
	return s
}

func connectOf(c Call, m *pb.ConnectRequest) Started {
	return Started{How: HowConnect, PID: m.GetProcess().GetPid(), Tag: short(m.GetProcess().GetTag(), c.Mask.Record())}
}

func signalName(n int) string { return syscall.Signal(n).String() }
