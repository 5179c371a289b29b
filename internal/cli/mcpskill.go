package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/integration/registration"
)

func (a mcpVerbs) mcpSkillCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "skill", Short: "Print a description of the MCP tools for agents, as SKILL.md", Args: cobra.NoArgs,
		Example: "  crannog mcp skill --to ~/.claude/skills\n  crannog mcp skill > SKILL.md",
		RunE: func(*cobra.Command, []string) error {
			if to == "" {
				_, err := fmt.Fprint(a.Stdout, registration.Skill())
				return err
			}
			path, err := writeSkill(to)
			if err != nil {
				return fail("write the skill", err)
			}
			_, err = fmt.Fprintln(a.Stdout, path)
			return err
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "write it below a `directory` of skills, as crannog/SKILL.md")
	return cmd
}

// writeSkill replaces only an unmodified file that it wrote itself, because an edited one contains
// a person's work.
func writeSkill(to string) (string, error) {
	path := filepath.Join(to, "crannog", "SKILL.md")
	text := registration.Skill()
	existing, err := os.ReadFile(path)
	switch {
	case err == nil && string(existing) == text:
		return path, nil
	case err == nil:
		return "", usagef("%s exists and was edited", path).hint("remove it first")
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	return path, errors.Join(err, f.Close())
}
