package inspect_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

func backendsOf(addrs ...string) (out []inspect.BackendRow) {
	for i, a := range addrs {
		ap := netip.MustParseAddrPort(a)
		out = append(out, inspect.BackendRow{Backend: a, Address: ap.Addr(), Port: ap.Port(), Protocol: "tcp", Namespace: "n", Name: "s", Weight: uint16(100 - i*45), State: inspect.BackendServing})
	}
	return out
}

func TestTablesAreSorted(t *testing.T) {
	for by, want := range map[string][]string{
		"backend":  {"10.0.0.2:80", "10.0.0.10:80", "10.0.0.10:8080"}, // not as texts
		"-Backend": {"10.0.0.10:8080", "10.0.0.10:80", "10.0.0.2:80"},
		"WEIGHT":   {"10.0.0.2:80", "10.0.0.10:80", "10.0.0.10:8080"}, // 10 before 100
		"service":  {"10.0.0.10:8080", "10.0.0.10:80", "10.0.0.2:80"}, // equal: as they came
	} {
		rows := backendsOf("10.0.0.10:8080", "10.0.0.10:80", "10.0.0.2:80")
		if err := inspect.BackendTable().Sort(rows, by); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, texts(rows, func(r inspect.BackendRow) string { return r.Backend })); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", by, diff)
		}
	}
	if err := inspect.BackendTable().Sort(nil, "colour"); err == nil || !strings.Contains(err.Error(), "backend, service, frontends, weight, state") {
		t.Errorf("error %v, want one that lists the columns", err)
	}
}

// Colours do not take part in the width of columns, headings may be left out, and what other people named cannot
// speak to the terminal.
func TestTablesAreWritten(t *testing.T) {
	rows := backendsOf("10.0.0.1:80", "10.0.0.123:8080")
	rows[0].State = inspect.BackendKept
	rows[1].Name = "evil\x1b[2J"
	var b strings.Builder
	if err := inspect.BackendTable().Write(&b, rows, inspect.TableOptions{Colour: true}); err != nil {
		t.Fatal(err)
	}
	want := "BACKEND              SERVICE          FRONTENDS  WEIGHT  STATE\n" +
		"10.0.0.1:80/tcp      n/s              0          100     \x1b[33mkept\x1b[0m\n" +
		"10.0.0.123:8080/tcp  n/evil\\u001b[2J  0          55      \x1b[32mserving\x1b[0m\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := inspect.BackendTable().Write(&b, rows[:1], inspect.TableOptions{NoHeaders: true}); err != nil || b.String() != "10.0.0.1:80/tcp  n/s  0  100  kept\n" {
		t.Errorf("without headings %q, error %v", &b, err)
	}
	if err := inspect.BackendTable().Write(fullDisk{}, rows, inspect.TableOptions{}); err == nil {
		t.Error("what could not be written was not said")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestKernelTables(t *testing.T) {
	frontends := []inspect.FrontendRow{
		{Frontend: "10.96.0.10:80/tcp", Address: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: "tcp", Kind: "ClusterIP", Namespace: "shop", Name: "cart", PortName: "http"},
		{Frontend: "192.168.0.1:30080/tcp", Address: netip.MustParseAddr("192.168.0.1"), Port: 30080, Protocol: "tcp", Kind: "NodePort", Namespace: "shop", Name: "cart", PortName: "http"},
		{Frontend: "10.96.0.10:80/tcp", Address: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: "tcp", Kind: "ExternalIP", Namespace: "shop", Name: "late", Winner: "shop/cart"},
	}
	o := inspect.NewOwners(frontends, []inspect.BackendRow{{Backend: "10.244.0.5:8080", Protocol: "tcp", Namespace: "shop", Name: "cart"}})
	at := netip.MustParseAddrPort
	cart := []string{"shop/cart"}
	for name, got := range map[string][]string{
		"frontend": o.Frontend(at("10.96.0.10:80"), "tcp"), "backend": o.Backend(at("10.244.0.5:8080"), "tcp"), "node port": o.NodePort(30080, "tcp"),
		"address": o.Address(netip.MustParseAddr("10.96.0.10")), "comment": o.Titled("shop/cart:http cluster IP"),
	} {
		if diff := cmp.Diff(cart, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, got := range map[string][]string{
		"protocol": o.Frontend(at("10.96.0.10:80"), "udp"), "node": o.Address(netip.MustParseAddr("192.168.0.1")), "comment": o.Titled("shop/other:http"),
	} {
		if got != nil {
			t.Errorf("%s belongs to %v", name, got)
		}
	}
	var b strings.Builder
	servers := []inspect.KernelServerRow{
		{Server: "10.96.0.10:80/tcp", Scheduler: "rr", Destination: "10.244.0.5:8080", Weight: 1, Active: 12, Inactive: 3, Forward: "nat", Owned: inspect.OwnedBy(true, cart)},
		{Server: "10.96.0.9:80/tcp", Scheduler: "wlc", Flags: []string{"one-packet"}, Owned: inspect.OwnedBy(true, nil)},
		{Server: "172.16.0.1:80/tcp", Scheduler: "rr", Owned: inspect.OwnedBy(false, nil)},
	}
	write(t, &b, inspect.KernelServerTable(), servers)
	write(t, &b, inspect.KernelSetTable(), []inspect.KernelSetRow{{Name: "KUBE-CLUSTER-IP", Type: "hash:ip,port", Family: "inet", Entries: 7, References: 2, Memory: 4096, Owned: inspect.OwnedBy(true, nil)}})
	write(t, &b, inspect.KernelEntryTable(), []inspect.KernelEntryRow{{Set: "KUBE-CLUSTER-IP", Entry: "10.96.0.10,tcp:80", Owned: inspect.OwnedBy(true, []string{"a/1", "a/2", "a/3", "a/4", "a/5", "a/6"})}})
	write(t, &b, inspect.KernelRuleTable(), []inspect.KernelRuleRow{
		{Family: "ip", Table: "nat", Chain: "KUBE-SERVICES", Number: 1, Rule: "-j RETURN", Owned: inspect.OwnedBy(true, nil)},
		{Family: "ip6", Table: "nat", Chain: "OUTPUT", Rule: "-j KUBE-SERVICES", Owned: inspect.OwnedBy(true, nil)},
	})
	write(t, &b, inspect.KernelAddressTable(), []inspect.KernelAddressRow{
		{Address: "10.96.0.10", Kind: "address", Link: "kube-ipvs0", Owned: inspect.OwnedBy(true, cart)},
		{Address: "10.96.0.0/16", Kind: "route", Link: "lo", Owned: inspect.OwnedBy(true, nil)},
	})
	golden(t, "kernel.txt", b.String())
}

func write[R any](t *testing.T, b *strings.Builder, table inspect.Table[R], rows []R) {
	t.Helper()
	var one strings.Builder
	if err := table.Write(&one, rows, inspect.TableOptions{Wide: true}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(trimmed(one.String()) + "\n")
}
