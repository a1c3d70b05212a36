package kube

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ClientOptions say how the API server is reached. Without Kubeconfig and Master it
// is the one of the cluster that the process runs in.
type ClientOptions struct {
	// Kubeconfig is a file; Master is a URL that wins over the one in it.
	Kubeconfig, Master string
	// ContentType and AcceptContentTypes are what requests and answers are written
	// in; empty is protobuf.
	ContentType, AcceptContentTypes string
	// QPS and Burst bound the requests a second; 0 are kube-proxy's 5 and 10.
	QPS   float32
	Burst int
	// UserAgent names this program in the server's audit log.
	UserAgent string
}

// The bounds of kube-proxy (contract section 1.1).
const (
	defaultQPS   = 5
	defaultBurst = 10
)

// ErrNoCluster says that nothing tells where the API server is.
var ErrNoCluster = errors.New("no kubeconfig, no master, and this process does not run in a cluster")

// NewClient returns a client of the API server. It does not speak to it yet.
func NewClient(o ClientOptions) (kubernetes.Interface, error) {
	config, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	config.ContentType, config.AcceptContentTypes = o.ContentType, o.AcceptContentTypes
	if config.ContentType == "" {
		config.ContentType = runtime.ContentTypeProtobuf
	}
	if config.QPS = o.QPS; o.QPS == 0 {
		config.QPS = defaultQPS
	}
	if config.Burst = o.Burst; o.Burst == 0 {
		config.Burst = defaultBurst
	}
	config.UserAgent = o.UserAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}

func restConfig(o ClientOptions) (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Master == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, ErrNoCluster
		}
		return config, err
	}
	rules := clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig}
	overrides := clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = o.Master
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&rules, &overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", o.Kubeconfig, err)
	}
	return config, nil
}
