package cluster

import (
	"context"
	"os"
)

// Control is a control plane in the hands of a test: a Cluster here, or one that the host of a guest runs. A test that holds it
// need not know which. Its methods are those of Cluster.
type Control interface {
	Kubeconfig(ctx context.Context, who Identity) ([]byte, error)
	Token(ctx context.Context, namespace, account string) (string, error)
	Kubectl(ctx context.Context, args ...string) (string, error)
	Apply(ctx context.Context, manifests string, flags ...string) error
	Create(ctx context.Context, list string) error
	Replace(ctx context.Context, changes []Replacement, rate int) error
	Replaced(ctx context.Context) (changes int64, err error)
	DeleteStored(ctx context.Context, resource, namespace, name string) error

	StartAPIServer(ctx context.Context) error
	StopAPIServer(ctx context.Context) error
	KillAPIServer(ctx context.Context) error
	PauseAPIServer(ctx context.Context) error
	ResumeAPIServer(ctx context.Context) error
	StartEtcd(ctx context.Context) error
	StopEtcd(ctx context.Context) error
	Compact(ctx context.Context) (revision int64, err error)

	Close() error
}

// HostVariable holds the URL of a Host, in a guest. Emulated, an API server takes half a minute to start and a kubectl takes
// seconds; the host's is twelve times faster and leaves the guest's CPUs to what is tested.
const HostVariable = "KUBE_IPVS_CLUSTERS"

// Open starts a control plane: on the host if this is a guest that was given one, else here. In a network namespace of the host
// (KUBE_IPVS_WHERE, see package vm) nothing of the host can be reached, and nothing needs to be: programs run at full speed.
func Open(ctx context.Context, o Options) (Control, error) {
	url := os.Getenv(HostVariable)
	if url == "" || os.Getenv("KUBE_IPVS_WHERE") == "netns" {
		return openHere(ctx, o)
	}
	return openRemote(ctx, url, o)
}

// openHere keeps a nil *Cluster from becoming a Control that is not nil.
func openHere(ctx context.Context, o Options) (Control, error) {
	c, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return c, nil
}
