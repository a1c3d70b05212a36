package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const completionHelp = `Print a script with which a shell completes verbs, flags and their values. The examples
show the usual place of the script for each shell.`

// shells are those that can be had, in the order of the help.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "print a script that completes commands",
		Long:  completionHelp,
		Example: `  # in this shell
  source <(kube-ipvs completion bash)

  # permanently
  kube-ipvs completion bash > /usr/share/bash-completion/completions/kube-ipvs
  kube-ipvs completion zsh > "${fpath[1]}/_kube-ipvs"
  kube-ipvs completion fish > ~/.config/fish/completions/kube-ipvs.fish
  kube-ipvs completion powershell | Out-String | Invoke-Expression`,
		Args: arguments(func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return fmt.Errorf("give one shell: %s", strings.Join(shells, ", "))
			}
			return nil
		}),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			return complete(cmd.Root(), args[0], cmd.OutOrStdout())
		},
	}
}

// complete writes the completion script of a shell, with descriptions.
func complete(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(w)
	}
	return root.GenBashCompletionV2(w, true)
}
