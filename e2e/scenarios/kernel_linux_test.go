package scenarios_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/races"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// TestOnKernel runs the scenarios of ipvs mode with the program itself, KUBE_IPVS_BIN. The kernel
// is that of a place that the runner of e2e/vm prepared, and each scenario has a network namespace
// of its own.
func TestOnKernel(t *testing.T) {
	binary := program(t, "a kernel with IPVS")
	files := slices.DeleteFunc(scenario.List(t, "testdata"), ofIPTables)
	scenario.Run(t, scenario.Options{
		Files: files, Driver: "kernel",
		Open: func(work string) (scenario.Driver, error) { return newNode(t, work, binary, "") },
	})
}

// TestNFTOnKernel is the same with rules and sets in nftables. Scenarios have the words of iptables and
// ipset, which the kernel may lack, and so may the node.
func TestNFTOnKernel(t *testing.T) {
	binary := program(t, "a kernel with IPVS")
	scenario.Run(t, scenario.Options{
		Files: withoutStrangers(t, withNFT(t)), Driver: "kernel",
		Open: func(work string) (scenario.Driver, error) { return newNFTNode(t, work, binary) },
	})
}

// withoutStrangers leaves out the scenario in which cleanup keeps a chain of another program. The chain is in our table, which the
// program deletes as a whole; the cleanup of fakes does not.
func withoutStrangers(t *testing.T, files []string) []string {
	t.Helper()
	const name = "cleanup-of-all-kinds"
	t.Run("skipped/"+name, func(t *testing.T) { t.Skip("cleanup deletes our tables with the chains of other programs in them") })
	return slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, name+".txtar") })
}

// TestIPTablesOnKernel is the same for iptables mode, which any kernel carries, with each
// of its backends.
func TestIPTablesOnKernel(t *testing.T) {
	binary := program(t, "network namespaces of its own")
	files := slices.DeleteFunc(scenario.List(t, "testdata"), func(f string) bool { return !ofIPTables(f) })
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			if _, err := exec.LookPath("iptables-" + backend); err != nil {
				t.Skipf("no tools of this backend: %v", err)
			}
			scenario.Run(t, scenario.Options{
				Files: files, Driver: "kernel",
				Open: func(work string) (scenario.Driver, error) { return newNode(t, work, binary, backend) },
			})
		})
	}
}

// program is the program to test, in a place where the test may change the network.
func program(t *testing.T, wants string) string {
	where, binary := os.Getenv("KUBE_IPVS_WHERE"), os.Getenv("KUBE_IPVS_BIN")
	if where == "" || binary == "" {
		t.Skipf("KUBE_IPVS_WHERE or KUBE_IPVS_BIN is not set: this test wants %s, see e2e/README.md", wants)
	}
	if _, err := exec.LookPath(binary); err != nil {
		t.Fatalf("KUBE_IPVS_BIN: %v", err)
	}
	return binary
}

// node is a network namespace with the program in it. The namespace is that of the
// script's thread and ends with it; its child processes are in it, too.
type node struct {
	t                 testing.TB // it fails where the race detector found something in an agent
	work, binary, run string
	backend           string       // backend of iptables; empty is what the machine prefers
	tables            *nft.Handle  // our tables of nftables; nil with rules in iptables
	host              []netip.Addr // of the link host0

	mu    sync.Mutex
	log   bytes.Buffer
	agent *exec.Cmd
	done  chan error
}

var _ scenario.Driver = (*node)(nil)

// newNode gives the calling thread a network namespace. The thread stays locked
// to its goroutine and dies with it, and the namespace with the thread.
func newNode(t testing.TB, work, binary, backend string) (*node, error) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	// The path of a unix socket is short; that of work may not be.
	run, err := os.MkdirTemp("", "node") //nolint:usetesting // t.TempDir is too long for that
	if err != nil {
		return nil, err
	}
	n := &node{t: t, work: work, binary: binary, run: run, backend: backend}
	// Adding a destination fails with EINVAL while lo is down.
	_, err = n.output("ip", "link", "set", "lo", "up")
	return n, err
}

// newNFTNode is newNode for a node whose rules are in nftables.
func newNFTNode(t testing.TB, work, binary string) (*node, error) {
	n, err := newNode(t, work, binary, "")
	if err != nil {
		return nil, err
	}
	n.tables, err = nft.New(zap.NewNop(), nft.Options{})
	return n, err
}

