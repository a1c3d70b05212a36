package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// proxyHead begins kube-proxy's document, ownHead ours.
const (
	proxyHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	ownHead   = "apiVersion: kube-ipvs.io/v1alpha1\nkind: KubeIPVSConfiguration\n"
)

// loader is one for a command line.
func loader(t testing.TB, args ...string) *config.Loader {
	t.Helper()
	var s = config.Defaults()
	fs := pflag.NewFlagSet("kube-ipvs", pflag.ContinueOnError)
	fs.SetNormalizeFunc(config.Dashes)
	config.Bind(fs, &s)
	config.BindPlan(fs, &s)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return config.NewLoader(fs)
}

// fileWith writes a configuration file and returns its path.
func fileWith(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// loaded is what a good file and good flags become; a file of "" is none.
func loaded(t testing.TB, file string, args ...string) config.Loaded {
	t.Helper()
	if file != "" {
		args = append(args, "--config", fileWith(t, file))
	}
	l, err := loader(t, args...).Load("node-a")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
