// Command kube-ipvs carries Kubernetes Services with the kernel's IP Virtual
// Server. Without a verb it runs the agent; --help lists the verbs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/cli"
	iversion "github.com/kube-ipvs/kube-ipvs/internal/version"
)

// The linker sets these for a build by make: -ldflags "-X main.version=v0.1.0 -X main.commit=... -X main.date=...".
// The date is the commit's, in RFC 3339.
var version, commit, date string

func main() {
	iversion.Set(version, commit, date)
	ctx, stop := signalContext()
	defer stop()
	if status := cli.Execute(ctx); status != 0 {
		stop()
		os.Exit(status)
	}
}

// signalContext returns a context that the first SIGINT or SIGTERM ends. A second signal has its
// default effect, so that an operator can end a shutdown that hangs.
func signalContext() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
