// Command kube-ipvs carries Kubernetes Services with the kernel's IP Virtual
// Server. Without a verb it runs the agent; --help lists the verbs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := untilTold()
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		code := report(err, os.Stderr)
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