// Start implements scenario.Driver.
func (n *node) Start(s scenario.Start) error {
	if n.agent != nil {
		return errors.New("an agent is running already")
	}
	n.agent = exec.Command(n.binary, n.flags(s)...)
	n.agent.Stderr = n
	n.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.agent.Start(); err != nil {
		return err
	}
	n.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan<- error) { done <- cmd.Wait() }(n.agent, n.done)
	return nil
}

// flags come from the most general to what the scenario asks for.
func (n *node) flags(s scenario.Start) []string {
	period := "1h"
	if s.Audit {
		period = "1s"
	}
	flags := []string{
		"--source-dir=" + filepath.Join(n.work, "manifests"), "--hostname-override=" + scenario.NodeName,
		"--run-dir=" + n.run, "--ipvs-sync-period=" + period, "--iptables-sync-period=" + period,
		"--log-level=debug", "--drain=0s",
	}
	if n.rulesAlone() {
		flags = append(flags, "--iptables-backend="+n.backend)
	}
	if n.tables != nil {
		flags = append(flags, "--rules=nftables")
	}
	return append(flags, s.Flags...)
}

// iptables is the name of a tool of the node's backend: "ip6tables", "-save".
func (n *node) iptables(family, verb string) string {
	if n.rulesAlone() {
		family += "-" + n.backend
	}
	return family + verb
}

// Stop implements scenario.Driver; the agent has to end well.
func (n *node) Stop() error { return n.end(syscall.SIGTERM) }

// Kill implements scenario.Driver.
func (n *node) Kill() error {
	if err := n.end(syscall.SIGKILL); err != nil && !strings.Contains(err.Error(), "killed") {
		return err
	}
	return nil
}

func (n *node) end(signal syscall.Signal) error {
	if n.agent == nil {
		return errors.New("no agent is running")
	}
	cmd := n.agent
	n.agent = nil
	if err := cmd.Process.Signal(signal); err != nil {
		return errors.Join(err, <-n.done)
	}
	_, deadline := n.Pace()
	select {
	case err := <-n.done:
		return err
	case <-time.After(deadline):
		return errors.Join(fmt.Errorf("the agent did not end on %s", signal), cmd.Process.Kill(), <-n.done)
	}
}

// Status implements scenario.Driver.
func (n *node) Status(ctx context.Context) (agent.Status, error) {
	return inspect.NewClient(filepath.Join(n.run, "agent.sock")).Status(ctx)
}

// Rows implements scenario.Driver.
func (n *node) Rows(ctx context.Context) (map[string]string, error) {
	client := inspect.NewClient(filepath.Join(n.run, "agent.sock"))
	status, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, kind := range scenario.KindsOf(status.Mode) {
		if out[kind], err = client.Rows(ctx, kind); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Write takes what the agent logs.
func (n *node) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(p)
}

// Log implements scenario.Driver.
func (n *node) Log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.String()
}

// Text implements scenario.Driver.
func (n *node) Text(kind string) (string, error) {
	if n.tables != nil && (kind == "sets" || kind == "rules") {
		return scenario.Tables{Kernel: n.tables}.Text(kind)
	}
	switch kind {
	case "servers":
		if n.lacksIPVS() {
			return "", nil
		}
		saved, err := n.output("ipvsadm", "-Sn")
		listed, errListed := n.output("ipvsadm", "-Ln", "--thresholds")
		return withThresholds(saved, listed), errors.Join(err, errListed)
	case "sets":
		return n.output("ipset", "save")
	case "rules":
		v4, err4 := n.output(n.iptables("iptables", "-save"))
		v6, err6 := n.output(n.iptables("ip6tables", "-save"))
		return "# ip\n" + v4 + "# ip6\n" + v6, errors.Join(err4, err6)
	case "addresses":
		return n.addresses()
	case "link":
		if _, err := n.output("ip", "link", "show", "dev", link.DefaultName); err != nil {
			return "", nil //nolint:nilerr // no such link is an answer
		}
		return link.DefaultName + "\n", nil
	}
	return "", nil // Normal refuses the kind
}

