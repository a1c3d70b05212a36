// Command kube-ipvs carries Kubernetes Services with the kernel's IP Virtual
// Server. Without a verb it runs the agent; --help lists the verbs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kube-ipvs:", err)
		stop()
		os.Exit(1)
	}
}
