package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/daemon"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// asProgram makes this test binary the program itself.
const asProgram = "KUBE_IPVS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	daemon.LockName = fmt.Sprintf("@kube-ipvs.test.%d", os.Getpid()) // the machine's own agent, and other tests, have theirs
	if os.Getenv(asProgram) != "" {
		os.Exit(Execute(context.Background()))
	}
	// client-go sees by its heartbeat, up to five seconds later, that a connection is closed. Its
	// readers end then.
	var late []goleak.Option
	for _, name := range []string{"(*heartbeat).start", "(*wsStreamExecutor).StreamWithContext.func1", "(*stream).Read"} {
		late = append(late, goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand."+name))
	}
	goleak.VerifyTestMain(m, late...)
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

// execute runs the program and returns what it prints.
func execute(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(args...)
	if err != nil {
		t.Fatalf("kube-ipvs %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func try(args ...string) (string, error) {
	out, _, err := talk(args...)
	return out, err
}

// talk runs the program and returns what it prints to both its outputs.
func talk(args ...string) (out, notes string, err error) {
	var o, n bytes.Buffer
	root := NewRoot()
	root.SetArgs(args)
	root.SetOut(&o)
	root.SetErr(&n)
	err = root.Execute()
	return o.String(), n.String(), err
}

// holdRunDir locks a run directory as another process does.
func holdRunDir(dir string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "agent.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

// A fakeKernel is a kernel made of fakes.
type fakeKernel struct {
	config  config.Config
	servers *vservertest.Fake
	sets    *ipsettest.Fake
	rules   *rulestest.Fake
	links   *linktest.Fake
}

// emptyKernel carries nothing yet.
func emptyKernel(t *testing.T) fakeKernel {
	t.Helper()
	c, err := config.Defaults().Check("node-a")
	if err != nil {
		t.Fatal(err)
	}
	return fakeKernel{c, vservertest.NewFake(), ipsettest.New(),
		rulestest.New(rules.Options{Owned: netfilter.Owned, Families: []rules.Family{rules.IPv4, rules.IPv6}}), linktest.New()}
}

func (k fakeKernel) deps() ipvs.Deps {
	return ipvs.Deps{Servers: k.servers, Sets: k.sets, Rules: k.rules, Links: k.links}
}

func (k fakeKernel) mode(deps ipvs.Deps) *ipvs.Mode {
	both := model.Families()
	return ipvs.New(zap.NewNop(), wiring.IPVSConfig(k.config, both[:], nil), deps)
}

// readPage returns the text of a page.
func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// healthRows are those of an agent whose kernel refuses rows.
func healthRows(context.Context) []inspect.HealthRow {
	return []inspect.HealthRow{
		{Check: "sources", OK: true, Paths: []string{"healthz", "readyz"}},
		{Check: "apply", Reason: "failed 3 times in a row: no memory", Paths: []string{"readyz"}},
	}
}
