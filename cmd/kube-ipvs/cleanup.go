package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

const cleanupHelp = `Remove everything of kube-ipvs from this node and nothing else: addresses, virtual
servers, rules, sets and the device, in an order in which nothing is removed while
something refers to it. Sysctls get back the values they had. What could not be
removed is listed, and the exit status is 1. Running it twice is fine.`

func newCleanup(settings *config.Settings) *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "remove everything of kube-ipvs from this node",
		Long:  cleanupHelp,
		Example: `  kube-ipvs cleanup
  kube-ipvs cleanup --run-dir /run/kube-ipvs`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(*settings)
			if err != nil {
				return err
			}
			return cleanup(cmd.Context(), c, cmd.OutOrStdout())
		},
	}
}

// cleanup sweeps the kernel and puts the sysctls back.
func cleanup(ctx context.Context, c config.Config, out io.Writer) error {
	log, err := newLogger(c)
	if err != nil {
		return err
	}
	socket, err := inspect.Listen(c.Socket())
	if err != nil {
		return fmt.Errorf("stop the agent first: %w", err)
	}
	defer socket.Close()
	k, err := openKernel(ctx, log, c)
	if err != nil {
		return err
	}
	defer func() { _ = k.close(nil) }()
	swept := dataplane.Sweep(ctx, k.newMode(log, c), func(r dataplane.Result) {
		for _, s := range r.Stages {
			fmt.Fprintf(out, "removed %5d %s\n", s.Deletes, s.Stage)
		}
	})
	restored := k.tuner.Restore(ctx)
	for _, r := range restored {
		fmt.Fprintln(out, r)
	}
	return errors.Join(swept, tune.Failure(restored, tune.Required))
}