// lacksIPVS reports whether the kernel has no virtual servers that could be read.
func (n *node) lacksIPVS() bool {
	_, err := os.Stat("/proc/net/ip_vs")
	return n.rulesAlone() && errors.Is(err, fs.ErrNotExist)
}

// rulesAlone reports whether the node is one for iptables mode.
func (n *node) rulesAlone() bool { return n.backend != "" }

// found is what ip(8) shows of our addresses.
type found struct {
	bound    map[netip.Addr]struct{}   // to our link
	routes   map[netip.Prefix]struct{} // local ones of ours
	detached map[netip.Addr]struct{}   // local to marked packets alone
}

// addresses prints what is ours as commands that would add it; nothing without the link.
func (n *node) addresses() (string, error) {
	f := found{map[netip.Addr]struct{}{}, map[netip.Prefix]struct{}{}, map[netip.Addr]struct{}{}}
	for _, family := range []string{"-4", "-6"} {
		ours := fmt.Sprint(" proto ", link.RouteProtocol)
		answers, err := n.ask(family, "addr show", "route show table local"+ours, "rule show", "route show table all"+ours, "route show table local")
		if err == nil {
			err = errors.Join(f.addBound(answers[0]), f.addRoutes(answers[1]), f.addDetached(answers[2], answers[3], answers[4]))
		}
		if err != nil {
			return "", err
		}
	}
	var b strings.Builder
	err := errors.Join(link.WriteAddrs(&b, f.bound), link.WriteRoutes(&b, maps.Keys(f.routes)),
		link.WriteDetached(&b, link.DetachMark(14), maps.Keys(f.detached), func(a netip.Addr) bool { _, is := f.bound[a]; return is }))
	return b.String(), err
}

// ask has ip(8) answer several questions of one family, in one process: starting one is what costs most in a guest.
func (n *node) ask(family string, questions ...string) ([]string, error) {
	const between, first = "link show dev lo", "1: lo: " // no question has an answer that begins like this one
	cmd := exec.Command("ip", family, "-o", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(questions, "\n"+between+"\n") + "\n")
	text, err := n.read(cmd)
	if err != nil {
		return nil, err
	}
	answers := []string{""}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, first) {
			answers = append(answers, "")
		} else {
			answers[len(answers)-1] += line
		}
	}
	if len(answers) != len(questions) {
		return nil, fmt.Errorf("%d answers to %d questions: %s", len(answers), len(questions), text)
	}
	return answers, nil
}

func (f found) addBound(text string) error {
	for line := range strings.Lines(text) {
		words := strings.Fields(line) // 7: kube-ipvs0 inet 10.96.0.10/32 scope global ...
		if len(words) < 4 || words[1] != link.DefaultName || !strings.HasPrefix(words[2], "inet") {
			continue
		}
		prefix, err := netip.ParsePrefix(words[3])
		if err != nil || prefix.Bits() != prefix.Addr().BitLen() {
			return fmt.Errorf("address %q is not one of a service: %w", words[3], err)
		}
		f.bound[prefix.Addr()] = struct{}{}
	}
	return nil
}

func (f found) addRoutes(text string) error {
	for line := range strings.Lines(text) {
		words := strings.Fields(line) // local 10.96.0.0/16 dev lo scope host
		if len(words) < 4 || words[0] != "local" || words[3] != "lo" {
			return fmt.Errorf("route %q is not one of ours", line)
		}
		prefix, err := netip.ParsePrefix(words[1])
		if err != nil {
			return err
		}
		f.routes[prefix] = struct{}{}
	}
	return nil
}

func (f found) addDetached(rules, routes, local string) error {
	lookup := fmt.Sprintf(" lookup %d", link.DetachedTable)
	for line := range strings.Lines(routes) {
		words := strings.Fields(line) // local 203.0.113.1 dev lo table 7373 scope host
		if len(words) < 6 || words[5] != fmt.Sprint(link.DetachedTable) {
			continue
		}
		a, err := netip.ParseAddr(words[1])
		if err != nil {
			return err
		}
		if strings.Contains(rules, lookup) && (a.Is6() || !strings.Contains(local, "local "+words[1]+" ")) {
			f.detached[a] = struct{}{}
		}
	}
	return nil
}

