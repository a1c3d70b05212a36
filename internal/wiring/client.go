package wiring

import (
	"errors"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// errNoSource is the error of an agent that was started without a source of Services.
var errNoSource = errors.New("no source of Services is configured; give one of\n" +
	"  --source-dir DIR     a directory of manifests, or one file\n" +
	"  --kubeconfig FILE    a Kubernetes API server (clientConnection.kubeconfig in --config)\n" +
	"or run it in a cluster")

// NewClient returns a client of the API server that the settings name. It fails if they name
// none, and this process does not run in a cluster.
func NewClient(c config.Config, reached *kube.Reached) (*kube.Client, error) {
	client, err := kube.NewClient(kube.ClientOptions{
		Kubeconfig: c.Client.Kubeconfig, Master: c.Client.Master,
		ContentType: c.Client.ContentType, AcceptContentTypes: c.Client.AcceptContentTypes,
		QPS: c.Client.QPS, Burst: c.Client.Burst, UserAgent: "kube-ipvs/" + version.String(),
		Reached: reached,
	})
	if errors.Is(err, kube.ErrNoCluster) {
		return nil, errNoSource
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reach an API server: %w", err)
	}
	return client, nil
}

// ManyNodes returns the number of Nodes above which not all are followed, 0 for no limit.
func ManyNodes(c config.Config) int {
	if c.WatchNodes == config.WatchAuto {
		return kube.DefaultManyNodes
	}
	return 0
}
