// Package internal_test checks the import law of internal/README.md.
package internal_test

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kube-ipvs/kube-ipvs/"

// law lists the imports that each package may have outside the standard library: other packages by
// their path in the module, and libraries. A name ending in /... allows what lies below. A package
// that is not listed may not exist.
var law = map[string][]string{
	"scheduler": {},
	"ipset":     {"github.com/vishvananda/netlink/...", "golang.org/x/sys/..."},

	leaf:                                   {},
	"internal/model":                       {"scheduler"},
	"internal/source":                      {"internal/model", "internal/printable", "scheduler", "k8s.io/api/...", "k8s.io/apimachinery/..."},
	"internal/source/file":                 {"internal/model", "internal/source", "k8s.io/api/...", "k8s.io/apimachinery/...", "sigs.k8s.io/json", "sigs.k8s.io/yaml", "go.yaml.in/yaml/v2", "github.com/fsnotify/fsnotify", zap},
	"internal/source/kube":                 {"internal/model", "internal/source", "k8s.io/api/...", "k8s.io/apimachinery/...", "k8s.io/client-go/rest", "k8s.io/client-go/transport", "k8s.io/client-go/tools/cache", "k8s.io/client-go/tools/clientcmd/...", "k8s.io/client-go/util/...", "k8s.io/klog/v2", "golang.org/x/sync/errgroup", zap},
	"internal/catalog":                     {"internal/model", "internal/source", zap},
	"internal/plan":                        {"internal/model", "internal/printable", "scheduler"},
	"internal/delta":                       {},
	"internal/dataplane":                   {"internal/model", "internal/delta", "github.com/google/btree"},
	"internal/dataplane/announce":          {"internal/model", "internal/delta", "internal/dataplane", "internal/kernel/link", zap},
	"internal/dataplane/ipvs":              {"internal/model", "internal/delta", "internal/dataplane", "internal/dataplane/announce", "internal/dataplane/ipvs/...", "internal/dataplane/netfilter", "internal/kernel/...", "ipset", "scheduler", zap},
	"internal/dataplane/ipvs/sets":         {"internal/model", "internal/delta", "internal/dataplane/ipvs/ownership", "ipset", zap},
	"internal/dataplane/ipvs/servers":      {"internal/model", "internal/delta", "internal/dataplane", "internal/dataplane/ipvs/sets", "internal/kernel/vserver", "ipset", zap},
	"internal/dataplane/ipvs/destinations": {"internal/model", "internal/delta", "internal/dataplane", "internal/kernel/vserver", "scheduler", zap},
	"internal/dataplane/ipvs/addresses":    {"internal/model", "internal/delta", "internal/dataplane", "internal/dataplane/ipvs/sets", "internal/kernel/link", "internal/kernel/vserver", zap},
	"internal/dataplane/ipvs/chains":       {"internal/model", "internal/delta", "internal/dataplane", "internal/dataplane/ipvs/sets", "internal/dataplane/netfilter", "internal/kernel/link", "internal/kernel/rules", zap},
	"internal/dataplane/ipvs/audit":        {"internal/delta", "internal/dataplane", "internal/dataplane/announce", "internal/dataplane/ipvs/...", "internal/kernel/nftables", "internal/kernel/vserver", zap},
	"internal/dataplane/ipvs/migrate":      {"internal/model", "internal/delta", "internal/dataplane", "internal/dataplane/ipvs/...", "internal/dataplane/netfilter", "internal/kernel/nftables", "internal/kernel/rules", "internal/kernel/vserver", zap},
	"internal/dataplane/ipvs/describe":     {"internal/model", "internal/delta", "internal/dataplane", "internal/dataplane/announce", "internal/dataplane/ipvs/...", "internal/dataplane/netfilter", "internal/kernel/link", "internal/kernel/nftables", "internal/kernel/vserver", "ipset"},
	"internal/dataplane/ipvs/ownership":    {"internal/model", "internal/kernel/link", "internal/kernel/vserver", "ipset"},
	"internal/dataplane/ipvs/nftrules":     {"internal/dataplane/ipvs/ownership", "internal/dataplane/ipvs/sets", "internal/dataplane/netfilter", "internal/kernel/nft", "internal/kernel/rules", "ipset"},
	"internal/dataplane/netfilter":         {"internal/model", "internal/delta", "internal/kernel/nftables", "internal/kernel/rules"},
	"internal/dataplane/iptables":          {"internal/model", "internal/delta", "internal/dataplane", "internal/dataplane/announce", "internal/dataplane/netfilter", "internal/kernel/...", zap},
	"internal/kernel/vserver":              {"golang.org/x/sys/...", zap},
	"internal/kernel/link":                 {"github.com/vishvananda/netlink/...", "golang.org/x/sys/...", zap},
	"internal/kernel/rules":                {"github.com/coreos/go-iptables/...", "golang.org/x/sys/...", zap},
	"internal/kernel/nfnetlink":            {"golang.org/x/sys/..."},
	"internal/kernel/nft":                  {"internal/kernel/nfnetlink", "golang.org/x/sys/...", zap},
	"internal/kernel/nftables":             {"internal/kernel/nfnetlink", "golang.org/x/sys/...", zap},
	"internal/kernel/conntrack":            {"golang.org/x/sys/...", zap},
	"internal/kernel/procfs":               {},
	"internal/kernel/sysctl":               {"internal/kernel/procfs", zap},
	"internal/kernel/modules":              {"internal/kernel/procfs", zap},
	"internal/kernel/memory":               {"internal/kernel/procfs", zap},
	"internal/kernel/capture":              {"golang.org/x/net/bpf", "golang.org/x/sys/..."},
	"internal/firewall":                    {"internal/model", "internal/printable", "internal/kernel/nftables", "internal/kernel/rules"},
	"internal/rulewatch":                   {"internal/dataplane/netfilter", "internal/firewall", "internal/kernel/nftables", "internal/kernel/rules", zap},
	"internal/trace":                       {"internal/kernel/capture"},
	"internal/healthcheck":                 {"internal/model", "internal/connlimit", zap},
	"internal/relay":                       {"internal/model", zap},
	"internal/apiprobe":                    {"internal/model", zap},
	"internal/httpd":                       {"internal/connlimit", zap},
	"internal/events":                      {"internal/model", "k8s.io/api/...", "k8s.io/apimachinery/...", "k8s.io/client-go/rest", "golang.org/x/time/rate", zap},
	"internal/agent":                       {"internal/model", "scheduler", "internal/catalog", "internal/dataplane", zap},
	"internal/config":                      {"scheduler", "k8s.io/kube-proxy/config/v1alpha1", "k8s.io/component-base/...", "k8s.io/apimachinery/...", "sigs.k8s.io/yaml", "sigs.k8s.io/json", "github.com/spf13/pflag", "github.com/fsnotify/fsnotify", zap},
	"internal/inspect":                     {"internal/agent", "internal/dataplane", "internal/model", "internal/printable"},
	"internal/explain":                     {"internal/model", "internal/dataplane", "internal/agent", "internal/firewall", "internal/linediff"},
	"internal/linediff":                    {},
	"internal/cluster":                     {"internal/agent", "internal/diagnosis", "internal/explain", "internal/inspect", "internal/linediff", "internal/printable", "internal/top", "internal/version"},
	"internal/diagnosis":                   {},
	"internal/nodecheck/host":              {"internal/diagnosis", "internal/kernel/modules", "internal/kernel/procfs", "internal/kernel/sysctl", "golang.org/x/sys/..."},
	"internal/nodecheck":                   {"internal/config", "internal/dataplane/announce", "internal/dataplane/ipvs/nftrules", "internal/dataplane/ipvs/ownership", "internal/dataplane/ipvs/sets", "internal/dataplane/netfilter", "internal/diagnosis", "internal/firewall", "internal/inspect", "internal/kernel/...", "internal/model", "internal/nodecheck/host", "ipset", "scheduler", zap},
	"internal/clusterui":                   {"internal/cluster"},
	"internal/podexec":                     {"internal/cluster", "github.com/spf13/pflag", "k8s.io/client-go/rest", "k8s.io/client-go/tools/clientcmd", "k8s.io/client-go/tools/remotecommand", "k8s.io/client-go/util/exec", "k8s.io/klog/v2", "k8s.io/streaming/pkg/httpstream"},
	"internal/connlimit":                   {},
	"internal/sdnotify":                    {zap},
	"internal/logsink":                     {},
	"internal/printable":                   {},
	"internal/top":                         {"internal/kernel/vserver", "charm.land/bubbletea/v2"},
	"internal/version":                     {},
	"internal/wiring":                      {"internal/agent", "internal/config", "internal/dataplane", "internal/dataplane/ipvs", "internal/dataplane/ipvs/addresses", "internal/dataplane/ipvs/chains", "internal/dataplane/iptables", "internal/dataplane/netfilter", "internal/kernel/nftables", "internal/kernel/rules", "internal/model", "internal/plan", "internal/source/kube", "internal/version", zap},
	"internal/daemon":                      {"internal/...", "ipset", "scheduler", "github.com/spf13/pflag", "golang.org/x/sync/errgroup", "golang.org/x/sys/...", zap},
	"internal/cli":                         {"internal/...", "ipset", "scheduler", "github.com/spf13/...", "golang.org/x/term", "sigs.k8s.io/yaml", zap},
	"internal/telemetry":                   {"internal/model", "internal/catalog", "internal/agent", "internal/dataplane", "k8s.io/client-go/tools/metrics", "github.com/prometheus/client_golang/..."},
}