// Tool implements scenario.Driver.
func (n *node) Tool(args []string) error {
	name := args[0]
	if n.tables != nil && slices.Contains([]string{"iptables", "ip6tables", "ipset"}, name) {
		return scenario.Tables{Kernel: n.tables}.Tool(args)
	}
	if name == "iptables" || name == "ip6tables" {
		name = n.iptables(name, "")
	}
	_, err := n.output(name, args[1:]...)
	return err
}

// Host implements scenario.Driver.
func (n *node) Host(addrs []netip.Addr) error {
	if n.host == nil {
		kind := []string{"dummy"}
		if n.rulesAlone() { // on a kernel that may lack that, too
			kind = []string{"veth", "peer", "name", "peer0"}
		}
		if _, err := n.output("ip", append([]string{"link", "add", "host0", "up", "type"}, kind...)...); err != nil {
			return err
		}
	}
	for _, a := range addrs {
		if !slices.Contains(n.host, a) {
			if err := n.hostAddress("add", a); err != nil {
				return err
			}
		}
	}
	for _, a := range n.host {
		if !slices.Contains(addrs, a) {
			if err := n.hostAddress("del", a); err != nil {
				return err
			}
		}
	}
	n.host = append([]netip.Addr{}, addrs...)
	return nil
}

func (n *node) hostAddress(verb string, a netip.Addr) error {
	args := []string{"addr", verb, netip.PrefixFrom(a, a.BitLen()).String(), "dev", "host0"}
	if a.Is6() && verb == "add" {
		args = append(args, "nodad") // no other host is there to object
	}
	_, err := n.output("ip", args...)
	return err
}

// Gateway implements scenario.Driver: no host is behind the link host0.
func (n *node) Gateway([]netip.Addr) error {
	return errors.New("gateway: not on a kernel, put [fakes] before it")
}

// Failing implements scenario.Driver: the endpoints of scenarios are nowhere.
func (n *node) Failing(map[netip.AddrPort]string) error {
	return errors.New("failing: not on a kernel, put [fakes] before it")
}

// Plan implements scenario.Driver. One process prints all kinds, each behind its
// name: starting programs is what takes time here. A mode with one kind has no names.
func (n *node) Plan(s scenario.Start) (map[string]string, error) {
	args := append([]string{"plan"}, n.flags(s)...)
	if n.tables != nil {
		args = append(args, "--rules=iptables") // the words of scenarios
	}
	for _, a := range n.host {
		args = append(args, "--node-address="+a.String())
	}
	text, err := n.output(n.binary, args...)
	if err != nil {
		return nil, err
	}
	out, kind := map[string]string{}, ""
	titles := append(scenario.Kinds(), "relays") // the agent itself serves these, no kernel has rows of them
	if n.rulesAlone() || slices.Contains(s.Flags, "--proxy-mode=iptables") {
		kind = "rules"
	}
	for line := range strings.Lines(text) {
		if title := strings.TrimPrefix(strings.TrimSpace(line), "# "); slices.Contains(titles, title) {
			kind = title
			continue
		}
		out[kind] += line
	}
	return out, nil
}

// Cleanup implements scenario.Driver.
func (n *node) Cleanup(s scenario.Start) error {
	_, err := n.output(n.binary, append([]string{"cleanup"}, n.flags(s)...)...)
	return err
}

// Fault implements scenario.Driver: kernels do not fail on demand.
func (n *node) Fault(string, []string) error {
	return errors.New("fault: not on a kernel, put [fakes] before it")
}

// Heal implements scenario.Driver.
func (n *node) Heal() {}

// Pace implements scenario.Driver. Kernels here may be emulated, on a machine that is busy with other things.
func (n *node) Pace() (interval, deadline time.Duration) {
	return 100 * time.Millisecond, 4 * time.Minute
}

// Close implements scenario.Driver.
func (n *node) Close() {
	if n.agent != nil {
		_ = n.Kill()
	}
	if n.tables != nil {
		n.tables.Close()
	}
	if found := races.In(n.Log()); found != "" {
		n.t.Errorf("%s: an agent has a data race:\n%s", filepath.Base(n.work), found)
	}
	_ = os.RemoveAll(n.run)
}

func (n *node) output(name string, args ...string) (string, error) {
	return n.read(exec.Command(name, args...))
}

func (n *node) read(cmd *exec.Cmd) (string, error) {
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
