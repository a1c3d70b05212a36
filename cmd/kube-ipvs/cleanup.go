package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

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

// cleanup runs the mode with nothing wanted, once, and looks at what is left.
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
	mode := k.newMode(log, c)
	mode.Clear()
	if err := mode.Load(ctx); err != nil {
		return err
	}
	return errors.Join(removeRows(ctx, mode, out), leftovers(ctx, mode), removeRest(ctx, log, k, mode, out))
}

// removeRows applies until nothing is pending, or nothing more can be had: some
// rows have to wait until others are gone.
func removeRows(ctx context.Context, mode dataplane.Dataplane, out io.Writer) error {
	for {
		result := mode.Apply(ctx, dataplane.ApplyOptions{})
		for _, s := range result.Stages {
			fmt.Fprintf(out, "removed %5d %s\n", s.Deletes, s.Stage)
		}
		if total := result.Total(); result.Pending == 0 || total.Written() == 0 {
			return total.Err
		}
	}
}

// leftovers reads the kernel again and fails with what is still there.
func leftovers(ctx context.Context, mode dataplane.Dataplane) error {
	if err := mode.Load(ctx); err != nil {
		return err
	}
	var left []error
	for _, t := range mode.Tables() {
		if t.Deletes > 0 {
			left = append(left, fmt.Errorf("could not be removed: %d %s", t.Deletes, t.Table))
		}
	}
	return errors.Join(left...)
}

// removeRest deletes the device and puts the sysctls back.
func removeRest(ctx context.Context, log *zap.Logger, k *kernel, mode dataplane.Dataplane, out io.Writer) error {
	err := mode.Remove(ctx)
	restored := k.tuner.Restore(ctx)
	for _, r := range restored {
		fmt.Fprintln(out, r)
	}
	log.Debug("cleanup done")
	return errors.Join(err, tune.Failure(restored, tune.Required))
}
