package kube //nolint:testableexamples // compiled only: it needs the programs of a control plane

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

var (
	ctx                 = context.Background()
	manifests, services string
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func startAgent(_ []byte, _ string) {}

// A test with a control plane. The example is only compiled, because it needs the programs of the
// control plane.
func Example() {
	c, err := cluster.Open(ctx, cluster.Options{}) // cluster.Start has more methods, only on this machine
	must(err)
	defer func() { must(c.Close()) }()
	must(c.Apply(ctx, manifests)) // kubectl apply
	kubeconfig, err := c.Kubeconfig(ctx, cluster.Identity{User: "system:node:a", Groups: []string{"system:nodes"}})
	must(err)
	token, err := c.Token(ctx, "kube-system", "kube-ipvs") // for cluster.Identity{Token: token}
	must(err)
	startAgent(kubeconfig, token)
	must(c.KillAPIServer(ctx))  // also StopAPIServer, PauseAPIServer, ResumeAPIServer
	must(c.StartAPIServer(ctx)) // same port, same data; returns when the server is ready
	must(c.StopEtcd(ctx))       // also StartEtcd
	_, err = c.Compact(ctx)
	must(err)
	must(c.DeleteStored(ctx, "services/specs", "default", "web")) // in etcd, also while the API server is down
	must(c.Create(ctx, services))                                 // thousands of Services and EndpointSlices, without kubectl
}
