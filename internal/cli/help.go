package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// usage prints the flags of a verb. The flags of the agent are many: they come in
// groups, and those of kube-proxy that change nothing are only mentioned.
func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	usageOfVerbs(w, cmd)
	if inherited := ofCluster(cmd); inherited != nil {
		if cmd.PersistentFlags() != inherited {
			usageOfFlags(w, "Flags", cmd.LocalNonPersistentFlags())
		}
		usageOfFlags(w, "Flags of all verbs of a cluster", inherited)
		usageOfStatus(w, cmd)
		return nil
	}
	if cmd.HasParent() {
		usageOfFlags(w, "Flags", cmd.LocalNonPersistentFlags())
		usageOfStatus(w, cmd)
		fmt.Fprintf(w, "\nThe flags of %s are accepted, too: see %[1]s --help.\n", cmd.Root().CommandPath())
		return nil
	}
	for _, g := range config.Groups() {
		usageOfFlags(w, string(g), selected(cmd.Flags(), func(f *pflag.Flag) bool { return config.GroupOf(f) == g }))
	}
	usageOfFlags(w, "Others", selected(cmd.Flags(), func(f *pflag.Flag) bool { return config.GroupOf(f) == "" }))
	usageOfStatus(w, cmd)
	fmt.Fprintf(w, "\nEvery other flag of kube-proxy is accepted; the log names those that have no effect.\n")
	return nil
}

// ofCluster returns the flags that all verbs of a cluster have; nil for a verb of a node.
func ofCluster(cmd *cobra.Command) *pflag.FlagSet {
	for c := cmd; c != nil; c = c.Parent() {
		if c.Name() == "cluster" || c.Name() == kubectlName {
			return c.PersistentFlags()
		}
	}
	return nil
}

// usageOfStatus prints the exit statuses of a command; help, which is cobra's own, has none.
func usageOfStatus(w io.Writer, cmd *cobra.Command) {
	if lines := exitStatusOf(cmd).lines(); len(lines) > 0 {
		fmt.Fprintf(w, "\nExit status:\n%s\n", strings.Join(lines, "\n"))
	}
}

func usageOfVerbs(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	fmt.Fprintln(w, "\nVerbs:")
	width := 10
	for _, c := range cmd.Commands() {
		width = max(width, len(c.Name()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(w, "  %-*s %s\n", width, c.Name(), c.Short)
		}
	}
}

func usageOfFlags(w io.Writer, heading string, fs *pflag.FlagSet) {
	if text := strings.TrimRight(fs.FlagUsagesWrapped(terminal), "\n"); text != "" {
		fmt.Fprintf(w, "\n%s:\n%s\n", heading, text)
	}
}

// terminal is how wide a line may be.
const terminal = 140

func selected(from *pflag.FlagSet, wanted func(*pflag.Flag) bool) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	from.VisitAll(func(f *pflag.Flag) {
		if wanted(f) {
			fs.AddFlag(f)
		}
	})
	return fs
}