const zap = "go.uber.org/zap/..."

// leaf may be imported by every package.
const leaf = "internal/netkey"

// processes are the packages that may start a process: the tools of iptables, modprobe.
var processes = []string{"internal/kernel/rules", "internal/kernel/modules"}

// free are places to which the law does not apply: the ones that connect packages, and tests.
var free = []string{"cmd/...", "e2e/...", "manifests", "internal/testkit/...", "ipset/ipsettest", "internal/firewall/firewalltest", "internal/kernel/conntrack/conntracktest", "internal/kernel/link/linktest", "internal/kernel/nft/nfttest", "internal/kernel/nftables/nftablestest", "internal/kernel/rules/rulestest", "internal/kernel/vserver/vservertest"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// list runs go list over the module. It looks at each source file first: go test keeps the
// result of a test as long as the files are the same that it looked at itself.
func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	for _, dir := range []string{".", "../cmd", "../ipset", "../scheduler"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,Standard"}, args...)...)
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func allows(rules []string, path string) bool {
	return slices.ContainsFunc(rules, func(r string) bool {
		base, below := strings.CutSuffix(r, "/...")
		return path == base || below && strings.HasPrefix(path, base+"/")
	})
}

// standard reports whether an import path is in the standard library: its first element has no dot,
// and it is not ours.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestRoomsImportWhatTheLawAllows(t *testing.T) {
	seen := 0
	for _, p := range list(t, "./...") {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		if allows(free, pkg) || pkg == "internal" {
			continue
		}
		seen++
		rules, known := law[pkg]
		if !known {
			t.Errorf("%s is not in the law: add it there and to internal/README.md", pkg)
			continue
		}
		for _, path := range p.Imports {
			if short := strings.TrimPrefix(path, module); !standard(path) && short != leaf && !allows(rules, short) {
				t.Errorf("%s imports %s", pkg, short)
			}
			if path == "os/exec" && !slices.Contains(processes, pkg) {
				t.Errorf("%s imports os/exec: only %v may launch a process", pkg, processes)
			}
		}
	}
	if seen != len(law) {
		t.Errorf("%d packages found, the law lists %d: delete the ones that are gone", seen, len(law))
	}
}

// The packages that a package must not import, even indirectly.
func TestRoomsReachOnlyWhatTheyMay(t *testing.T) {
	forbidden := map[string][]string{
		"scheduler":       {module + "..."},
		"ipset":           {module + "internal/...", "k8s.io/..."},
		"internal/model":  {"k8s.io/...", "go.uber.org/...", "github.com/vishvananda/...", "os/exec", "net/http"},
		"internal/plan":   {"k8s.io/...", "go.uber.org/...", "github.com/vishvananda/...", "github.com/moby/...", "os/exec", "net/http"},
		"internal/trace":  {"k8s.io/...", "go.uber.org/...", "github.com/vishvananda/...", "github.com/moby/...", "os/exec", "net/http"},
		"internal/delta":  {module + "...", "k8s.io/...", "go.uber.org/...", "os/exec", "net/http"},
		"internal/config": {"k8s.io/client-go/...", "os/exec"},
		// Every type of the API, linked into each agent: 16 MB of file and 9 MiB of memory.
		"cmd/kube-ipvs": {"k8s.io/client-go/kubernetes/...", "k8s.io/client-go/testing", "k8s.io/client-go/discovery"},
	}
	for _, p := range list(t, "./internal/...", "./ipset", "./scheduler", "./cmd/...") {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		no := forbidden[pkg]
		if strings.HasPrefix(pkg, "internal/kernel/") {
			no = append(no, module+"internal/model", module+"internal/delta", module+"internal/dataplane/...", "k8s.io/...")
		}
		for _, dep := range p.Deps {
			if allows(no, dep) && dep != module+leaf {
				t.Errorf("%s depends on %s", pkg, strings.TrimPrefix(dep, module))
			}
		}
	}
}

func TestEachRoomHasADoc(t *testing.T) {
	for pkg := range law {
		text, err := os.ReadFile(filepath.Join("..", pkg, "doc.go"))
		if err != nil || !bytes.HasPrefix(text, []byte("// Package ")) {
			t.Errorf("%s: doc.go does not document the package (%v)", pkg, err)
		}
	}
}
