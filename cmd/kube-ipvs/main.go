// Command kube-ipvs carries Kubernetes Services with the kernel's IP Virtual
// Server. Without a verb it runs the agent; --help lists the verbs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

func main() {
	ctx, stop := untilTold()
	defer stop()
	stderr := printable.NewWriter(os.Stderr)
	root := newRoot()
	root.SetErr(stderr)
	if cmd, err := root.ExecuteContextC(ctx); err != nil {
		code := report(cmd, err, stderr)
		stop()
		os.Exit(code)
	}
}

// untilTold ends its context at the first SIGINT or SIGTERM. The second one has its
// ordinary effect: who asks twice does not want to wait for an orderly end.
func untilTold() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
