package podexec

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags are those by which kubectl finds a cluster.
type Flags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// Bind declares the flags with kubectl's names.
func (f *Flags) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE`; without it $KUBECONFIG, ~/.kube/config, or the account of the pod")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(&f.overrides, fs, names)
}

// client returns the loader of the settings.
func (f *Flags) client() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides)
}

// Config returns how the API server is reached.
func (f *Flags) Config() (*rest.Config, error) {
	c, err := f.client().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return c, nil
}

// Namespace returns the namespace of Services that was chosen by flag, or empty.
func (f *Flags) Namespace() string { return f.overrides.Context.Namespace }

// ContextNamespace returns the namespace that a name without one is in: that of the flag, else that of
// the context, else default.
func (f *Flags) ContextNamespace() string {
	n, _, err := f.client().Namespace()
	if err != nil || n == "" {
		return "default"
	}
	return n
}
