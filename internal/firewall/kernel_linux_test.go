package firewall_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// loaded reads back what nft makes of a ruleset, in a network namespace of its own. The thread ends with the test's goroutine.
func loaded(t *testing.T, ruleset ...string) []firewall.Table {
	t.Helper()
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNET)
	if errors.Is(err, unix.EPERM) {
		t.Skip("skipped: no permission to make a network namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range ruleset {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("skipped: nft cannot load this here: %v: %s", err, out)
		}
	}
	h, err := nftables.New(zaptest.NewLogger(t), nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	all, err := h.Filters(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var out []firewall.Table
	for _, f := range all {
		out = append(out, firewall.FromNFT(f))
	}
	return out
}

func file(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func frontend(name string, kind firewall.Kind, addr string, port uint16, proto uint8, backend string) firewall.Frontend {
	f := firewall.Frontend{Service: "test/" + name, Kind: kind, Addr: netip.MustParseAddr(addr), Port: port, Protocol: proto}
	if backend != "" {
		f.Backend = netip.MustParseAddrPort(backend)
	}
	return f
}

var (
	some = []firewall.Frontend{
		frontend("web", firewall.ClusterIP, "10.96.0.10", 80, 6, "10.244.1.1:8080"),
		frontend("web", firewall.NodePort, "192.168.0.1", 30080, 6, "10.244.1.1:8080"),
		frontend("dns", firewall.ClusterIP, "10.96.0.53", 53, 17, "10.244.1.2:53"),
		frontend("six", firewall.ClusterIP, "fd00:96::1", 80, 6, "[fd00:244::1]:80"),
		frontend("out", firewall.External, "198.51.100.7", 443, 6, ""),
	}
	facts = firewall.Facts{IPVS: true, Pods: []netip.Addr{netip.MustParseAddr("10.244.0.1")}, NodePorts: [2]uint16{30000, 32767}}
)

// flat is what a test compares: each block as a sentence, its commands below it.
func flat(r firewall.Report) []string {
	var out []string
	for _, b := range r.Blocks {
		out = append(append(out, b.String()), b.Fix...)
	}
	for _, u := range r.Unclear {
		out = append(out, "unclear: "+u)
	}
	for _, u := range r.Unread {
		out = append(out, "unread: "+u)
	}
	return out
}

// mended loads the commands that a report has, and judges again. Those of firewalld are not for nft.
func mended(t *testing.T, ruleset string, r firewall.Report) firewall.Report {
	t.Helper()
	more := []string{ruleset}
	for _, b := range r.Blocks {
		for _, line := range b.Fix {
			more = append(more, strings.TrimPrefix(line, "nft ")+"\n")
		}
	}
	return firewall.Judge(loaded(t, more...), some, facts)
}

func TestDebianPolicyDrop(t *testing.T) {
	ruleset := file(t, "debian.nft")
	got := firewall.Judge(loaded(t, ruleset), some, facts)
	want := []string{
		"packets to 4 Services (test/dns, test/out, test/six and 1 more; node ports 30080) from outside and pods are dropped: table inet filter, chain input: its policy is drop",
		"nft insert rule inet filter input ip daddr { 10.96.0.0/26, 198.51.100.7 } accept",
		"nft insert rule inet filter input ip6 daddr fd00:96::1 accept",
		"nft insert rule inet filter input tcp dport 30000-32767 accept",
	}
	if diff := cmp.Diff(want, flat(got)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if again := mended(t, ruleset, got); len(flat(again)) > 0 {
		t.Errorf("with the rules that it names: %q", flat(again))
	}
}

func TestFirewalld(t *testing.T) {
	ruleset := file(t, "firewalld.nft")
	got := firewall.Judge(loaded(t, ruleset), some, facts)
	if len(got.Blocks) != 1 || !strings.Contains(got.Blocks[0].String(), "table inet firewalld, chain filter_IN_public, rule 9 (reject") {
		t.Errorf("report: %q", flat(got))
	}
	if len(got.Unclear)+len(got.Unread) > 0 {
		t.Errorf("unclear %q, unread %q", got.Unclear, got.Unread)
	}
	want := []string{
		"firewall-cmd --permanent --get-policies | grep -qw kube-ipvs || firewall-cmd --permanent --new-policy=kube-ipvs",
		"firewall-cmd --permanent --policy=kube-ipvs --add-ingress-zone=ANY",
		"firewall-cmd --permanent --policy=kube-ipvs --add-egress-zone=HOST",
		`firewall-cmd --permanent --policy=kube-ipvs --add-rich-rule='rule family="ipv4" destination address="10.96.0.0/26" accept'`,
		`firewall-cmd --permanent --policy=kube-ipvs --add-rich-rule='rule family="ipv4" destination address="198.51.100.7" accept'`,
		`firewall-cmd --permanent --policy=kube-ipvs --add-rich-rule='rule family="ipv6" destination address="fd00:96::1" accept'`,
		"firewall-cmd --permanent --policy=kube-ipvs --add-port=30000-32767/tcp",
		"firewall-cmd --reload",
	}
	if diff := cmp.Diff(want, got.Blocks[0].Fix); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}
