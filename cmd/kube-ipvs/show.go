package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

func newShow() *cobra.Command {
	show := &cobra.Command{Use: "show", Short: "show what the running agent knows", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var output string
	status := &cobra.Command{
		Use:   "status",
		Short: "state of the loop, sizes of its tables, rows written",
		Example: `  kube-ipvs show status
  kube-ipvs show status -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			s, err := inspect.NewClient(c.Socket()).Status(cmd.Context())
			if err != nil {
				return err
			}
			return printStatus(cmd, output, s)
		},
	}
	status.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	show.AddCommand(status)
	return show
}

func printStatus(cmd *cobra.Command, output string, s agent.Status) error {
	switch output {
	case "text":
		return inspect.WriteStatus(cmd.OutOrStdout(), s)
	case "json":
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	}
	return fmt.Errorf("--output: %q is not one of text, json", output)
}
