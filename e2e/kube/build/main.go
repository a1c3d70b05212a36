// Command build makes the programs of the control plane that tests use, once: etcd, kube-apiserver and kubectl, and kube-proxy, as
// pinned in e2e/kube/controlplane. Run it from the root of the repository:
//
//	go run ./e2e/kube/build           # prints the directory that holds them; progress goes to standard error
//	go run ./e2e/kube/build -nodes    # the same for the programs of nodes: kubelet, containerd, controllers
//	go run ./e2e/kube/build -where    # prints the directory and builds nothing
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

func main() {
	where := flag.Bool("where", false, "print the directory and build nothing")
	nodes := flag.Bool("nodes", false, "the programs of nodes and not those of the control plane")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := run(ctx, *where, *nodes)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

func run(ctx context.Context, where, nodes bool) (string, error) {
	switch {
	case where && nodes:
		return binaries.NodesDir()
	case where:
		return binaries.Dir()
	}
	builder, err := binaries.NewBuilder(ctx, os.Stderr)
	if err != nil {
		return "", err
	}
	if nodes {
		set, err := builder.BuildNodes(ctx)
		return filepath.Dir(set.Kubelet), err
	}
	set, err := builder.Build(ctx)
	return filepath.Dir(set.Etcd), err
}
