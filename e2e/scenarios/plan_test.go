package scenarios_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/randomops"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// TestPlanIsStable plans the same cluster from files that are named, filled and
// ordered in other ways: the text is the same to the byte. People diff plans.
func TestPlanIsStable(t *testing.T) {
	for seed := range uint64(40) {
		c := newCluster(seed)
		var want map[string]string
		for i := range 5 {
			work := t.TempDir()
			c.layOut(t, filepath.Join(work, "manifests"))
			node := scenario.NewFakes(work)
			if err := node.Host(nodeAddresses); err != nil {
				t.Fatal(err)
			}
			got, err := node.Plan(scenario.Start{Flags: []string{"--cluster-cidr=10.244.0.0/16"}})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, layout %d (-first +this):\n%s", seed, i, diff)
			}
		}
		if !strings.Contains(want["servers"], "-A ") {
			t.Fatalf("seed %d: the plan has no virtual server, so this test says nothing", seed)
		}
	}
}

// TestPlanIsStableAcrossProcesses does it with the program, KUBE_IPVS_BIN: each
// process walks its maps in another order.
func TestPlanIsStableAcrossProcesses(t *testing.T) {
	binary := os.Getenv("KUBE_IPVS_BIN")
	if binary == "" {
		t.Skip("KUBE_IPVS_BIN is not set: this test wants the program")
	}
	for seed := range uint64(8) {
		c := newCluster(seed)
		want := ""
		for i := range 3 {
			dir := filepath.Join(t.TempDir(), "manifests")
			c.layOut(t, dir)
			got := planOf(t, binary, dir)
			if i == 0 {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, process %d (-first +this):\n%s", seed, i, diff)
			}
		}
	}
}

var nodeAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")}

// planOf runs the program and returns what it prints.
func planOf(t *testing.T, binary, dir string) string {
	t.Helper()
	args := []string{"plan", "--source-dir=" + dir, "--hostname-override=" + scenario.NodeName, "--cluster-cidr=10.244.0.0/16"}
	for _, a := range nodeAddresses {
		args = append(args, "--node-address="+a.String())
	}
	var out, notes bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, notes.String())
	}
	return out.String()
}

// cluster is a number of documents that can be laid out as files in many ways.
type cluster struct {
	randomops.Writer
	documents []string
}

// newCluster makes Services that meet on addresses and ports, slices and nodes.
func newCluster(seed uint64) *cluster {
	c := &cluster{Writer: randomops.Writer{Rand: rand.New(rand.NewPCG(seed, 2))}}
	text := c.Nodes()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		text += "---\n" + c.Service(name) + "---\n" + c.Slice(name, name, "more")
	}
	c.documents = strings.Split(text, "---\n")
	return c
}

// layOut writes the documents into a new directory: another order, other files,
// other names, and the endpoints of each slice in another order.
func (c *cluster) layOut(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := make([][]string, 1+c.IntN(len(c.documents)))
	for _, at := range c.Perm(len(c.documents)) {
		f := c.IntN(len(files))
		files[f] = append(files[f], c.shuffled(c.documents[at]))
	}
	for i, documents := range files {
		if len(documents) == 0 {
			continue // an empty file is taken for one that is being written
		}
		name := fmt.Sprintf("%03d-%d.yaml", c.IntN(1000), i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(documents, "---\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shuffled puts the endpoints of a slice, a line each, into another order.
func (c *cluster) shuffled(document string) string {
	head, endpoints, ok := strings.Cut(document, "endpoints:\n")
	if !ok || endpoints == "" {
		return document
	}
	lines := strings.SplitAfter(strings.TrimSuffix(endpoints, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	c.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	return head + "endpoints:\n" + strings.Join(lines, "")
}
