package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// newMan is for packagers: make release calls it.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIRECTORY",
		Short:   "write the manual pages",
		Long:    "Write one page of section 8 for each verb into a directory, from the same text as --help.",
		Example: "  kube-ipvs man /usr/local/share/man/man8",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeMan(cmd.Root(), args[0])
		},
	}
}

// writeMan makes the same bytes of the same commit: the date is that of the commit.
func writeMan(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the directory of manual pages: %w", err)
	}
	root.DisableAutoGenTag = true
	asMarkdown(root)
	date := version.CommitDate()
	header := &doc.GenManHeader{Title: "KUBE-IPVS", Section: "8", Date: &date, Source: "kube-ipvs " + version.String(), Manual: "Kubernetes Services with IPVS"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	return nil
}

// asMarkdown indents lists by two more columns: a block of Markdown, from which pages are made,
// needs four.
func asMarkdown(cmd *cobra.Command) {
	lines := strings.Split(cmd.Long, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = "  " + line
		}
	}
	cmd.Long = strings.Join(lines, "\n") + "\n\n# EXIT STATUS\n\n  " + strings.Join(exitStatusOf(cmd).lines(), "\n  ") + "\n"
	for _, c := range cmd.Commands() {
		asMarkdown(c)
	}
}
