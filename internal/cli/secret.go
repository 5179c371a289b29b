package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/crannog/crannog/api"
)

// secretVerbs are the commands about secrets.
type secretVerbs struct{ *app }

func (a secretVerbs) secretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "secret", Short: "Store, list, rotate and remove secrets", Args: cobra.ArbitraryArgs,
		Long: "Store, list, rotate and remove secrets. A value is read from a terminal, from standard\n" +
			"input or from a file, never from the command line, where every user of the machine\n" +
			"could see it. Values are encrypted and not shown again.",
		Example: "  crannog secret set GITHUB_TOKEN\n  gh auth token | crannog secret rotate GITHUB_TOKEN",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command secret %s", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.secretSetCommand(), a.secretListCommand(), a.secretRotateCommand(), a.secretRemoveCommand(), a.secretKeyCommand())
	return cmd
}

func (a secretVerbs) secretSetCommand() *cobra.Command {
	return a.valueCommand("set NAME", "Store a new secret", "store the secret",
		func(ctx context.Context, c *connection, name, value string) (api.Secret, error) {
			return c.NewSecret(ctx, api.CreateSecret{Name: name, Value: value})
		})
}

func (a secretVerbs) secretRotateCommand() *cobra.Command {
	return a.valueCommand("rotate NAME", "Set a new value of a secret", "rotate the secret",
		func(ctx context.Context, c *connection, name, value string) (api.Secret, error) {
			return c.RotateSecret(ctx, name, api.RotateSecret{Value: value})
		})
}

// valueCommand returns a command that reads a value.
func (a secretVerbs) valueCommand(use, short, what string, send func(context.Context, *connection, string, string) (api.Secret, error)) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			// The arguments are not repeated in the error, because the second is probably the
			// value.
			return errors.New("give only the name; the value comes from the terminal, standard input or --from-file")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := a.readValue(args[0], file)
			if err != nil {
				return fail("read the value", err)
			}
			return a.with(cmd.Context(), func(c *connection) error {
				s, err := send(cmd.Context(), c, args[0], value)
				if err != nil {
					return fail(what, err)
				}
				if a.json {
					return a.object(s)
				}
				_, err = fmt.Fprintln(a.Stdout, s.Name)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&file, "from-file", "", "read the value from a `file`")
	return cmd
}

// maxValue is above the server's limit, so that the server's error can name its limit.
const maxValue = 1 << 20

// readValue reads a value and removes one line end, because editors and echo add one.
func (a secretVerbs) readValue(name, file string) (string, error) {
	var data []byte
	var err error
	switch {
	case file != "":
		f, openErr := os.Open(file)
		if openErr != nil {
			return "", openErr
		}
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, maxValue))
	case a.Stdin != nil && term.IsTerminal(int(a.Stdin.Fd())):
		data, err = a.askValue(name)
	case a.Stdin != nil:
		data, err = io.ReadAll(io.LimitReader(a.Stdin, maxValue))
	}
	if err != nil {
		return "", err
	}
	defer clear(data)
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) == 0 {
		return "", usagef("the value is empty").hint("pass it through standard input, or use --from-file FILE")
	}
	if !utf8.Valid(data) {
		return "", usagef("the value is not UTF-8 text").hint("encode it, for example with base64")
	}
	return string(data), nil
}

// askValue asks on the terminal without echo.
func (a secretVerbs) askValue(name string) ([]byte, error) {
	fmt.Fprintf(a.Stderr, "value of %s (not shown): ", printable(name))
	value, err := term.ReadPassword(int(a.Stdin.Fd()))
	fmt.Fprintln(a.Stderr)
	return value, err
}

func (a secretVerbs) secretListCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List secrets, without their values", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				secrets, err := c.Secrets(cmd.Context())
				if err != nil {
					return fail("list secrets", err)
				}
				now := time.Now()
				return list(&a.terminal, &f, secrets, func(s api.Secret) string { return s.Name }, []string{"NAME", "VERSION", "MADE", "CHANGED"}, func(s api.Secret) []string {
					return []string{s.Name, strconv.FormatInt(s.Version, 10), ago(s.CreatedAt, now), ago(s.UpdatedAt, now)}
				})
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a secretVerbs) secretRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove"}, Short: "Remove secrets with all their values", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				for _, ref := range args {
					if err := c.RemoveSecret(cmd.Context(), ref); err != nil {
						return fail("remove secret "+ref, err)
					}
				}
				return a.done(args)
			})
		},
	}
}

func (a secretVerbs) secretKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rotate-key", Short: "Encrypt all secrets with a new key", Args: cobra.NoArgs,
		Long: "Create a new key and encrypt the secrets of all owners with it. The old key is\n" +
			"deleted; a copy of it cannot decrypt values that are stored from then on.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				rotated, err := c.RotateSecretsKey(cmd.Context())
				if err != nil {
					return fail("rotate the key of the secrets", err)
				}
				if a.json {
					return a.object(rotated)
				}
				_, err = fmt.Fprintf(a.Stdout, "%d values are encrypted with the new key\n", rotated.Moved)
				return err
			})
		},
	}
}
