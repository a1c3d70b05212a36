package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
)

func TestMain(m *testing.M) {
	LockName = fmt.Sprintf("@kube-ipvs.test.%d", os.Getpid()) // the machine's own agent, and other tests, have theirs
	goleak.VerifyTestMain(m)
}

// manifest is one Service with one endpoint.
const manifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.10
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.244.0.5]}]
`

// directory writes files into a new directory.
func directory(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runVerb runs the agent with flags, or cleanup where that is the first argument.
func runVerb(args ...string) error {
	cleanup := args[0] == "cleanup"
	if cleanup {
		args = args[1:]
	}
	flags, defaults := pflag.NewFlagSet("test", pflag.ContinueOnError), config.Defaults()
	config.Bind(flags, &defaults)
	if err := flags.Parse(args); err != nil {
		return err
	}
	loader := config.NewLoader(flags)
	loaded, err := loader.Load("node-a")
	if err != nil {
		return err
	}
	if cleanup {
		return Cleanup(context.Background(), loaded.Config, migrate.TargetNone, io.Discard)
	}
	return Run(context.Background(), flags, loader, loaded)
}
