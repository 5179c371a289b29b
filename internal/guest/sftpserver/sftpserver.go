// Package sftpserver owns the file transfer of SSH clients from inside a sandbox: it answers SFTP
// requests on its standard streams with the permissions of the user that it runs as. It runs as
// "crannog-guest sftp", so that no byte of the protocol is parsed on the host.
package sftpserver

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// Role is the first argument that selects the server. An optional second argument is the directory
// at which relative names start; without it, that is the working directory.
const Role = "sftp"

// streams are the two directions of one connection.
type streams struct {
	io.Reader
	io.WriteCloser
}

// Main serves until its input ends, and returns an exit code.
func Main(args []string, in io.Reader, out io.WriteCloser, log io.Writer) int {
	if err := serve(args, in, out); err != nil {
		fmt.Fprintln(log, "crannog-guest sftp:", err)
		return 1
	}
	return 0
}

func serve(args []string, in io.Reader, out io.WriteCloser) error {
	var dir string
	switch len(args) {
	case 0:
		var err error
		if dir, err = os.Getwd(); err != nil {
			return err
		}
	case 1:
		dir = args[0]
	default:
		return errors.New("it takes one directory")
	}
	server, err := sftp.NewServer(streams{in, out}, sftp.WithServerWorkingDirectory(dir))
	if err != nil {
		return err
	}
	if err := server.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
