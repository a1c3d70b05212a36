package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// completeValues has shells complete the values of all flags that take a few words: those of
// config, and those that verbs have declared with choose.
func completeValues(root *cobra.Command) {
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if values := config.Choices(f.Name); values != nil {
			choose(root, f.Name, values...)
		}
	})
}

// choose names the values of a flag for shells. A flag that the command does not have is a
// mistake of the program, which no test would pass.
func choose(cmd *cobra.Command, flag string, values ...string) {
	complete := cobra.FixedCompletions(slices.Clone(values), cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err)
	}
}
